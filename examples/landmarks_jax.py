"""Which landmark is it?

Plain JAX: batches sharded over every device, of this process or of several.

python examples/landmarks_jax.py
NPROC=8 XLA_FLAGS=--xla_force_host_platform_device_count=2 python examples/landmarks_jax.py  # two
                                   devices of one # CPU, and threads enough: a device that waits for
                                   the other holds one
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import made
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with train/<class>/ and val/<class>/")
parser.add_argument("--epochs", type=int, default=14)
parser.add_argument("--size", type=int, default=64, help="height and width, pixels")
parser.add_argument("--bfloat16", action="store_true", help="compute in it; weights stay float32")
args = parser.parse_args()

world = ff.World.detect()
if world.size > 1:
    jax.distributed.initialize(num_processes=world.size, process_id=world.rank)
mesh = Mesh(jax.devices(), ("batch",))
over_devices, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("batch",), ()))

root = made.photographs(args.data)
train = ff.ImageFolder(root / "train")
val = ff.ImageFolder(root / "val", classes=train.classes)
# per device
plan = ff.scaling.plan_batch(
    base_batch=8, base_lr=2e-3, world=mesh.size, rule="sqrt", warmup_epochs=2
)
crops = [ff.RandomResizedCrop(args.size, scale=(0.35, 1)), ff.RandomFlip(), ff.Normalize.imagenet()]
middle = [ff.Resize(args.size * 8 // 7), ff.CenterCrop(args.size), ff.Normalize.imagenet()]
feed = ff.Feed(train, crops, global_batch=plan.global_batch, seed=0)
held_out = ff.Feed(
    val, middle, global_batch=plan.global_batch, shuffle=False, tail="pad", on_bad="mask"
)
batches = feed.to_jax(over_devices)
# how long training waits; `fastfeed watch` shows it from outside
watch = ff.StepWatch(batches, every=5)
if world.main:
    print(plan, batches, sep="\n")


def new_weights(key):
    """Four convolutions and a dense layer."""
    shapes = [
        (3, 3, 3, 32),
        (3, 3, 32, 48),
        (3, 3, 48, 64),
        (3, 3, 64, 96),
        (96, len(train.classes)),
    ]
    keys = jax.random.split(key, len(shapes))
    deviation = [(2 / jnp.prod(jnp.array(shape[:-1]))) ** 0.5 for shape in shapes]
    kernels = [
        jax.random.normal(k, shape) * d for k, shape, d in zip(keys, shapes, deviation, strict=True)
    ]
    return [{"kernel": kernel, "bias": jnp.zeros(kernel.shape[-1])} for kernel in kernels]


def logits(weights, images):
    x = images.astype(jnp.bfloat16 if args.bfloat16 else jnp.float32)
    for layer in weights[:-1]:
        x = jax.lax.conv_general_dilated(
            x,
            layer["kernel"].astype(x.dtype),
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        x = jax.nn.relu(x + layer["bias"].astype(x.dtype))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.max((1, 2)).astype(jnp.float32) @ weights[-1]["kernel"] + weights[-1]["bias"]


@partial(jax.jit, donate_argnums=(0, 1))
def step(weights, moments, images, labels, lr, count):
    """One step of Adam (Kingma and Ba 2014, arXiv 1412.6980)."""

    def loss(weights):
        return -jnp.take_along_axis(
            jax.nn.log_softmax(logits(weights, images)), labels[:, None], 1
        ).mean()

    gradients = jax.grad(loss)(weights)  # the mean over all devices: the batch is one array
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradients)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, moments[1], gradients)
    rate = lr * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    return jax.tree.map(
        lambda w, m, s: w - rate * m / (jnp.sqrt(s) + 1e-8), weights, mean, square
    ), (mean, square)


@jax.jit
def right(weights, images, labels, sample_weights):
    """Correct and seen; padding and bad files weigh nothing."""
    correct = logits(weights, images).argmax(1) == labels
    return jnp.stack([(correct * sample_weights).sum(), sample_weights.sum()])


weights = jax.device_put(new_weights(jax.random.key(0)), everywhere)
moments = jax.tree.map(jnp.zeros_like, (weights, weights))
done = 0
for _ in range(args.epochs):
    for images, labels in batches:
        lr = plan.lr_at(done, len(feed))
        done += 1
        weights, moments = step(weights, moments, images, labels, lr, done)
        watch.step()
if world.main:
    print(watch.values)

correct, seen = sum(right(weights, *batch) for batch in held_out.to_jax(over_devices))
if world.main:
    print(
        f"accuracy {correct / seen:.2f} of {seen:.0f} images, chance {1 / len(train.classes):.2f}"
    )
    print(feed.stats())
