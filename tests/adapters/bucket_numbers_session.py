"""Run by test_bucket_numbers.py in a process of its own, once per framework: feeds whose batches
differ in size and number of images, against plain iteration; prints one JSON object.
"""

import itertools
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["KERAS_BACKEND"] = sys.argv[1].partition("-")[2] or "jax"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["FASTFEED_CACHE"] = tempfile.mkdtemp()

import numpy as np
from PIL import Image

import fastfeed as ff

framework = sys.argv[1].partition("-")[0]
SHAPES = [(24, 32)] * 9 + [(32, 24)] * 7 + [(64, 64)] * 6  # height, width
SIZES = [(6, 8), (8, 6), 16]  # at most 8 x 48 pixels: 8, 8 and 1 images
folder = Path(tempfile.mkdtemp())
for k, (height, width) in enumerate(SHAPES):
    (folder / f"{k % 3}").mkdir(exist_ok=True)
    pixels = np.random.default_rng(k).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(folder / f"{k % 3}" / f"{k:02}.png")


def made(**options):
    order = ff.Buckets.by_aspect(SIZES, 8, "fill", max_pixels=8 * 48)
    size = ff.BucketSize()
    ops = [ff.Resize(size, fit="cover"), ff.RandomCrop(size), ff.ToFloat()]
    options = {"global_batch": 8, "seed": 1} | options
    return ff.Feed(ff.ImageFolder(folder), ops, shuffle=order, **options)


def plain(epochs=2):
    return [(b.images.copy(), b.labels.copy()) for b in made().batches(epochs=epochs)]


def same(found, expected):
    return [len(b[0]) for b in found] == [len(b[0]) for b in expected] and all(
        np.array_equal(np.asarray(x), y)
        for a, b in zip(found, expected, strict=True)
        for x, y in zip(a, b, strict=False)
    )


expected, feed = plain(), made()
steps = len(feed)
result = {
    "steps": steps,
    "counts": sorted(len(labels) for _, labels in expected[:steps]),
    "shapes": sorted({images.shape for images, _ in expected}),
}


def loader_of(feed):
    if framework == "torch":
        return feed.to_torch("cpu")
    return feed.to_jax() if framework == "jax" else feed.to_tfdata()


if framework == "keras":
    import keras

    keras.utils.set_random_seed(1)
    inputs = keras.Input((None, None, 3))
    outputs = keras.layers.Dense(3)(keras.layers.GlobalAveragePooling2D()(inputs))
    model = keras.Model(inputs, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, weighted_metrics=["accuracy"])
    ended = []
    model.fit(
        feed.to_keras(),
        epochs=2,
        verbose=0,
        callbacks=[
            keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda step, logs=None: ended.append(step)
            )
        ],
    )
    result["same"] = ended == [*range(steps)] * 2 and feed.stats().images == 2 * feed.plan.length
    evaluated = model.evaluate(made().to_keras(), verbose=0)
    whole = [(model(images), labels) for images, labels in expected[:steps]]
    right = [np.asarray(scores).argmax(1) == labels for scores, labels in whole]
    result["evaluated"] = bool(abs(evaluated[1] - np.concatenate(right).mean()) < 1e-5)
    model.fit(made().to_keras(), steps_per_epoch=3, epochs=2, verbose=0)
else:
    loader = loader_of(feed)
    result["same"] = same([*loader, *loader], expected)
    first = made()
    part = list(itertools.islice(loader_of(first), 4))
    state = first.state()
    again = made()
    again.restore(json.loads(json.dumps(state)))
    result["resumed"] = same([*part, *loader_of(again)], expected[:steps])
if framework == "jax":
    import jax

    sharding = jax.sharding.NamedSharding(
        jax.sharding.Mesh(jax.devices(), ("batch",)), jax.sharding.PartitionSpec("batch")
    )
    try:
        made().to_jax(sharding)
    except ff.errors.ConfigError as error:
        result["refused"] = str(error)
if framework == "torch":
    feed = made()
    loader = feed.to_torch("cpu")
    ids = list(loader.sampler)
    result["sampler"] = len(ids) == len(loader.sampler) == len(loader.dataset) == feed.plan.length
    import torch

    again = torch.utils.data.DataLoader(
        loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn
    )
    result["loaded"] = same(list(again), expected[:steps])
print(json.dumps(result))
