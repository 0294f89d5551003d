"""Flax NNX on a feed: Orbax saves the feed's position with the model. The run is stopped within an
epoch and resumes at the next batch, on any number of processes.

python examples/flax_example.py                    # needs pip install flax orbax-checkpoint
"""

import argparse
import itertools
import tempfile
from pathlib import Path

import jax
import made
import optax
import orbax.checkpoint as ocp
from flax import nnx

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--folder", default=tempfile.mkdtemp(), help="for the checkpoints")
parser.add_argument("--steps", type=int, default=124)
parser.add_argument("--stop-at", type=int, default=40, help="the step at which a machine is lost")
args = parser.parse_args()


class Net(nnx.Module):
    """Two convolutions and a dense layer."""

    def __init__(self, rngs):
        self.first = nnx.Conv(3, 32, kernel_size=(3, 3), strides=2, rngs=rngs)
        self.second = nnx.Conv(32, 64, kernel_size=(3, 3), strides=2, rngs=rngs)
        self.head = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, images):
        x = nnx.relu(self.second(nnx.relu(self.first(images))))
        return self.head(nnx.max_pool(x, (4, 4), strides=(4, 4)).reshape(len(x), -1))


def mean_loss(net, batch):
    logits = net(batch["image"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()


@nnx.jit
def train_step(net, optimizer, batch):
    loss, gradients = nnx.value_and_grad(mean_loss)(net, batch)
    optimizer.update(net, gradients)
    return loss


@nnx.jit
def correct(net, batch):
    return ((net(batch["image"]).argmax(1) == batch["label"]) * batch["weight"]).sum()


# one mesh over all devices of all processes; the feed reads this process's part of its batches
mesh = jax.sharding.Mesh(jax.devices(), ("data",))
rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
world = ff.World.of_mesh(mesh, "data")
values = [ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))]
crops = [ff.RandomResizedCrop(32, scale=(0.6, 1)), *values]


def train(steps):
    """Train to this step, from the last checkpoint on."""
    feed = ff.Feed(made.pictures(2000, seed=0), crops, global_batch=32, seed=0, world=world)
    batches = feed.to_jax(rows, yields={"image": "image", "label": "label"})
    net = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.adam(2e-3), wrt=nnx.Param)
    everything = nnx.state((net, optimizer))
    with ocp.CheckpointManager(Path(args.folder).absolute()) as manager:
        begin = manager.latest_step() or 0
        if begin:
            kept = ocp.args.Composite(
                state=ocp.args.StandardRestore(everything), feed=ocp.args.JsonRestore()
            )
            saved = manager.restore(begin, args=kept)
            nnx.update((net, optimizer), saved.state)
            feed.restore(saved.feed)
            print(f"resumed at step {begin}: epoch {saved.feed['epoch']} step {saved.feed['step']}")
        endless = itertools.chain.from_iterable(itertools.repeat(batches))
        for number, batch in zip(range(begin, steps), endless, strict=False):
            train_step(net, optimizer, batch)
            if (number + 1) % 20 == 0:
                kept = ocp.args.Composite(
                    state=ocp.args.StandardSave(nnx.state((net, optimizer))),
                    feed=ocp.args.JsonSave(feed.state()),
                )
                manager.save(number + 1, args=kept)
    return net, feed


train(args.stop_at)
net, feed = train(args.steps)
held_out = ff.Feed(
    made.pictures(1000, seed=1), values, global_batch=96, shuffle=False, tail="pad", world=world
)
fields = {"image": "image", "label": "label", "weight": "weight"}
right = sum(correct(net, batch) for batch in held_out.to_jax(rows, yields=fields))
if world.main:
    print(f"accuracy {right / 1000:.2f}, chance 0.10")
    print(feed.stats())
