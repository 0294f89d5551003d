"""Who reads what, when: every sample once per epoch, at every world size, in the same global batches."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError, StateError
from fastfeed.plan import Blocks, Plan, shuffled
from fastfeed.world import World

SIZES = (1, 2, 3, 7, 8, 64, 256)
SHUFFLES = st.one_of(
    st.sampled_from(["full", "none"]), st.builds(Blocks, st.integers(1, 40), st.integers(1, 8)), st.just(Blocks())
)


def ranks(plan: Plan, size: int) -> list[Plan]:
    return [dataclasses.replace(plan, world=World(rank, size)) for rank in range(size)]


def epoch_of(plans: list[Plan], epoch: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Global batches with their weights: what the ranks read, put side by side."""
    return [
        (np.concatenate([p.ids(epoch, s) for p in plans]), np.concatenate([p.weights(s) for p in plans]))
        for s in range(plans[0].steps)
    ]


@st.composite
def worlds(draw: Any) -> list[Plan]:
    """The plans of all ranks, made from a batch per rank or a global batch."""
    size, tail = draw(st.sampled_from(SIZES)), draw(st.sampled_from(["drop", "pad"]))
    how: dict[str, int] = (
        {"batch": draw(st.integers(1, 20))}
        if draw(st.booleans())
        else {"global_batch": draw(st.integers(size, 20 * size))}
    )
    total = how.get("global_batch", how.get("batch", 0) * size)
    length = draw(st.integers(total if tail == "drop" else 1, max(600, 2 * total)))
    seed, shuffle = draw(st.integers(0, 2**64 - 1)), draw(SHUFFLES)
    return [
        Plan.make(length, **how, seed=seed, world=World(rank, size), shuffle=shuffle, tail=tail) for rank in range(size)
    ]


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


# -- saving and restoring


@given(worlds(), st.integers(0, 1000), st.data())
def test_state_round_trip_at_another_world_size(plans, epoch, data):
    plan = plans[0]
    step = data.draw(st.integers(0, plan.steps - 1))
    saved = json.loads(json.dumps(plans[-1].state(epoch, step, "abc")))
    for size in (1, min(5, plan.global_batch)):
        other = dataclasses.replace(plan, world=World(0, size))
        assert other.position(saved, "abc") == (epoch, step)


def test_the_end_of_an_epoch_is_the_start_of_the_next():
    plan = Plan(10, 3)
    assert plan.position(plan.state(4, plan.steps, "f"), "f") == (5, 0)


SAVED = Plan(100, 8, seed=3).state(2, 5, "abc")
OTHER = {
    "seed": (
        {"seed": 4},
        "cannot restore: seed was 3, this feed has 4, so the order would change; pass seed=3",
    ),
    "global_batch": (
        {"global_batch": 16},
        "cannot restore: global_batch was 8, this feed has 16, so the order would change; "
        "pass global_batch=8 (batch counts per rank)",
    ),
    "shuffle": (
        {"shuffle": "none"},
        "cannot restore: shuffle was 'full', this feed has 'none', so the order would change; pass shuffle='full'",
    ),
    "tail": (
        {"tail": "pad"},
        "cannot restore: tail was 'drop', this feed has 'pad', so the order would change; pass tail='drop'",
    ),
}


@pytest.mark.parametrize("name", OTHER)
def test_restore_names_the_field_that_differs(name):
    change, text = OTHER[name]
    with pytest.raises(StateError) as error:
        dataclasses.replace(Plan(100, 8, seed=3), **change).position(SAVED, "abc")
    assert str(error.value) == text


def test_restore_over_other_data():
    with pytest.raises(StateError) as error:
        Plan(100, 8, seed=3).position(SAVED, "xyz")
    assert str(error.value) == (
        "cannot restore: fingerprint was 'abc', this feed has 'xyz', so the order may change; "
        "the files differ from those the state was saved with; start a new run, or call restore(state, strict=False) "
        "if names and order are the same"
    )


def test_restore_says_how_to_write_blocks():
    saved = Plan(100, 8, seed=3, shuffle=Blocks(4, 2)).state(0, 0, "abc")
    with pytest.raises(StateError) as error:
        Plan(100, 8, seed=3).position(saved, "abc")
    assert str(error.value).endswith("so the order would change; pass shuffle=Blocks(block=4, window=2)")


@pytest.mark.parametrize("name", SAVED)
def test_restore_names_the_field_that_is_missing(name):
    with pytest.raises(StateError) as error:
        Plan(100, 8, seed=3).position({k: v for k, v in SAVED.items() if k != name}, "abc")
    assert str(error.value) == (
        "a saved state needs epoch, step, length, seed, global_batch, shuffle, tail, fingerprint; "
        f"{name} missing; pass what feed.state() gave"
    )


@pytest.mark.parametrize(
    ("change", "got"), [({"step": 13}, "13 and 2"), ({"step": -1}, "-1 and 2"), ({"epoch": -1}, "5 and -1")], ids=str
)
def test_restore_refuses_positions_outside(change, got):
    with pytest.raises(StateError) as error:
        Plan(100, 8, seed=3).position(SAVED | change, "abc")
    assert str(error.value) == f"cannot restore: step must be in [0, 12] and epoch >= 0, got {got}"


# -- refusals


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"batch": 0}, "batch must be an integer >= 1, got 0"),
        ({"batch": -4}, "batch must be an integer >= 1, got -4"),
        ({"batch": 2.0}, "batch must be an integer >= 1, got 2.0"),
        ({"batch": True}, "batch must be an integer >= 1, got True"),
        ({"global_batch": 0}, "global_batch must be an integer >= 1, got 0"),
        ({}, "give batch (per rank) or global_batch, one of them; got batch=None, global_batch=None"),
        (
            {"batch": 4, "global_batch": 8},
            "give batch (per rank) or global_batch, one of them; got batch=4, global_batch=8",
        ),
        (
            {"batch": 30, "world": World(0, 4)},
            "the global batch must not exceed the data: got 120 samples per step and 100 samples in the source; "
            'lower batch, or use tail="pad"',
        ),
        (
            {"global_batch": 3, "world": World(0, 4)},
            "global_batch must be an integer >= 4 (one sample per rank), got 3",
        ),
        ({"batch": 4, "shuffle": "yes"}, 'shuffle must be "full", "none" or Blocks(...), got \'yes\''),
        ({"batch": 4, "shuffle": 1000}, 'shuffle must be "full", "none" or Blocks(...), got 1000'),
        ({"batch": 4, "tail": "keep"}, 'tail must be "drop" or "pad", got \'keep\''),
        ({"batch": 4, "seed": -1}, "seed must be an integer in [0, 2**64), got -1"),
        ({"batch": 4, "seed": "0"}, "seed must be an integer in [0, 2**64), got '0'"),
    ],
    ids=str,
)
def test_refuses(how, text):
    with pytest.raises(ConfigError) as error:
        Plan.make(100, **how)
    assert str(error.value) == text


def test_refuses_no_data():
    with pytest.raises(ConfigError) as error:
        Plan.make(0, batch=1)
    assert str(error.value) == "a plan needs at least 1 sample, got 0"


@pytest.mark.parametrize(
    ("block", "window", "text"),
    [
        (0, 1, "Blocks.block must be an integer >= 1, got 0"),
        (1, 0, "Blocks.window must be an integer >= 1, got 0"),
        (1.5, 1, "Blocks.block must be an integer >= 1, got 1.5"),
    ],
)
def test_refuses_blocks(block, window, text):
    with pytest.raises(ConfigError) as error:
        Blocks(block, window)
    assert str(error.value) == text


@pytest.mark.parametrize("step", [-1, 12])
def test_refuses_steps_outside(step):
    with pytest.raises(ConfigError) as error:
        Plan(100, 8).ids(0, step)
    assert str(error.value) == f"step must be in [0, 12), got {step}"


@pytest.mark.parametrize(("given", "meant"), [(True, "full"), (False, "none")])
def test_shuffle_takes_booleans(given, meant):
    assert Plan.make(10, batch=2, shuffle=given).shuffle == meant
