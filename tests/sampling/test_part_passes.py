"""Passes through parts of a mixture, all looked up at once: the same as of each part alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.plans import Rows
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.sampling import Blocks, MixtureOrder, MixturePart, bind
from fastfeed.sampling.orders import blocks, mixture
from fastfeed.sampling.orders.mixture import PartPasses
from fastfeed.sampling.orders.proportions import exact_proportions
from fastfeed.sampling.permute import permute
from fastfeed.sampling.plan import Plan

WEIGHTS = st.lists(
    st.one_of(st.integers(1, 9), st.just(0.01), st.just(1 / 3)), min_size=1, max_size=8
)


@given(WEIGHTS, st.integers(0, 2**40))
def test_counts_of_many_parts_are_those_of_each(weights, start):
    shares = exact_proportions(tuple(map(float, weights)))
    parts = np.repeat(np.arange(len(weights)), 3)
    slots = np.tile(np.array([start, start + 1, start + 17]), len(weights))
    expected = [
        shares.count(i, int(n)) for i, n in zip(parts.tolist(), slots.tolist(), strict=True)
    ]
    assert shares.counts(parts, slots).tolist() == expected
    # of 2**30
    np.testing.assert_allclose(
        shares.shares, np.array(weights) / sum(weights), rtol=1e-4, atol=1e-8
    )


@given(WEIGHTS, st.integers(1, 40), st.integers(1, 12), st.integers(1, 12), st.integers(0, 3))
def test_whole_steps_are_those_inside_of_a_pass(weights, length, batch, size, number):
    shares = exact_proportions(tuple(map(float, weights)))
    batch = min(batch, length)
    parts = [(size, Blocks(1)) for _ in weights]
    passes = np.full(len(weights), number)
    walk = PartPasses(shares, parts, 0, length, batch, passes)
    steps = length // batch
    for i in range(len(weights)):
        begin, count = int(walk._begin[i]), int(walk._count[i])

        def slots(step: int, more: int = 0) -> int:
            return step // steps * length + step % steps * batch + more

        inside = [
            step
            for step in range(begin + count + 40)
            if shares.count(i, slots(step)) >= number * size
            and shares.count(i, slots(step, batch)) <= (number + 1) * size
        ]
        assert inside == list(range(begin, begin + count)) or (not inside and not count)


@pytest.mark.parametrize(
    "within", [Blocks(4, 2, 3), Blocks(window=2, lanes=3)], ids=["equal", "shards"]
)
def test_positions_far_apart_are_those_of_a_walk(within):
    """Of passes that lie apart, in any order, through an order that has computed nothing yet."""

    def plan() -> Plan:
        parts = (
            MixturePart(0, 40, 3, within),
            MixturePart(40, 70, 1, within),
            MixturePart(110, 30, 0.1, within),
        )
        order = MixtureOrder(parts, 400).bind(Rows(140, bounds=np.arange(0, 141, 5)))
        return Plan(140, 16, seed=3, shuffle=order)

    for epoch in (0, 5):
        whole = plan().at(epoch, np.arange(400))
        some = np.random.default_rng(epoch).integers(0, 400, 40)
        fresh = plan()
        for position in some.tolist():
            visit = fresh.at(epoch, np.array([position]))
            assert (visit.ids[0], visit.occurrences[0]) == (
                whole.ids[position],
                whole.occurrences[position],
            )
        np.testing.assert_array_equal(plan().at(epoch, some).ids, whole.ids[some])


def test_parts_of_equal_and_unequal_shards(monkeypatch):
    """In a mixture of both, and nothing of equal ones is permuted but the samples of a batch."""
    equal = np.arange(0, 100_001, 10)
    uneven = np.array([0, 9, 25, 31, 50, 57, 70])
    source = Rows(100_070, bounds=np.append(equal, 100_000 + uneven[1:]))
    within = Blocks(window=2, lanes=3)
    order = MixtureOrder(
        (MixturePart(0, 100_000, 1, within), MixturePart(100_000, 70, 1, within)), 400
    ).bind(source)
    permuted = count_permuted(monkeypatch)
    computed = Plan(len(source), 16, seed=3, shuffle=order).at(0, np.arange(400))
    assert max(permuted) == 400 // 2
    units = order.parts[0].order.units  # type: ignore
    object.__setattr__(units, "size", None)
    listed = Plan(len(source), 16, seed=3, shuffle=replace(order)).at(0, np.arange(400))
    assert max(permuted) >= 10_000
    np.testing.assert_array_equal(computed.ids, listed.ids)


@pytest.mark.parametrize("sizes", [[4, 4, 2], [5, 2, 3]], ids=["equal", "listed"])
def test_passes_of_many_parts_are_laid_out_at_once(sizes, monkeypatch):
    """The number of calls is that of a few parts; a part alone gives the same ids."""
    count = 300
    bounds = np.append(0, np.cumsum(sizes * count))
    within = Blocks(window=2, lanes=3)
    parts = tuple(MixturePart(10 * i, 10, 1 + i % 7, within) for i in range(count))
    order = MixtureOrder(parts).bind(Rows(10 * count, bounds=bounds))
    plan = Plan(10 * count, 256, seed=3, shuffle=order)
    plan.at(0, np.arange(256))
    permuted = count_permuted(monkeypatch)
    ids = plan.at(40, np.arange(256)).ids  # all parts are in another pass
    assert len(permuted) <= 10  # of two passes: equal and listed units, then samples
    for positions in np.arange(256).reshape(4, 64):  # fewer parts at a time
        np.testing.assert_array_equal(
            Plan(10 * count, 256, seed=3, shuffle=replace(order)).at(40, positions).ids,
            ids[positions],
        )


def count_permuted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect how many values each call of `permute` is for."""
    permuted: list[int] = []

    def counted(values: np.ndarray, *how, **inverse) -> np.ndarray:
        permuted.append(len(values))
        return permute(values, *how, **inverse)

    for module in (blocks, mixture):
        monkeypatch.setattr(module, "permute", counted)
    return permuted


def test_bounds_are_read_once_however_many_parts():
    class Mixture(Rows):
        shares, length, reads = (1.0,) * 50, None, 0

        @property
        def starts(self) -> np.ndarray:
            return np.arange(51) * 20

        @property
        def bounds(self) -> np.ndarray:
            type(self).reads += 1
            return np.arange(0, 1001, 5)

    order = bind(Blocks(), Mixture(1000))
    assert Mixture.reads == 1
    assert isinstance(order, MixtureOrder)
    assert all(isinstance(p.order, Blocks) and p.order.count(20) == 4 for p in order.parts)
