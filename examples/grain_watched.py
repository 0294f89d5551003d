"""A Grain pipeline stays as it is: `ff.watched` says how long the loop waits for it, to the log and
`fastfeed watch`.

python examples/grain_watched.py                                    # needs Grain and JAX: pip
install grain jax
"""

import argparse
import functools

import grain
import jax
import jax.numpy as jnp
import made
import numpy as np
from PIL import Image

import fastfeed as ff

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="a folder with train/<class>/ and val/<class>/")
parser.add_argument("--epochs", type=int, default=30)
args = parser.parse_args()
root = made.photographs(args.data)
classes = sorted(path.name for path in (root / "train").iterdir())


def opened(path):
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB").resize((64, 64), Image.Resampling.BILINEAR))
    except (
        OSError,
        Image.DecompressionBombError,
    ):  # six of the made photographs are broken on purpose
        return None
    return pixels, classes.index(path.parent.name)


class Flip(grain.transforms.RandomMap):
    def random_map(self, sample, rng):
        image, label = sample
        return (image[:, ::-1] if rng.random() < 0.5 else image), label


def read(data):
    return data.map(opened).filter(lambda sample: sample is not None)


def photographs(split):
    return grain.MapDataset.source(sorted((root / split).rglob("*.jpg"))).seed(0)


options = grain.ReadOptions(num_threads=2)
train = read(photographs("train").shuffle().repeat(args.epochs)).random_map(Flip())
train = train.to_iter_dataset(options).batch(16, drop_remainder=True)
val = read(photographs("val")).to_iter_dataset(options).batch(16)


def logits(weights, images):
    x = images.astype(jnp.float32) / 127.5 - 1
    for kernel, bias in weights[:-1]:
        x = (
            jax.lax.conv_general_dilated(
                x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            + bias
        )
        x = jax.nn.relu(x)
    return x.max((1, 2)) @ weights[-1][0] + weights[-1][1]


@functools.partial(jax.jit, donate_argnums=(0, 1))
def step(weights, moments, images, labels):
    def loss(weights):
        return -jnp.take_along_axis(
            jax.nn.log_softmax(logits(weights, images)), labels[:, None], 1
        ).mean()

    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, jax.grad(loss)(weights))
    return jax.tree.map(lambda w, m: w - 0.02 * m, weights, moments), moments


shapes = [(5, 5, 3, 32), (3, 3, 32, 64), (3, 3, 64, 96), (96, len(classes))]
keys = jax.random.split(jax.random.key(0), len(shapes))
weights = [
    (jax.random.normal(key, shape) * (2 / np.prod(shape[:-1])) ** 0.5, jnp.zeros(shape[-1]))
    for key, shape in zip(keys, shapes, strict=True)
]
moments = jax.tree.map(jnp.zeros_like, weights)

train = ff.watched(train, name="grain")  # a line that watches Grain's pipeline,
watch = ff.StepWatch(train, every=10)  # and one for the log
for number, (images, labels) in enumerate(train):
    weights, moments = step(weights, moments, images, labels)
    log = watch.step()
    if number % 20 == 19:
        print(
            f"step {number}: waited {log['feed_wait']:.0%} of the time, got {log['feed_rate']:,.0f}"
            " images/s"
        )

right = jax.jit(lambda weights, images, labels: (logits(weights, images).argmax(1) == labels).sum())
counts = [(right(weights, images, labels), len(labels)) for images, labels in val]
correct, seen = (sum(column) for column in zip(*counts, strict=True))
print(f"accuracy {correct / seen:.2f}, chance {1 / len(classes):.2f}")
