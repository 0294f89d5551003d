"""Equinox on a feed: channels first, batches through `jax.vmap`, and Orbax with the feed's position
inside. The run is stopped within an epoch and resumes at the next batch.

python examples/equinox_example.py                 # pip install equinox optax orbax-checkpoint
"""

import argparse
import tempfile
from pathlib import Path

import equinox as eqx
import jax
import made
import optax
import orbax.checkpoint as ocp

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--folder", default=tempfile.mkdtemp(), help="for the checkpoints")
parser.add_argument("--steps", type=int, default=124)
parser.add_argument("--stop-at", type=int, default=40, help="the step at which a machine is lost")
args = parser.parse_args()


class Net(eqx.Module):
    """Two convolutions and a dense layer, on one image."""

    first: eqx.nn.Conv2d
    second: eqx.nn.Conv2d
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.first = eqx.nn.Conv2d(3, 32, 3, stride=2, padding=1, key=keys[0])
        self.second = eqx.nn.Conv2d(32, 64, 3, stride=2, padding=1, key=keys[1])
        self.head = eqx.nn.Linear(256, 10, key=keys[2])

    def __call__(self, image):
        x = jax.nn.relu(self.second(jax.nn.relu(self.first(image))))
        return self.head(x.reshape(64, 2, 4, 2, 4).max((2, 4)).ravel())


@eqx.filter_value_and_grad
def mean_loss(net, images, labels):
    logits = jax.vmap(net)(images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


optimizer = optax.adam(2e-3)


@eqx.filter_jit
def train_step(net, moments, images, labels):
    _, gradients = mean_loss(net, images, labels)
    updates, moments = optimizer.update(gradients, moments)
    return eqx.apply_updates(net, updates), moments


@eqx.filter_jit
def correct(net, images, labels, weights):
    return ((jax.vmap(net)(images).argmax(1) == labels) * weights).sum()


values = [ff.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ff.ToLayout("CHW")]
crops = [ff.RandomResizedCrop(32, scale=(0.6, 1)), *values]


def train(steps):
    """Train to this step, from the last checkpoint on."""
    feed = ff.Feed(made.pictures(2000, seed=0), crops, batch=32, seed=0)
    batches = feed.to_jax()
    net = Net(jax.random.key(0))
    moments = optimizer.init(eqx.filter(net, eqx.is_array))

    def endless():
        while True:
            yield from batches

    with ocp.CheckpointManager(Path(args.folder).absolute()) as manager:
        begin = manager.latest_step() or 0
        if begin:
            kept = ocp.args.Composite(
                state=ocp.args.StandardRestore((net, moments)), feed=ocp.args.JsonRestore()
            )
            saved = manager.restore(begin, args=kept)
            net, moments = saved.state
            feed.restore(saved.feed)
            print(f"resumed at step {begin}: epoch {saved.feed['epoch']} step {saved.feed['step']}")
        for number, (images, labels) in zip(range(begin, steps), endless(), strict=False):
            net, moments = train_step(net, moments, images, labels)
            if (number + 1) % 20 == 0:
                kept = ocp.args.Composite(
                    state=ocp.args.StandardSave((net, moments)),
                    feed=ocp.args.JsonSave(feed.state()),
                )
                manager.save(number + 1, args=kept)
    return net, feed


train(args.stop_at)
net, feed = train(args.steps)
held_out = ff.Feed(made.pictures(1000, seed=1), values, batch=96, shuffle=False, tail="pad")
right = sum(correct(net, *batch) for batch in held_out.to_jax())
print(f"accuracy {right / 1000:.2f}, chance 0.10")
print(feed.stats())
