"""Confidence intervals over steps: what they cover, and that they are the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from fastfeed.profiler.model import statistics

WINDOW = 100_000_000  # ns of a step


def steps(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (shares * WINDOW).astype(np.int64), np.full(len(shares), WINDOW)


@pytest.mark.parametrize("count", [3, 5, 8, 20, 60])
def test_independent_steps_are_covered(count: int) -> None:
    draws = np.random.default_rng(count)
    runs = [statistics.share(*steps(0.3 + 0.05 * draws.normal(size=count))) for _ in range(300)]
    covered = np.mean([low <= 0.3 <= high for low, high in runs])
    assert covered >= 0.93, f"{covered:.0%} of the intervals hold the truth"
    assert (
        np.mean([high - low for low, high in runs]) < 0.6 / count**0.5
    )  # and they are not simply everything


def test_neighbors_that_are_alike_widen_the_interval() -> None:
    """The same values: in a slow drift, and shuffled."""
    drift = 0.3 + 0.2 * np.sin(np.linspace(0, 6 * np.pi, 300))
    low, high = statistics.share(*steps(drift))
    shuffled_low, shuffled_high = statistics.share(
        *steps(np.random.default_rng(0).permutation(drift))
    )
    assert high - low > 1.7 * (shuffled_high - shuffled_low)


def test_long_steps_count_by_their_length() -> None:
    low, high = statistics.share(np.array([10, 10, 10, 800]), np.array([100, 100, 100, 1000]))
    assert low < 830 / 1300 < high


def test_equal_steps_leave_no_doubt() -> None:
    assert statistics.share(*steps(np.full(12, 0.25))) == (0.25, 0.25)
    assert statistics.difference(*steps(np.full(5, 0.5)), *steps(np.full(9, 0.25))) == (
        -0.25,
        -0.25,
        -0.25,
    )


def test_the_same_every_time_and_within_bounds() -> None:
    parts, wholes = steps(np.array([0.0, 0.0, 0.9, 0.0, 1.0]))
    low, high = statistics.share(parts, wholes)
    assert (low, high) == statistics.share(parts, wholes)
    assert 0 <= low < 0.38 < high <= 1


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_steps_say_anything(count: int) -> None:
    few, many = steps(np.full(count, 0.1)), steps(np.full(7, 0.2))
    assert statistics.share(*few) == (0.0, 1.0)
    assert statistics.difference(*few, *many)[1:] == (-np.inf, np.inf)
    assert statistics.difference(*many, *few)[1:] == (-np.inf, np.inf)


def test_nothing_of_nothing_is_no_share() -> None:
    none = np.zeros(6, np.int64)
    assert statistics.share(none, none) == (0.0, 0.0)


def test_many_steps() -> None:
    draws = np.random.default_rng(4)
    low, high = statistics.share(*steps(draws.uniform(0.2, 0.4, 100_000)))
    assert 0.298 < low < 0.3 < high < 0.302
    assert high - low < 0.002


def test_a_difference_and_none() -> None:
    draws = np.random.default_rng(2)
    before, same = (steps(0.3 + 0.02 * draws.normal(size=30)) for _ in range(2))
    after = steps(0.05 + 0.02 * draws.normal(size=12))
    value, low, high = statistics.difference(*before, *after)
    assert -0.28 < low < value < high < -0.22
    _, low, high = statistics.difference(*before, *same)
    assert low < 0 < high


def test_per_step_numbers_are_ratios_to_ones() -> None:
    a, b = np.array([130, 131, 132, 131]), np.array([73, 74, 72, 73, 73])
    value, low, high = statistics.difference(a, np.ones_like(a), b, np.ones_like(b))
    assert value == pytest.approx(-58)
    assert low < -58 < high < -55


def test_uneven_columns_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"one part and one whole per step, got shapes \(2,\) and \(3,\)"
    ):
        statistics.share(np.arange(2), np.arange(3))
