"""The interval algebra against an oracle that cannot be wrong: one bit per nanosecond."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fastfeed.profiler.model.intervals import (
    clip,
    complement,
    empty,
    intersect,
    measure,
    overlap,
    spans,
    subtract,
    union,
)

WORLD = 48  # ns; small, so that touching, nested and equal spans are the rule
EPOCH = 1_687_000_000_123_456_789  # float64 would be wrong by 128 ns here

ends = st.integers(-4, WORLD + 4)
anything = st.lists(st.tuples(ends, ends), max_size=12).map(
    lambda rows: np.array(rows, np.int64).reshape(-1, 2)
)
sets = anything.map(union)


def bits(a: np.ndarray) -> np.ndarray:
    """Which nanoseconds, from -4 on."""
    held = np.zeros(WORLD + 8, bool)
    for start, end in a:
        held[max(start + 4, 0) : max(end + 4, 0)] = True
    return held


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype == np.int64 and a.shape == b.shape and bool((a == b).all())


def is_set(a: np.ndarray) -> bool:
    """Sorted, disjoint, nothing empty."""
    return (
        a.dtype == np.int64
        and a.ndim == 2
        and a.shape[1] == 2
        and bool((np.diff(a.ravel()) >= 0).all())
        and bool((a[:, 0] < a[:, 1]).all())
    )


@given(anything, anything)
def test_union(a: np.ndarray, b: np.ndarray) -> None:
    found = union(a, b)
    assert is_set(found)
    assert (np.diff(found.ravel()) > 0).all()  # not even touching
    assert (bits(found) == bits(a) | bits(b)).all()
    assert same(found, union(union(a), union(b)))


@given(sets, sets)
def test_intersect(a: np.ndarray, b: np.ndarray) -> None:
    found = intersect(a, b)
    assert is_set(found)
    assert (bits(found) == bits(a) & bits(b)).all()
    assert same(found, intersect(b, a))


@given(sets, sets)
def test_subtract(a: np.ndarray, b: np.ndarray) -> None:
    found = subtract(a, b)
    assert is_set(found)
    assert (bits(found) == bits(a) & ~bits(b)).all()


@given(sets, ends, ends)
def test_complement_and_clip(a: np.ndarray, start: int, end: int) -> None:
    window = bits(np.array([[start, end]]))
    left, kept = complement(a, start, end), clip(a, start, end)
    assert is_set(left)
    assert is_set(kept)
    assert (bits(left) == window & ~bits(a)).all()
    assert (bits(kept) == window & bits(a)).all()
    assert measure(left) + measure(kept) == max(end - start, 0)


@given(sets)
def test_measure(a: np.ndarray) -> None:
    assert measure(a) == bits(a).sum()


@given(anything, sets)
def test_overlap(a: np.ndarray, b: np.ndarray) -> None:
    """Spans of the first may be anything, also backwards: those hold nothing."""
    found = overlap(a, b)
    assert found.dtype == np.int64
    assert found.tolist() == [(bits(a[[row]]) & bits(b)).sum() for row in range(len(a))]


@given(sets, sets)
def test_partition_sums(a: np.ndarray, b: np.ndarray) -> None:
    """What two sets share, what each has alone: together, the union."""
    both, only_a, only_b = intersect(a, b), subtract(a, b), subtract(b, a)
    assert measure(both) + measure(only_a) + measure(only_b) == measure(union(a, b))
    assert same(union(both, only_a, only_b), union(a, b))
    assert overlap(a, b).sum() == measure(both)


@given(sets, sets, sets, sets)
def test_budget_sums_to_its_window(
    compute: np.ndarray, comm: np.ndarray, h2d: np.ndarray, other: np.ndarray
) -> None:
    """The split of a window as the profiler makes it, in any order of priority."""
    parts, taken = [], empty()
    for one in (compute, comm, h2d, other):
        parts.append(clip(subtract(one, taken), 0, WORLD))
        taken = union(taken, one)
    parts.append(complement(taken, 0, WORLD))
    assert sum(map(measure, parts)) == WORLD
    assert np.sum([bits(part) for part in parts], axis=0)[4:-4].tolist() == [1] * WORLD


@given(sets, st.lists(ends, max_size=5))
def test_a_window_that_is_split_holds_as_much(a: np.ndarray, cuts: list[int]) -> None:
    edges = np.unique([0, WORLD, *(cut for cut in cuts if 0 < cut < WORLD)])
    parts = [clip(a, int(start), int(end)) for start, end in pairwise(edges)]
    assert sum(map(measure, parts)) == measure(clip(a, 0, WORLD))
    assert same(union(*parts), clip(a, 0, WORLD))
    assert overlap(spans(edges[:-1], edges[1:]), a).tolist() == [measure(part) for part in parts]


@given(anything, st.randoms(use_true_random=False))
def test_order_does_not_matter(a: np.ndarray, draw: Random) -> None:
    rows = list(range(len(a)))
    draw.shuffle(rows)
    assert same(union(a[rows]), union(a))
    halves = len(a) // 2
    assert same(union(a[rows[:halves]], a[rows[halves:]]), union(a))


@given(sets, sets, anything, st.sampled_from([EPOCH, -EPOCH, 1]))
def test_time_shift_does_not_matter(
    a: np.ndarray, b: np.ndarray, loose: np.ndarray, shift: int
) -> None:
    """Also to the time since 1970, in nanoseconds."""
    assert same(union(loose + shift), union(loose) + shift)
    assert same(intersect(a + shift, b + shift), intersect(a, b) + shift)
    assert same(subtract(a + shift, b + shift), subtract(a, b) + shift)
    assert same(complement(a + shift, shift, WORLD + shift), complement(a, 0, WORLD) + shift)
    assert same(clip(a + shift, 3 + shift, 40 + shift), clip(a, 3, 40) + shift)
    assert same(overlap(loose + shift, b + shift), overlap(loose, b))
    assert measure(a + shift) == measure(a)


@given(anything, anything)
def test_more_work_never_leaves_more_idle(ops: np.ndarray, more: np.ndarray) -> None:
    assert measure(complement(union(ops, more), 0, WORLD)) <= measure(
        complement(union(ops), 0, WORLD)
    )


@given(sets, sets)
def test_nothing_is_changed_in_place(a: np.ndarray, b: np.ndarray) -> None:
    before = a.copy(), b.copy()
    for call in (union, intersect, subtract):
        made = call(a, b)
        if len(made):
            made += 1
        assert same(a, before[0]), call.__name__
        assert same(b, before[1]), call.__name__
    for call in (clip, complement):
        made = call(a, -4, WORLD)
        if len(made):
            made += 1
        assert same(a, before[0]), call.__name__


@given(sets)
def test_gaps_are_between(a: np.ndarray) -> None:
    """A set of n spans leaves n - 1 gaps between its first and its last."""
    assume(len(a))
    assert len(complement(a, int(a[0, 0]), int(a[-1, 1]))) == len(a) - 1


def test_no_span() -> None:
    none = empty()
    one = np.array([[1, 5]])
    assert none.shape == (0, 2)
    for found in (
        union(),
        union(none),
        intersect(none, one),
        intersect(one, none),
        subtract(none, one),
    ):
        assert same(found, none)
    assert same(complement(none, 2, 2), none)
    assert same(subtract(one, none), one)
    assert same(spans(np.array([1]), np.array([5])), one)
    assert same(spans(np.array([]), np.array([])), none)
    assert measure(none) == 0
    assert overlap(one, none).tolist() == [0]
    assert overlap(none, one).shape == (0,)


@pytest.mark.parametrize("count", [10_000])
def test_many(count: int) -> None:
    draws = np.random.default_rng(0)
    start = draws.integers(0, 10_000_000, (2, count)) + EPOCH
    a, b = (union(spans(row, row + draws.integers(0, 900, count))) for row in start)
    assert measure(a) + measure(b) - measure(intersect(a, b)) == measure(union(a, b))
    assert measure(subtract(a, b)) + overlap(b, a).sum() == measure(a)
