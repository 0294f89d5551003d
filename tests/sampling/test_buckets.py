"""Buckets: batches of one bucket, every sample once but for leftovers."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from helpers.plans import Rows, buckets, limit, plans, positions_of
from hypothesis import given
from hypothesis import strategies as st

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.sampling import Buckets
from fastfeed.sampling.orders.buckets import nearest_aspects
from fastfeed.sampling.permute import permute
from fastfeed.sampling.plan import Plan

VALUES = np.repeat([3, 1, 2], [7, 4, 9])


def values_of(order: Buckets) -> np.ndarray:
    grouped = order.by.samples
    found = np.empty(len(grouped.ids), np.int64)
    found[grouped.ids] = np.repeat(order.by.values, grouped.sizes)
    return found


@given(plans(buckets), st.integers(0, 5))
def test_runs_are_of_one_bucket_and_leftovers_as_the_rule_says(plan, epoch):
    order = plan.shuffle
    values = values_of(order)
    positions = positions_of(plan, epoch) if plan.counts else np.arange(plan.length)
    ids, occurrences = plan.at(epoch, positions)
    runs = np.split(ids, np.flatnonzero(np.diff(positions // order.batch)) + 1)
    assert all((values[run] == values[run[0]]).all() for run in runs)
    times = np.bincount(ids, minlength=plan.samples)
    sizes = dict(order.sizes or ())
    for value, size in zip(order.by.values.tolist(), order.by.samples.sizes, strict=True):
        batch = order.batch
        if sizes:  # height 1
            batch = order.max_pixels // sizes[value][1] // order.multiple * order.multiple
        own, rest = times[values == value], size % batch
        if order.leftovers == "drop":
            assert sorted(own) == [0] * rest + [1] * (size - rest)
        else:
            assert own.sum() == -(-size // batch) * batch
            assert own.min() >= max(1, own.max() - 1)
        for run in runs:
            if values[run[0]] == value:
                assert len(run) == batch and len(np.unique(run)) == min(size, batch)
    assert occurrences.max() == times.max() - 1


def test_leftovers_are_others_in_every_epoch():
    """Chi-square over the samples of the three buckets, of 7, 4 and 9 samples."""
    plan = Plan(20, 3, shuffle=Buckets(VALUES, 3))
    times = np.zeros(20)
    for epoch in range(300):
        times += np.bincount(plan.at(epoch, np.arange(plan.length)).ids, minlength=20)
    for own, share in ((times[:7], 6 / 7), (times[7:11], 3 / 4), (times[11:], 1)):
        expected = 300 * share
        assert ((own - expected) ** 2 / expected).sum() < limit(len(own))


def test_buckets_come_in_any_order():
    """Chi-square over the place of a run in the epoch, for each bucket."""
    plan = Plan(20, 2, shuffle=Buckets(VALUES % 3, 2))
    steps = plan.length // 2
    counts = np.zeros((3, steps))
    for epoch in range(400):
        found = (VALUES % 3)[plan.at(epoch, np.arange(0, plan.length, 2)).ids]
        counts[found, np.arange(steps)] += 1
    expected = counts.sum(axis=1, keepdims=True) / steps
    assert ((counts - expected) ** 2 / expected).sum() < limit(counts.size)


def test_golden_order_under_a_budget():
    assert BUDGET.counts == {1: 4, 2: 3, 4: 2}
    plan = Plan(20, 4, seed=7, shuffle=BUDGET)
    assert [plan.ids(3, step).tolist() for step in range(plan.steps)] == GOLDEN_BUDGET


def test_steps_of_a_budget_are_in_any_order():
    """Chi-square over the samples, and over the number of samples by step."""
    plan = Plan(20, 4, shuffle=BUDGET)
    times, counts = np.zeros(20), np.zeros((5, plan.steps))
    for epoch in range(400):
        for step in range(plan.steps):
            ids = plan.ids(epoch, step)
            times[ids] += 1
            counts[len(ids), step] += 1
    for own, share in ((times[:7], 6 / 7), (times[7:11], 1), (times[11:], 8 / 9)):
        expected = 400 * share
        assert ((own - expected) ** 2 / expected).sum() < limit(len(own))
    expected = np.array([[400 * plan.counts[n] / plan.steps] for n in (1, 2, 4)])
    assert ((counts[[1, 2, 4]] - expected) ** 2 / expected).sum() < limit(3 * plan.steps)


def test_a_late_step_of_a_budget_costs_as_much_as_the_first(monkeypatch):
    """Only its own positions are looked up: no steps before it are counted."""
    order = Buckets(np.arange(6000) % 2, 2, "fill", {0: 1, 1: (1, 2)}, max_pixels=2)
    plan, asked = Plan(6000, 2, shuffle=order), []

    def counted(positions, *rest):
        asked.append(np.size(positions))
        return permute(positions, *rest)

    monkeypatch.setattr("fastfeed.sampling.orders.buckets.permute", counted)
    for step in (0, plan.steps - 1):
        plan.visits(7, step)
    assert plan.steps == 4500 and asked[: len(asked) // 2] == asked[len(asked) // 2 :]
    assert max(asked) <= 2


def test_samples_of_a_step_need_the_epoch():
    with pytest.raises(ConfigError, match="epoch must be a number"):
        Plan(20, 4, shuffle=BUDGET).count(0)
    for epoch in (-1, "1"):
        with pytest.raises(ConfigError, match=f"epoch must be in .*, got {epoch!r}"):
            Plan(20, 4, shuffle=BUDGET).count(0, epoch)


def test_all_ranks_have_the_same_bucket_in_a_step():
    order = Buckets(np.arange(96) % 4, 12)
    source = ff.Arrays(np.zeros((96, 1, 1, 3), np.uint8), np.arange(96) % 4)
    worlds = [ff.World(rank, 3) for rank in range(3)]
    feeds = [ff.Feed(source, [], batch=4, world=world, shuffle=order) for world in worlds]
    for batches in zip(*feeds, strict=True):
        assert len({label for batch in batches for label in batch.labels.tolist()}) == 1


def test_a_column_of_texts_is_read_from_the_source():
    names = ["short", "long", "long", "short"]
    source = ff.Files([f"{i}.jpg" for i in range(4)], columns={"length": names})
    by_name, by_value = Buckets("length", 2).bind(source), Buckets(names, 2)
    assert by_name == by_value and repr(by_name) == repr(by_value)
    assert by_name.by.values.tolist() == ["long", "short"]
    assert by_name != Buckets([*names[::-1], "long"], 2)


def test_golden_order():
    """Never changes: saved states name positions in it."""
    for leftovers, golden in (("drop", GOLDEN), ("fill", GOLDEN_FILLED)):
        plan = Plan(20, 4, seed=7, shuffle=Buckets(VALUES, 4, leftovers))
        assert plan.at(3, np.arange(plan.length)).ids.tolist() == golden


BUDGET = Buckets(VALUES, 4, sizes={1: 2, 2: 1, 3: (1, 2)}, max_pixels=4)
GOLDEN_BUDGET = [[9], [8], [5, 2], [7], [1, 3], [6, 4], [10], [12, 13, 15, 16], [19, 17, 18, 11]]
GOLDEN = [8, 9, 10, 7, 1, 3, 5, 2, 19, 17, 18, 11, 12, 13, 15, 16]
GOLDEN_FILLED = [
    8,
    9,
    10,
    7,
    19,
    17,
    18,
    11,
    14,
    19,
    17,
    18,
    12,
    13,
    15,
    16,
    1,
    3,
    5,
    2,
    6,
    4,
    0,
    1,
]


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda: Buckets("x", 0), "Buckets.batch must be an integer >= 1, got 0"),
        (
            lambda: Buckets("x", 2, "keep"),
            'Buckets.leftovers must be "drop" or "fill", got \'keep\'',
        ),
        (
            lambda: Buckets([0.5, 1.5], 1),
            "Buckets.by must be the name of a column or one value per sample, integers or texts, got"
            " float64[2]; group other numbers by np.digitize(numbers, bins)",
        ),
        (
            lambda: Buckets("x", 2).bind(Rows(4)),
            "Buckets.by must be a column of the source, which has none, got 'x'; columns of shards"
            " are read with each sample: pass one value per sample instead",
        ),
        (
            lambda: Plan(4, 2, shuffle=Buckets("x", 2)),
            "Buckets(by='x') takes a column of a source and is not bound to one; create a Feed with"
            " it, or call its bind(source)",
        ),
        (
            lambda: Plan(4, 2, shuffle=Buckets([1, 2], 1)),
            "Buckets.by must be one value per sample: 4, got 2",
        ),
        (
            lambda: Buckets("x", 8, max_pixels=64),
            "Buckets.max_pixels needs the sizes of images; pass sizes={value: size}, or use"
            " Buckets.by_aspect(sizes, batch)",
        ),
        (
            lambda: Buckets("x", 8, multiple=4),
            "Buckets.multiple=4 is for numbers of images that follow from max_pixels; pass"
            " max_pixels, or leave multiple out",
        ),
        (
            lambda: Buckets.by_aspect([4, (8, 6)], 8, max_pixels=100, multiple=4),
            "Buckets.max_pixels must be at least 192, 4 x 8 x 6, got 100; raise it, or leave the"
            " size (8, 6) out",
        ),
        (
            lambda: Buckets.by_aspect([4, (8, 6)], 16, max_pixels=200, multiple=4),
            "Buckets.batch must be the most images that a batch has, got 16, and max_pixels=200"
            " allows 12 of the smallest size; pass batch=12",
        ),
        (
            lambda: Plan(20, 8, shuffle=BUDGET),
            f"{BUDGET!r} needs a global batch of 4, got 8 samples per step; pass global_batch=4",
        ),
        (
            lambda: Plan(20, 4, shuffle=BUDGET, world=ff.World(0, 2)),
            f"{BUDGET!r} has batches of 1 samples, fewer than the 2 ranks; raise max_pixels, or use"
            " fewer ranks",
        ),
        (
            lambda: Plan(20, 8, shuffle=Buckets(VALUES, 8)),
            "Buckets(batch=8) needs as many samples in every bucket, got 4 with the value 1 and 1"
            ' more such buckets; pass leftovers="fill", a smaller batch, or fewer values',
        ),
    ],
)
def test_refuses(do, text):
    with pytest.raises(ConfigError) as error:
        do()
    assert str(error.value) == text


def test_a_global_batch_of_parts_of_runs_is_refused():
    with pytest.raises(ConfigError, match=r"needs a global batch that is a multiple of 4, got 6"):
        Plan(20, 6, shuffle=Buckets(VALUES, 4))


def nearest(image: tuple[int, int], sizes: list[tuple[int, int]]) -> int:
    """The slow definition: nearest ratio, then the largest that does not enlarge, then any."""
    height, width = image
    away = [abs(math.log(width / height) - math.log(w / h)) for h, w in sizes]
    best = [k for k in range(len(sizes)) if away[k] < min(away) + 1e-9]
    inside = [k for k in best if sizes[k][0] <= height and sizes[k][1] <= width]
    area = [h * w for h, w in sizes]
    return max(inside, key=area.__getitem__) if inside else min(best, key=area.__getitem__)


SIDES = st.tuples(st.integers(1, 2000), st.integers(1, 2000))


@given(
    st.lists(SIDES, min_size=1, max_size=40), st.lists(SIDES, min_size=1, max_size=9, unique=True)
)
def test_images_go_to_the_nearest_aspect_ratio(images, sizes):
    sizes += [(2 * h, 2 * w) for h, w in sizes if (2 * h, 2 * w) not in sizes]
    found = nearest_aspects(np.array(images), sizes)
    assert found.tolist() == [nearest(image, sizes) for image in images]


def test_images_of_unknown_size_are_in_the_largest_bucket():
    images = np.array([(4, 8), (0, 0), (8, 4), (4, 9)])
    order = Buckets.by_aspect([(2, 4), (4, 2)], batch=1, images=images)
    assert values_of(order).tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Buckets([1, 2], 1, sizes={1: 4}), "no size for 2, which `by` holds"),
        (lambda: Buckets([1, 1], 1, sizes={1: 4, 3: 4}), "a size for 3, which no sample is of"),
        (lambda: Buckets([1], 1, sizes={1: 0}), "sides or (height, width) in pixels, got 0"),
        (lambda: Buckets([1], 1, sizes={}), "sizes by value"),
        (lambda: Buckets.by_aspect([], 1), "a list of sizes"),
        (lambda: Buckets.by_aspect([4, (4, 4)], 1), "sizes must differ, got 4, (4, 4)"),
        (
            lambda: Buckets.by_aspect([4, (4, 8), (2, 9)], 1, images=[(5, 5)]),
            "nearest to the aspect ratio of (4, 8), (2, 9); leave these out of sizes",
        ),
        (lambda: Buckets.by_aspect([4], 1, images=[5, 5]), "got int64[2]"),
        (lambda: Buckets.by_aspect([4], 1, images=["height"]), "two names of columns"),
        (
            lambda: Plan(3, 2, shuffle=Buckets([1, 1, 2], 2, sizes={1: 4, 2: (4, 8)})),
            "got 1 with the size (4, 8); pass leftovers",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(make, text):
    with pytest.raises(ConfigError, match=re.escape(text)):
        make()
