"""Blocks: every sample once, from few shards at a time on every rank, and mixed nevertheless."""

from __future__ import annotations

import dataclasses
import pickle
import tracemalloc

import numpy as np
import pytest
from helpers.mixing import mixing, opened
from helpers.plans import Rows, blocks, served
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError
from fastfeed.sampling import Blocks
from fastfeed.sampling.orders.blocks import Units
from fastfeed.sampling.plan import Plan


@given(
    st.data(),
    st.integers(1, 2000),
    st.integers(0, 2**64 - 1),
    st.integers(0, 100),
    st.integers(1, 2500),
)
def test_each_sample_once(data, samples, seed, epoch, total):
    plan = Plan(samples, total, seed, shuffle=data.draw(blocks(samples)), tail="pad")
    np.testing.assert_array_equal(np.sort(served(plan, epoch).ids), np.arange(samples))


@given(st.integers(1, 2000), st.integers(0, 2**64 - 1), st.integers(1, 60), st.integers(1, 9))
def test_one_lane_reads_a_window_at_a_time(samples, seed, block, window):
    """Walk the order: a block is open from its first sample to its last, and never more than
    `window` are.
    """
    order = served(Plan(samples, 1, seed, shuffle=Blocks(block, window, lanes=1))).ids
    left = {
        b: len(range(b * block, min((b + 1) * block, samples))) for b in range(-(-samples // block))
    }
    together: set[int] = set()
    open_now: set[int] = set()
    for b in (order // block).tolist():
        together.add(b)
        open_now.add(b)
        left[b] -= 1
        if not left[b]:
            open_now.remove(b)
        assert len(together) <= window
        if not open_now:
            together = set()


@given(st.integers(100, 2000), st.integers(1, 100), st.integers(1, 9), st.integers(1, 20))
def test_a_lane_keeps_to_its_rows_and_places(samples, total, window, lanes):
    """No block is read by lanes that do not follow each other in the row of blocks: they share cut
    ones only.
    """
    plan, lanes = Plan(samples, total, shuffle=Blocks(10, window, lanes)), min(lanes, total)
    batches = served(plan).ids.reshape(-1, total) // 10
    edges = total * np.arange(lanes + 1) // lanes
    readers: dict[int, set[int]] = {}
    for lane in range(lanes):
        for block in np.unique(batches[:, edges[lane] : edges[lane + 1]]).tolist():
            readers.setdefault(block, set()).add(lane)
    for block, who in readers.items():
        assert max(who) - min(who) == len(who) - 1, block
    cut = sum(len(who) - 1 for who in readers.values())
    assert cut <= lanes - 1


def test_the_short_block_lands_everywhere():
    """Length 10 in blocks of 3: the block [9] is met first, last and in between, depending on the
    epoch.
    """
    plan = Plan(10, 1, shuffle=Blocks(3, 1, 1))
    assert {served(plan, epoch).ids.tolist().index(9) for epoch in range(60)} == {0, 3, 6, 9}


def test_blocks_share_windows_with_others_every_epoch():
    def windows(epoch: int) -> frozenset[frozenset[int]]:
        order = served(Plan(80, 1, shuffle=Blocks(10, 2, 1)), epoch).ids.reshape(4, 20)
        return frozenset(frozenset(row.tolist()) for row in order // 10)

    assert len({windows(epoch) for epoch in range(20)}) > 10


def test_epochs_and_seeds_differ():
    seen = [
        tuple(served(Plan(100, 10, seed, shuffle=Blocks(7, 3)), epoch).ids.tolist())
        for seed in range(3)
        for epoch in range(30)
    ]
    assert len(set(seen)) == len(seen)


def test_golden_orders():
    """Never change: saved states name positions in them."""
    plan = Plan(11, 4, seed=7, shuffle=Blocks(3, 2, lanes=1), tail="pad")
    assert [plan.ids(3, step).tolist() for step in range(3)] == [
        [10, 9, 3, 5],
        [4, 6, 7, 2],
        [8, 0, 1, 10],
    ]
    plan = dataclasses.replace(plan, shuffle=Blocks(3, 2, lanes=2))
    assert [plan.ids(3, step).tolist() for step in range(3)] == GOLDEN_LANES
    plan = dataclasses.replace(
        plan, shuffle=Blocks(None, 2, lanes=3).bind(Rows(11, bounds=[0, 1, 5, 7, 11]))
    )
    assert [plan.ids(3, step).tolist() for step in range(3)] == GOLDEN_SHARDS


GOLDEN_LANES = [[4, 9, 10, 7], [3, 5, 6, 1], [2, 0, 8, 4]]
GOLDEN_SHARDS = [[2, 4, 6, 10], [1, 3, 7, 9], [5, 8, 0, 2]]


# -- what to expect

# 640 shards of 70 to 130 samples
SHARDS = np.append(0, np.cumsum(np.random.RandomState(0).randint(70, 131, 640)))
STORED = Rows(int(SHARDS[-1]), bounds=SHARDS)


def over_shards(total: int, **how: int) -> Plan:
    return Plan(len(STORED), total, shuffle=Blocks(**how).bind(STORED))


@pytest.mark.parametrize("total", [256, 1024])
def test_mixes(total):
    """The place of a sample in storage says nothing about its place in the epoch, but for the luck
    of 640 shards; a batch has at least 2/3 of the shards that it would have in a full shuffle, or
    as many as lanes have open.
    """
    full = mixing(Plan(len(STORED), total), SHARDS)
    for epoch in range(3):
        found = mixing(over_shards(total), SHARDS, epoch)
        assert abs(found.correlation) < 4 / np.sqrt(640)
        assert found.per_batch > min(0.67 * full.per_batch, 0.85 * 4 * 64)


def test_one_lane_mixes_less():
    assert (
        mixing(over_shards(256, window=16, lanes=1), SHARDS).per_batch
        < mixing(over_shards(256), SHARDS).per_batch / 8
    )


@pytest.mark.parametrize("total", [256, 1024])
@pytest.mark.parametrize("size", [1, 8, 64, 256])
def test_a_rank_has_few_shards_open(total, size):
    """As many as its lanes have, and those of the next windows where windows meet; it reads few
    more than its part.
    """
    lanes = max(1, 64 // size)
    for rank in {0, size // 3, size - 1}:
        now, ever = opened(over_shards(total), SHARDS, rank, size)
        assert now.mean() <= 4 * lanes
        assert now.max() <= 4 * lanes * 1.25 + 4
        assert ever <= 640 / min(size, 64) + 2 * lanes


def test_lanes_do_not_open_their_shards_all_at_once():
    plan = Plan(64_000, 64, shuffle=Blocks(100))
    blocks = served(plan).ids.reshape(-1, 64) // 100
    first_met = np.unique(blocks.ravel(), return_index=True)[1] // 64
    fresh = np.bincount(first_met, minlength=len(blocks))
    assert fresh[len(blocks) // 10 :].max() < 64


def test_a_billion_samples_in_a_million_blocks_take_no_memory():
    plan = Plan(10**9, 256, shuffle=Blocks(1000))
    plan.ids(0, 0)  # whatever NumPy allocates once
    tracemalloc.start()
    try:
        ids = plan.ids(2, plan.steps - 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    assert len(np.unique(ids)) == 256 and ids.max() < 10**9


# -- the source's own shards


def test_equal_shards_are_blocks():
    plan = Plan(103, 9, seed=3, shuffle=Blocks(10, 2, 4))
    same = dataclasses.replace(
        plan, shuffle=Blocks(None, 2, 4).bind(Rows(103, bounds=[*range(0, 103, 10), 103]))
    )
    for epoch in range(6):  # more than layouts are kept, and back again
        np.testing.assert_array_equal(served(plan, epoch).ids, served(same, epoch).ids)
    np.testing.assert_array_equal(served(plan, 0).ids, served(same, 0).ids)


@pytest.mark.parametrize(
    "bounds", [[0, 10, 20, 30, 40], [0, 10, 20, 30, 33], [0, 7], [0, 1, 2]], ids=str
)
def test_equal_shards_are_computed_as_if_listed(bounds):
    units = Units(np.array(bounds))
    assert units.size == bounds[1]
    offsets = np.arange(bounds[-1])
    for key in ((7, 0), (7, 1)):
        computed = units.shuffled(key)
        listed = units.listed(key)
        for of in ("units", "ids"):
            np.testing.assert_array_equal(
                getattr(computed, of)(offsets), getattr(listed, of)(offsets)
            )
        numbers = np.arange(-2, len(bounds) + 2)
        np.testing.assert_array_equal(computed.starts(numbers), listed.starts(numbers))


@pytest.mark.parametrize("bounds", [[0, 10, 20, 31], [0, 10, 19, 29], [0, 9, 19, 29]], ids=str)
def test_unequal_shards_are_listed(bounds):
    assert Units(np.array(bounds)).size is None


def test_a_million_equal_shards_are_not_listed():
    plan = Plan(10**7, 256, shuffle=Blocks().over(np.arange(0, 10**7 + 1, 10)))
    plan.ids(0, 0)  # arrays that NumPy allocates once
    tracemalloc.start()
    try:
        plan.ids(1, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_bound_blocks_print_as_written_and_pickle():
    bound = Blocks(window=2).bind(Rows(30, bounds=[0, 10, 10, 30]))
    assert repr(bound) == repr(Blocks(window=2)) == "Blocks(block=None, window=2, lanes=64)"
    plan = Plan(30, 4, shuffle=bound)
    before = plan.ids(1, 2).tolist()
    assert pickle.loads(pickle.dumps(plan)).ids(1, 2).tolist() == before
    assert bound.count(30) == 2, "empty shards are none"


def test_blocks_of_a_size_ask_nothing_of_the_source():
    assert Blocks(10).bind(Rows(30)) == Blocks(10)


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda: Blocks(0), "Blocks.block must be an integer >= 1, got 0"),
        (lambda: Blocks(1.5), "Blocks.block must be an integer >= 1, got 1.5"),
        (lambda: Blocks(1, 0), "Blocks.window must be an integer >= 1, got 0"),
        (lambda: Blocks(1, 1, True), "Blocks.lanes must be an integer >= 1, got True"),
        (lambda: Blocks(2**40), "Blocks.block must be at most 2147483648, got 1099511627776"),
        (
            lambda: Blocks().bind(Rows(9)),
            (
                "Blocks() needs a source in shards (with `bounds`), got Rows; "
                'say how many samples lie together, as in Blocks(1024), or use shuffle="full"'
            ),
        ),
        (
            lambda: Blocks().bind(Rows(9, bounds=[0, 5, 4, 9])),
            "bounds of Rows must ascend from 0 to its length 9, got array([0, 5, 4, 9])",
        ),
        (
            lambda: Blocks().bind(Rows(9, bounds=[0, 5])),
            "bounds of Rows must ascend from 0 to its length 9, got array([0, 5])",
        ),
        (
            lambda: Plan(9, 2, shuffle=Blocks()),
            (
                "Blocks() takes its blocks from the shards of a source and is not bound to one;"
                " create a Feed with it, call its bind(source), or say how many samples lie"
                " together, as in Blocks(1024)"
            ),
        ),
        (
            lambda: Plan(9, 2, shuffle=Blocks().bind(Rows(8, bounds=[0, 8]))),
            "these Blocks belong to a source of 8 samples, got a source of 9; bind Blocks() to it",
        ),
    ],
)
def test_refuses(do, text):
    with pytest.raises(ConfigError) as error:
        do()
    assert str(error.value) == text


def test_numpy_integers_are_as_good():
    assert (
        repr(Blocks(np.int64(5), np.int32(2), np.uint8(3))) == "Blocks(block=5, window=2, lanes=3)"
    )
