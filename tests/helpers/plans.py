"""What the tests of plans and of orders share."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fastfeed.distributed.world import World
from fastfeed.sampling import (
    Balanced,
    Blocks,
    Buckets,
    ClassBatches,
    Curriculum,
    CustomOrder,
    MixtureOrder,
    MixturePart,
    Repeated,
    SampleRefs,
    Weighted,
    resolve_order,
)
from fastfeed.sampling.plan import Plan

SIZES = (1, 2, 3, 7, 8, 64, 256)


class Rows:
    """What an order asks of a source. Says only what it was given."""

    def __init__(
        self, samples: int, labels: Any = None, bounds: Any = None, weights: Any = None
    ) -> None:
        self.samples = samples
        if labels is not None:
            self.label = np.asarray(labels).__getitem__
        if bounds is not None:
            self.bounds = np.asarray(bounds)
        if weights is not None:
            self.weights = np.asarray(weights).__getitem__

    def __len__(self) -> int:
        return self.samples

    def uri(self, i: int) -> str:
        return f"photos/{i}.jpg"


@st.composite
def blocks(draw: Any, samples: int) -> Blocks:
    """Of one size, or over shards of any sizes, some of them empty."""
    block, window, lanes = (
        draw(st.integers(1, 40)),
        draw(st.integers(1, 8)),
        draw(st.sampled_from([1, 2, 5, 64, 300])),
    )
    if draw(st.booleans()):
        return Blocks(block, window, lanes)
    cuts = draw(st.lists(st.integers(0, samples), max_size=12))
    return Blocks(None, window, lanes).bind(Rows(samples, bounds=[0, *sorted(cuts), samples]))


def once(samples: int) -> st.SearchStrategy[Any]:
    """Orders in which each sample comes once."""
    return st.one_of(st.sampled_from(["full", "none"]), blocks(samples))


@st.composite
def balanced(draw: Any, samples: int) -> Balanced:
    classes, seed = draw(st.integers(1, 30)), draw(st.integers(0, 1000))
    # some classes larger, some labels unused
    labels = np.random.default_rng(seed).integers(0, classes, samples) ** 2
    return Balanced(draw(st.none() | st.integers(1, 700))).bind(Rows(samples, labels=labels))


@st.composite
def class_batches(draw: Any, samples: int) -> ClassBatches:
    per_class = draw(st.integers(1, min(4, samples)))
    count = draw(st.integers(1, min(30, samples // per_class)))
    classes = draw(st.integers(1, min(5, count)))
    numbers = np.random.default_rng(draw(st.integers(0, 1000)))
    # as many of each as there must be, and some classes larger
    rest = (numbers.random(samples - count * per_class) ** 2 * count).astype(int)
    labels = numbers.permutation([*np.repeat(np.arange(count), per_class), *rest]) ** 2
    length = draw(st.none() | st.integers(1, 40))
    order = ClassBatches(classes, per_class, length and length * classes * per_class)
    return order.bind(Rows(samples, labels=labels))


@st.composite
def weights(draw: Any, samples: int) -> np.ndarray:
    numbers = np.random.default_rng(draw(st.integers(0, 1000)))
    some = numbers.integers(0, 5, samples) if draw(st.booleans()) else numbers.random(samples) ** 3
    some[numbers.integers(samples)] = 1
    return some


def weighted(samples: int) -> st.SearchStrategy[Weighted]:
    return st.builds(Weighted, weights(samples), st.none() | st.integers(1, 700))


@st.composite
def mixed(draw: Any, samples: int) -> MixtureOrder:
    edges = [0, *sorted(draw(st.sets(st.integers(1, samples), max_size=4))), samples]
    spans = [(first, last) for first, last in pairwise(edges) if first < last]
    parts = [
        MixturePart(
            first,
            last - first,
            draw(st.sampled_from([1, 2, 0.7, 0.01, 1 / 3])),
            draw(once(last - first)),
        )
        for first, last in spans
    ]
    return MixtureOrder(tuple(parts), draw(st.none() | st.integers(1, 700)))


def orders(samples: int) -> st.SearchStrategy[Any]:
    """All there are."""
    length = st.none() | st.integers(1, samples)
    repeated = st.builds(Repeated, st.integers(1, 4), st.booleans(), length)
    return st.one_of(
        once(samples),
        balanced(samples),
        buckets(samples),
        class_batches(samples),
        curriculum(samples),
        custom(samples),
        weighted(samples),
        repeated,
        mixed(samples),
    )


@st.composite
def buckets(draw: Any, samples: int) -> Buckets:
    rng, batch = np.random.default_rng(draw(st.integers(0, 1000))), draw(st.integers(1, 8))
    values = rng.integers(0, draw(st.integers(1, 9)), samples) ** 2
    counts = np.unique(values, return_counts=True)[1]
    leftovers = "drop" if counts.min() >= batch and draw(st.booleans()) else "fill"
    if draw(st.booleans()):
        return Buckets(values, batch, leftovers)
    multiple = draw(st.sampled_from([m for m in (1, 2, 3) if batch % m == 0]))
    known = np.unique(values).tolist()
    most = (
        batch // multiple
    )  # times as many pixels as the smallest size: at least `multiple` images
    pixels = draw(st.lists(st.integers(1, most), min_size=len(known), max_size=len(known)))
    pixels[0] = 1
    sizes = {value: (1, wide) for value, wide in zip(known, pixels, strict=True)}
    return Buckets(values, batch, leftovers, sizes, max_pixels=batch, multiple=multiple)


@st.composite
def curriculum(draw: Any, samples: int) -> Curriculum:
    values = np.random.default_rng(draw(st.integers(0, 1000))).integers(0, 50, samples)
    return Curriculum(values, draw(st.sampled_from([0.01, 0.3, 1])), draw(st.integers(1, 5)))


def rotated(epoch: int, positions: np.ndarray) -> np.ndarray:
    return np.roll(positions, epoch % 7)


def halved(epoch: int, positions: np.ndarray) -> np.ndarray:
    return (positions + epoch) // 2 % ((len(positions) + 1) // 2)


def custom(samples: int) -> st.SearchStrategy[CustomOrder]:
    length = st.none() | st.integers(1, samples)
    resampled = st.builds(CustomOrder, st.just(halved), st.just(True), length)
    return st.just(CustomOrder(rotated)) | resampled


def run_of(order: Any) -> int:
    """Positions that a global batch must hold together."""
    return getattr(order, "run", 1)


def least_of(plan: Plan) -> int:
    """The fewest samples of a step over all ranks, without padding."""
    return min(plan.counts or (plan.global_batch,))


def ranks(plan: Plan, size: int) -> list[Plan]:
    return [dataclasses.replace(plan, world=World(rank, size)) for rank in range(size)]


def epoch_of(plans: list[Plan], epoch: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Global batches with their weights: what the ranks read, put side by side.

    Keys, where samples come again.
    """
    return [
        (
            np.concatenate([p.visits(epoch, s).keys for p in plans]),
            np.concatenate([p.weights(s, epoch) for p in plans]),
        )
        for s in range(plans[0].steps)
    ]


def positions_of(plan: Plan, epoch: int = 0) -> np.ndarray:
    """Positions of an epoch that hold samples, over all ranks."""
    if not plan.counts:
        return np.arange(min(plan.length, plan.steps * plan.global_batch))
    firsts = range(0, plan.steps * plan.global_batch, plan.global_batch)
    counts = [plan.count(step, epoch) for step in range(plan.steps)]
    return np.concatenate(
        [np.arange(first, first + n) for first, n in zip(firsts, counts, strict=True)]
    )


def served(plan: Plan, epoch: int = 0) -> SampleRefs:
    """All of an epoch that is not padding, over all ranks."""
    return plan.at(epoch, positions_of(plan, epoch))


@st.composite
def plans(draw: Any, kinds: Any = orders, most: int = 600) -> Plan:
    """For one rank, over at most so many samples."""
    samples, seed = draw(st.integers(1, most)), draw(st.integers(0, 2**64 - 1))
    shuffle = draw(kinds(samples))
    runs = resolve_order(shuffle).positions(samples) // run_of(shuffle)
    tail = draw(st.sampled_from(["drop", "pad"]))
    total = run_of(shuffle) * draw(st.integers(1, runs if tail == "drop" else 2 * runs))
    if getattr(shuffle, "counts", None):
        total = run_of(shuffle)
    return Plan(samples, total, seed, shuffle=shuffle, tail=tail)


@st.composite
def worlds(draw: Any, kinds: Any = orders) -> list[Plan]:
    """The plans of all ranks, made from a batch per rank or a global batch."""
    size, tail = draw(st.sampled_from(SIZES)), draw(st.sampled_from(["drop", "pad"]))
    how: dict[str, int] = (
        {"batch": draw(st.integers(1, 20))}
        if draw(st.booleans())
        else {"global_batch": draw(st.integers(size, 20 * size))}
    )
    total = how.get("global_batch", how.get("batch", 0) * size)
    samples = draw(st.integers(total if tail == "drop" else 1, max(600, 2 * total)))
    seed, shuffle = draw(st.integers(0, 2**64 - 1)), draw(kinds(samples))
    if counts := getattr(shuffle, "counts", None):
        how = {"global_batch": run_of(shuffle)}
        total, size = run_of(shuffle), min(size, *counts)
    elif total % run_of(shuffle):
        total = -(-total // run_of(shuffle)) * run_of(shuffle)
        how = {"global_batch": total}
    if resolve_order(shuffle).positions(samples) < total:
        tail = "pad"
    return [
        Plan.make(samples, **how, seed=seed, world=World(rank, size), shuffle=shuffle, tail=tail)
        for rank in range(size)
    ]


def limit(freedom: int) -> float:
    """Chi-square at p 1e-4 (Wilson and Hilferty)."""
    return freedom * (1 - 2 / (9 * freedom) + 3.72 * np.sqrt(2 / (9 * freedom))) ** 3
