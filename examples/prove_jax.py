"""Is it the input? Measured with a training step of your own, in JAX.

python examples/prove_jax.py --seconds 30
"""

import argparse

import jax
import jax.numpy as jnp
import made

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with train/<class>/ of photographs")
parser.add_argument("--seconds", type=float, default=10)
args = parser.parse_args()

ops = [ff.RandomResizedCrop(96), ff.RandomFlip(), ff.Normalize.imagenet()]
feed = ff.Feed(ff.ImageFolder(made.photographs(args.data) / "train"), ops, batch=16, seed=0)
state = {"weights": jax.random.normal(jax.random.key(0), (3, 10)) * 0.1}


@jax.jit
def update(weights, images, labels):
    def loss(weights):
        logits = images.mean((1, 2)) @ weights
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    return weights - 0.1 * jax.grad(loss)(weights)


def step(batch):
    state["weights"] = update(state["weights"], *batch)


proof = ff.prove(step, feed.to_jax(), seconds=args.seconds)
print(proof)
print(
    f"a faster feed could gain {proof.gain:.0%} at most; the weights of this model are"
    " meaningless now"
)
