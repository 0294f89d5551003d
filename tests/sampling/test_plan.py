"""Who reads what, when: every sample once per epoch, at every world size, in the same global
batches.
"""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from helpers.plans import epoch_of, once, ranks, served, worlds
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.distributed.world import World
from fastfeed.sampling.plan import Plan


@given(worlds(once), st.integers(0, 2**32 - 1))
def test_each_sample_once_per_epoch(plans, epoch):
    length, total = plans[0].samples, plans[0].global_batch
    assert plans[0].length == length
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


@pytest.mark.parametrize(
    ("total", "size"), [(8, 8), (9, 8), (15, 8), (64, 7), (1, 1), (256, 256), (300, 256)]
)
def test_ranks_share_a_batch_evenly(total, size):
    plans = ranks(Plan(10_000, total), size)
    edges = [plan.bounds for plan in plans]
    assert edges[0][0] == 0 and edges[-1][1] == total
    assert all(a[1] == b[0] for a, b in itertools.pairwise(edges))
    assert {plan.batch for plan in plans} <= {total // size, -(-total // size)}


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 300))
def test_ranks_share_an_incomplete_batch_evenly(total, size, left):
    """All have a sample, if there are enough; padding is behind them, in the rows of the global
    batch.
    """
    size = min(size, total)
    length = 2 * total + 1 + left % total
    plans = ranks(Plan(length, total, shuffle="none", tail="pad"), size)
    weights = [plan.weights(2) for plan in plans]
    counts = [int(w.sum()) for w in weights]
    assert all((np.diff(w) <= 0).all() for w in weights)
    assert max(counts) - min(counts) <= 1
    real = np.concatenate([plan.ids(0, 2)[w == 1] for plan, w in zip(plans, weights, strict=True)])
    np.testing.assert_array_equal(real, np.arange(2 * total, length))
    assert all(2 * total <= plan.first(2) <= 3 * total - plan.batch for plan in plans)


def test_a_smaller_batch_of_a_rank_takes_no_more_than_it_holds():
    plans = ranks(Plan(15, 8, shuffle="none", tail="pad"), 5)
    assert [plan.batch for plan in plans] == [1, 2, 1, 2, 2]
    assert [int(plan.weights(1).sum()) for plan in plans] == [1, 2, 1, 2, 1]


def test_epochs_and_seeds_differ():
    seen = [
        tuple(served(Plan(100, 10, seed), epoch).ids.tolist())
        for seed in range(3)
        for epoch in range(30)
    ]
    assert len(set(seen)) == len(seen)


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


GOLDEN_FULL = [[6, 1, 7, 9], [5, 8, 2, 3]]


def test_a_billion_samples_and_a_million_steps_cost_nothing():
    plan = Plan.make(10**9, batch=256, world=World(3, 4), shuffle="full")
    assert plan.steps == 976_562
    ids = plan.ids(2, plan.steps - 1)
    assert len(np.unique(ids)) == 256 and ids.max() < 10**9


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32])
def test_numpy_integers_are_as_good(kind):
    plan = Plan.make(kind(100), batch=kind(10), seed=kind(7))
    np.testing.assert_array_equal(plan.ids(kind(1), kind(2)), Plan(100, 10, seed=7).ids(1, 2))
    assert json.loads(json.dumps(plan.state(kind(1), kind(2), "f"))) == Plan(100, 10, seed=7).state(
        1, 2, "f"
    )


def test_any_positions_may_be_asked_for():
    plan = Plan(10, 4, seed=1, tail="pad")
    whole = np.concatenate([plan.ids(2, step) for step in range(3)])
    assert plan.at(2, np.array([9, 0, 3])).ids.tolist() == whole[[9, 0, 3]].tolist()
    assert plan.at(2, np.array([], np.int64)).ids.tolist() == []
