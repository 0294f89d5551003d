"""Who reads what, when: every sample once per epoch, at every world size, in the same global batches."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import SHUFFLES, SIZES, epoch_of, ranks, worlds

from fastfeed.plan import Blocks, Plan, shuffled
from fastfeed.world import World


@given(worlds(), st.integers(0, 2**32 - 1))
def test_each_sample_once_per_epoch(plans, epoch):
    length, total = plans[0].length, plans[0].global_batch
    assert {plan.steps for plan in plans} == {plans[0].steps}
    for plan in plans:
        for step in {0, plan.steps - 1}:
            ids, weights = plan.ids(epoch, step), plan.weights(step)
            assert (ids.shape, ids.dtype) == ((plan.batch,), np.int64)
            assert (weights.shape, weights.dtype) == ((plan.batch,), np.float32)
    batches = epoch_of(plans, epoch)
    ids, weights = (np.concatenate(column) for column in zip(*batches, strict=True))
    assert all(len(batch) == total for batch, _ in batches)
    assert np.all((ids >= 0) & (ids < length))
    real = ids[weights == 1]
    assert len(np.unique(real)) == len(real), "a sample came twice, or to two ranks"
    if plans[0].tail == "pad":
        assert len(real) == length
        assert weights.sum() == length
        assert plans[0].steps == -(-length // total)
    else:
        assert np.all(weights == 1)
        assert length - len(real) == length % total


@given(worlds(), st.sampled_from(SIZES), st.integers(0, 3))
def test_same_global_batches_at_every_world_size(plans, size, epoch):
    if plans[0].global_batch < size:
        size = 1
    elsewhere = epoch_of(ranks(plans[0], size), epoch)
    for (ids, weights), (others, other_weights) in zip(epoch_of(plans, epoch), elsewhere, strict=True):
        np.testing.assert_array_equal(ids, others)
        np.testing.assert_array_equal(weights, other_weights)


@pytest.mark.parametrize(("total", "size"), [(8, 8), (9, 8), (15, 8), (64, 7), (1, 1), (256, 256), (300, 256)])
def test_ranks_share_a_batch_evenly(total, size):
    plans = ranks(Plan(10_000, total), size)
    edges = [plan.bounds for plan in plans]
    assert edges[0][0] == 0 and edges[-1][1] == total
    assert all(a[1] == b[0] for a, b in itertools.pairwise(edges))
    assert {plan.batch for plan in plans} <= {total // size, -(-total // size)}


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1), st.integers(0, 100), SHUFFLES)
def test_order_is_a_bijection(length, seed, epoch, shuffle):
    order = shuffled(np.arange(length), length, seed, epoch, shuffle)
    np.testing.assert_array_equal(np.sort(order), np.arange(length))
    some = np.arange(length)[:: max(1, length // 7)]
    np.testing.assert_array_equal(shuffled(some, length, seed, epoch, shuffle), order[some])


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1), st.integers(1, 60), st.integers(1, 9))
def test_blocks_read_a_window_at_a_time(length, seed, block, window):
    """Walk the order: a block is open from its first sample to its last, and never more than `window` are."""
    order = shuffled(np.arange(length), length, seed, 0, Blocks(block, window))
    left = {b: len(range(b * block, min((b + 1) * block, length))) for b in range(-(-length // block))}
    together: set[int] = set()
    opened: set[int] = set()
    for b in (order // block).tolist():
        together.add(b)
        opened.add(b)
        left[b] -= 1
        if not left[b]:
            opened.remove(b)
        assert len(together) <= window
        if not opened:
            together = set()


def test_the_short_block_lands_everywhere():
    """Length 10 in blocks of 3: the block [9] is met first, last and in between, depending on the epoch."""
    orders = [shuffled(np.arange(10), 10, 0, epoch, Blocks(3, 1)).tolist() for epoch in range(60)]
    assert {order.index(9) for order in orders} == {0, 3, 6, 9}


def test_blocks_share_windows_with_others_every_epoch():
    def windows(epoch: int) -> frozenset[frozenset[int]]:
        order = shuffled(np.arange(80), 80, 0, epoch, Blocks(10, 2)).reshape(4, 20)
        return frozenset(frozenset(row.tolist()) for row in order // 10)

    assert len({windows(epoch) for epoch in range(20)}) > 10


@pytest.mark.parametrize("shuffle", ["full", Blocks(7, 3)], ids=str)
def test_epochs_and_seeds_differ(shuffle):
    orders = [
        tuple(shuffled(np.arange(100), 100, seed, epoch, shuffle).tolist()) for seed in range(3) for epoch in range(30)
    ]
    assert len(set(orders)) == len(orders)


def test_none_is_the_order_of_the_source():
    plan = Plan(7, 3, seed=5, shuffle="none", tail="pad")
    assert [plan.ids(epoch, 1).tolist() for epoch in (0, 1)] == [[3, 4, 5]] * 2
    assert (plan.ids(0, 2).tolist(), plan.weights(2).tolist()) == ([6, 0, 1], [1, 0, 0])


def test_padding_of_a_tiny_source_goes_round():
    plan = Plan(3, 8, shuffle="none", tail="pad")
    assert plan.steps == 1
    assert plan.ids(0, 0).tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert plan.weights(0).tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


def test_golden_order():
    """Never changes: saved states name positions in it."""
    plan = Plan(11, 4, seed=7)
    assert [plan.ids(3, step).tolist() for step in range(2)] == GOLDEN_FULL
    blocks = dataclasses.replace(plan, shuffle=Blocks(3, 2), tail="pad")
    assert [blocks.ids(3, step).tolist() for step in range(3)] == GOLDEN_BLOCKS


GOLDEN_FULL = [[6, 1, 7, 9], [5, 8, 2, 3]]
GOLDEN_BLOCKS = [[10, 9, 3, 5], [4, 6, 7, 2], [8, 0, 1, 10]]


def test_a_billion_samples_and_a_million_steps_cost_nothing():
    plan = Plan.make(10**9, batch=256, world=World(3, 4), shuffle="full")
    assert plan.steps == 976_562
    ids = plan.ids(2, plan.steps - 1)
    assert len(np.unique(ids)) == 256 and ids.max() < 10**9


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32])
def test_numpy_integers_are_as_good(kind):
    plan = Plan.make(kind(100), batch=kind(10), seed=kind(7))
    np.testing.assert_array_equal(plan.ids(kind(1), kind(2)), Plan(100, 10, seed=7).ids(1, 2))
    assert json.loads(json.dumps(plan.state(kind(1), kind(2), "f"))) == Plan(100, 10, seed=7).state(1, 2, "f")
