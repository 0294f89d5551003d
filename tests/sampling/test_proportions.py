"""Slots are dealt to parts by weight: never two off, whatever the weights, however far on."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.sampling.orders.proportions import exact_proportions

WEIGHTS = st.lists(
    st.one_of(st.integers(1, 9), st.floats(1e-3, 1e3), st.just(1 / 3)), min_size=1, max_size=12
)


@given(WEIGHTS, st.integers(0, 2**50))
def test_parts_take_turns_and_none_is_two_off(weights, start):
    shares = exact_proportions(tuple(weights))
    slots = np.arange(start, start + 500)
    part, number = shares.assign(slots)
    total = sum(Fraction(str(weight)) for weight in weights)
    for i, weight in enumerate(weights):
        mine = number[part == i]
        before = shares.count(i, start)
        assert mine.tolist() == list(range(before, before + len(mine))), "in turn, none left out"
        assert (
            shares.count(i, slots).tolist()
            == (before + np.cumsum(part == i) - (part == i)).tolist()
        )
        if start < 2**20:  # far on, the tenth digit of a weight shows
            assert abs(before - start * Fraction(str(weight)) / total) < 2
        in_a_row = np.convolve(part == i, np.ones(50, int), "valid")
        assert in_a_row.min() >= shares.minimum(i, 50)
        assert in_a_row.min() >= 50 * Fraction(str(weight)) / total - 4


@pytest.mark.parametrize("weights", [(0.7, 0.3), (3, 1, 1), (1, 1), (5,), (0.1, 0.2, 0.3, 0.4)])
def test_shares_are_exact(weights):
    """Weights are what they look like, and billions of slots later nothing has moved."""
    shares, unit = exact_proportions(weights), 10**12
    for i, weight in enumerate(weights):
        assert shares.count(i, unit * sum(weights)) == unit * weight or round(sum(weights)) != sum(
            weights
        )
        assert shares.count(i, 10**13) * sum(map(Fraction, map(str, weights))) == 10**13 * Fraction(
            str(weight)
        )


def test_two_parts_alternate():
    assert exact_proportions((1.0, 1.0)).assign(np.arange(6))[0].tolist() in (
        [0, 1] * 3,
        [1, 0] * 3,
    )


def test_golden_shares():
    """Never change: saved states name positions in mixtures."""
    part, number = exact_proportions((0.5, 0.3, 0.2)).assign(np.arange(12))
    assert part.tolist() == GOLDEN
    assert number.tolist() == GOLDEN_NUMBER


GOLDEN = [1, 0, 2, 0, 1, 0, 2, 0, 1, 0, 1, 0]
GOLDEN_NUMBER = [0, 0, 0, 1, 1, 2, 1, 3, 2, 4, 3, 5]
