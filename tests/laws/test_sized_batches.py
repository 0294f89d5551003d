"""Batches of several sizes: each equals that of a feed of its size, at any world size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers.plans import limit
from helpers.products import in_turn

import fastfeed as ff

SAMPLES = 48
BATCH = 8
PIXELS = np.random.default_rng(0).integers(0, 256, (SAMPLES, 20, 26, 3), np.uint8)
LABELS = np.arange(SAMPLES) % 3
SOURCE = ff.Arrays(PIXELS, LABELS)
BUCKETS = ff.Buckets(LABELS, BATCH, sizes={0: 8, 1: (6, 10), 2: (12, 5)})

BUDGET = ff.Buckets(LABELS, 16, sizes={0: 8, 1: (16, 8), 2: 16}, max_pixels=1024, multiple=2)
CHOICES: dict[str, tuple[Any, Any]] = {  # sizes and order
    "buckets": (ff.BucketSize(), BUCKETS),
    "random": (ff.RandomSizes([6, (8, 10), 12]), "full"),
    "schedule": (ff.BySchedule({0: 6, 1: (8, 10), 3: 12}), "full"),
}
RESUMED = CHOICES | {"budget": (ff.BucketSize(), BUDGET)}
OPS: dict[str, Callable[[Any], list[Any]]] = {
    "crop": lambda size: [ff.RandomResizedCrop(size), ff.RandomFlip(), ff.Brightness(0.4)],
    "cover": lambda size: [ff.Resize(size, fit="cover"), ff.RandomCrop(size), ff.ToFloat()],
    "two": lambda size: [ff.Resize(16), ff.CenterCrop(size), ff.Rotate(10), ff.ToLayout("CHW")],
    "mixed": lambda size: [ff.RandomResizedCrop(size), ff.MixUp(0.4), ff.OneHot(3)],
    "views": lambda size: [ff.MultiCrop((ff.View(size, 2), ff.View(4)))],
    "nested": lambda size: [ff.OneOf([ff.RandomResizedCrop(size), ff.CenterCrop(size)])],
}


def arrays(batch: Any) -> list[np.ndarray]:
    return [*(batch.views or (batch.images,)), batch.labels, batch.ids]


def same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(arrays(a), arrays(b), strict=True))


def size_of(ops: str, batch: Any) -> tuple[int, int]:
    shape = arrays(batch)[0].shape
    return shape[-2:] if ops == "two" else shape[-3:-1]


@pytest.mark.parametrize(("choice", "ops"), in_turn(CHOICES, OPS))
def test_batches_equal_those_of_a_feed_of_their_size(choice, ops):
    sizes, order = CHOICES[choice]
    feed = ff.Feed(SOURCE, OPS[ops](sizes), batch=BATCH, shuffle=order, seed=3)
    plain: dict[tuple[int, int], ff.Feed] = {}
    for batch in feed.batches(epochs=4):
        size = size_of(ops, batch)
        if size not in plain:
            plain[size] = ff.Feed(SOURCE, OPS[ops](size), batch=BATCH, shuffle=order, seed=3)
        expected = next(plain[size].batches(batch.epoch, batch.step))
        assert same(batch, expected)
    assert len(plain) == 3


@pytest.mark.parametrize("ops", [name for name in OPS if name != "mixed"])
def test_images_of_a_budget_equal_those_of_a_feed_of_their_size(ops):
    feed = ff.Feed(SOURCE, OPS[ops](ff.BucketSize()), batch=16, shuffle=BUDGET, seed=3)
    counts = {(8, 8): 16, (16, 8): 8, (16, 16): 4}
    whole: dict[Any, list[np.ndarray]] = {}
    seen: list[tuple[int, int]] = []
    for batch in feed.batches(epochs=2):
        size = size_of(ops, batch)
        seen += [(batch.epoch, id) for id in batch.ids.tolist()]
        assert len(batch.ids) == len(batch.weights) == counts[size]
        assert {LABELS[id] for id in batch.ids} == {list(counts).index(size)}
        if (size, batch.epoch) not in whole:
            plain = ff.Feed(SOURCE, OPS[ops](size), batch=SAMPLES, shuffle=False, seed=3)
            whole[size, batch.epoch] = arrays(next(plain.batches(batch.epoch)))
        for array, expected in zip(arrays(batch), whole[size, batch.epoch], strict=True):
            assert np.array_equal(array, expected[batch.ids])
    assert sorted(seen) == [(epoch, id) for epoch in (0, 1) for id in range(SAMPLES)]


def global_batches(choice: str, world: int, state: Any) -> Iterator[list[np.ndarray]]:
    """The rest of an epoch over all ranks, from a state."""
    sizes, order = RESUMED[choice]
    feeds = [
        ff.Feed(
            SOURCE,
            OPS["mixed"](sizes),
            global_batch=getattr(order, "run", BATCH),
            shuffle=order,
            world=ff.World(rank, world),
        )
        for rank in range(world)
    ]
    for feed in feeds:
        feed.restore(state)
    for batches in zip(*feeds, strict=True):
        yield [np.concatenate(parts) for parts in zip(*map(arrays, batches), strict=True)]


@pytest.mark.parametrize("choice", RESUMED)
def test_a_run_resumes_at_other_world_sizes(choice):
    sizes, order = RESUMED[choice]
    batch = getattr(order, "run", BATCH)
    feed = ff.Feed(SOURCE, OPS["mixed"](sizes), batch=batch, shuffle=order)
    epoch = feed.batches(epoch=1, start=2)
    expected = [[array.copy() for array in arrays(batch)] for batch in epoch]
    for world in (2, 3, 4):
        found = list(global_batches(choice, world, feed.state((1, 2))))
        assert len(found) == len(expected) > 1
        for a, b in zip(found, expected, strict=True):
            assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_random_sizes_are_equally_likely_and_independent():
    """Chi-square over the sizes of two consecutive steps."""
    sizes = ff.RandomSizes([1, 2, 3, 4])
    source = ff.Arrays(np.zeros((60, 4, 4, 3), np.uint8))
    feed = ff.Feed(source, [ff.Resize((4, 4)), ff.CenterCrop(sizes)], batch=2, seed=5)
    found = [batch.images.shape[1] - 1 for batch in feed.batches(epochs=16)]
    pairs = np.zeros((4, 4))
    np.add.at(pairs, (found[::2], found[1::2]), 1)
    expected = len(found) / 32
    assert ((pairs - expected) ** 2 / expected).sum() < limit(pairs.size)
