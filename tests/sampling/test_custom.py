"""CustomOrder: a function's ids as they are, checked in every epoch."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from helpers.plans import Rows, served
from hypothesis import given
from hypothesis import strategies as st

import fastfeed as ff
from fastfeed.errors import ConfigError, StateError
from fastfeed.sampling import CustomOrder
from fastfeed.sampling.plan import Plan


def drawn(epoch: int, positions: np.ndarray) -> np.ndarray:
    return np.random.default_rng((1, epoch)).permutation(positions)


def with_replacement(epoch: int, positions: np.ndarray, samples: int = 20) -> np.ndarray:
    return np.random.default_rng(epoch).integers(0, samples, len(positions))


def test_the_order_is_the_functions():
    plan = Plan(30, 10, shuffle=CustomOrder(drawn))
    for epoch in (0, 3, 1, 2, 0):
        ids, occurrences = served(plan, epoch)
        assert ids.tolist() == drawn(epoch, np.arange(30)).tolist()
        assert not occurrences.any()


@given(st.integers(1, 60), st.integers(0, 3))
def test_occurrences_count_from_the_beginning(length, epoch):
    plan = Plan(20, 1, shuffle=CustomOrder(with_replacement, resampling=True, length=length))
    ids, occurrences = served(plan, epoch)
    seen = np.zeros(20, int)
    for id, turn in zip(ids, occurrences, strict=True):
        assert turn == seen[id]
        seen[id] += 1


def test_the_function_is_called_once_per_epoch():
    calls = []

    def counted(epoch: int, positions: np.ndarray) -> np.ndarray:
        calls.append(epoch)
        return positions

    plan = Plan(8, 2, shuffle=CustomOrder(counted))
    for epoch in (0, 1):
        for step in range(4):
            plan.ids(epoch, step)
    plan.ids(0, 0)
    assert calls == [0, 1]


def test_a_state_knows_the_ids_of_the_order():
    def shifted(shift: int) -> CustomOrder:
        def rolled(epoch: int, positions: np.ndarray) -> np.ndarray:
            return np.roll(positions, shift)

        return CustomOrder(rolled).bind(Rows(8))

    saved = Plan(8, 2, shuffle=shifted(1)).state(1, 2, "abc")
    assert Plan(8, 2, shuffle=shifted(1)).position(saved, "abc") == (1, 2)
    with pytest.raises(StateError, match="shuffle was"):
        Plan(8, 2, shuffle=shifted(2)).position(saved, "abc")


def test_prints_its_function():
    assert repr(CustomOrder(drawn)) == "CustomOrder(drawn)"
    order = CustomOrder(functools.partial(with_replacement, samples=3), True, 9)
    assert repr(order) == "CustomOrder(with_replacement, resampling=True, length=9)"
    assert repr(CustomOrder(drawn).bind(Rows(8))) == "CustomOrder(drawn, <epoch 0: 73783d143ee1>)"


def test_a_later_epoch_is_checked_too():
    def breaks(epoch: int, positions: np.ndarray) -> np.ndarray:
        return positions if epoch < 2 else positions // 2

    source = ff.Arrays(np.zeros((4, 1, 1, 3), np.uint8), np.arange(4))
    with ff.Feed(source, [], batch=2, shuffle=CustomOrder(breaks)) as feed:
        assert len(list(feed)) == 2
        assert len(list(feed)) == 2
        for _ in range(2):
            with pytest.raises(ConfigError, match="for epoch 2 every sample must come once"):
                list(feed)


class Drifting:
    """Other ids at each call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, epoch: int, positions: np.ndarray) -> np.ndarray:
        self.calls += 1
        return np.roll(positions, self.calls)


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (
            lambda: CustomOrder(3),
            "CustomOrder.function must be a function (epoch, positions) -> ids, got 3",
        ),
        (
            lambda: CustomOrder(drawn, length=8),
            "CustomOrder.length needs resampling=True, got 8: without it every sample comes once",
        ),
        (
            lambda: CustomOrder(lambda epoch, positions: positions // 2).bind(Rows(6)),
            "for epoch 0 every sample must come once, got 3 of 6 missing, the first of them sample"
            " 3; pass resampling=True if samples may come several times or not at all",
        ),
        (
            lambda: CustomOrder(lambda epoch, positions: positions + 1).bind(Rows(6)),
            "for epoch 0 ids must be in [0, 6), got 6 at position 5",
        ),
        (
            lambda: CustomOrder(lambda epoch, positions: positions / 2, True).bind(Rows(6)),
            "for epoch 0 the function must return 6 integers, one per position, got float64[6]",
        ),
        (
            lambda: CustomOrder(lambda epoch, positions: None, True).bind(Rows(6)),
            "for epoch 0 the function must return 6 integers, one per position, got NoneType",
        ),
        (
            lambda: CustomOrder(Drifting()).bind(Rows(6)),
            "CustomOrder(Drifting): called again for epoch 0, the function returned other ids;"
            " draw from np.random.default_rng((seed, epoch)), and keep no state",
        ),
    ],
)
def test_refuses(do, text):
    with pytest.raises(ConfigError) as error:
        do()
    assert str(error.value).endswith(text)
