"""Beta and Dirichlet random numbers from uniform ones, by inverting the distribution function.

No rejection sampling is used.

With a fixed number of draws per sample, a sample stays a pure function of its random numbers.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

__all__ = ["beta", "dirichlet"]

# logits: beyond them x, or 1 - x, is below 5e-18 and a plain power
_END = 40.0
_CELLS = 4000
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(8)
# on [0, 1]
_POINTS = (_POINTS + 1) / 2
_WEIGHTS = _WEIGHTS / 2


def beta(u: np.ndarray, a: float, b: float) -> np.ndarray:
    """Beta(a, b) from uniform numbers: float64 in [0, 1], of u's shape. a and b in (0, 1000].

    Where the distribution function is I(x), |I(x) - u| < 1e-11, as far as float64 can hold x. I is
    integrated over the logit t of x, where its density e^(at) / (1 + e^t)^(a+b) is smooth for all a
    and b: 8-point Gauss-Legendre in each of 4000 cells, once per a and b; then Newton's method from
    the nearest knot.
    """
    u = np.asarray(u, np.float64)
    if a == 1:
        return u.copy() if b == 1 else -np.expm1(np.log1p(-u) / b)
    if b == 1:
        return u ** (1 / a)
    ends, below, scale, least = _cells(float(a), float(b))
    width = 2 * _END / _CELLS
    cell = np.clip(np.searchsorted(below, u, side="right") - 1, 0, _CELLS - 1)
    start = ends[cell]
    need = u - below[cell]
    with np.errstate(divide="ignore", invalid="ignore"):
        t = start + width * np.nan_to_num(np.clip(need / (below[cell + 1] - below[cell]), 0, 1))
        for _ in range(4):
            step = (need - _mass(start, t - start, a, b, scale)) / _density(t, a, b, scale)
            t = np.clip(t + np.nan_to_num(step), start, start + width)
        x = 1 / (1 + np.exp(-t))
        x = np.where(u < below[0], np.exp(np.log(u / below[0]) / a + least), x)
    return np.where(u > below[-1], 1.0, x)


def dirichlet(u: np.ndarray, alpha: float, n: int) -> np.ndarray:
    """Symmetric Dirichlet(alpha, ..., alpha) of n shares: float64 (..., n), sum 1.

    u: uniform numbers (..., n - 1).

    By stick breaking: each share is a Beta(alpha, rest * alpha) part of the remainder after the
    earlier ones.
    """
    rest = np.ones(u.shape[:-1])
    shares = np.empty((*u.shape[:-1], n))
    for k in range(n - 1):
        part = beta(u[..., k], alpha, (n - 1 - k) * alpha)
        shares[..., k] = rest * part
        rest = rest * (1 - part)
    shares[..., n - 1] = rest
    return shares


def _density(t: np.ndarray, a: float, b: float, scale: float) -> np.ndarray:
    """Density of the logit, times e^scale."""
    return np.exp(a * t - (a + b) * np.logaddexp(0, t) - scale)


def _mass(start: np.ndarray, span: np.ndarray, a: float, b: float, scale: float) -> np.ndarray:
    """The integral of the density over a part of a cell.

    Summed in a fixed order, so neighbors do not matter.
    """
    total_mass = np.zeros_like(start)
    for point, weight in zip(_POINTS.tolist(), _WEIGHTS.tolist(), strict=True):
        total_mass += weight * _density(start + span * point, a, b, scale)
    return total_mass * span


@lru_cache(maxsize=16)
def _cells(a: float, b: float) -> tuple[np.ndarray, np.ndarray, float, float]:
    """(knots, distribution function there, log of the density's factor, first knot's log x)."""
    ends = np.linspace(-_END, _END, _CELLS + 1)
    width = 2 * _END / _CELLS
    # where the density is highest: the numbers stay in range
    top = np.clip(np.log(a / b), -_END, _END)
    peak = float(a * top - (a + b) * np.logaddexp(0, top))
    parts = _mass(ends[:-1], np.full(_CELLS, width), a, b, peak)
    low = np.exp(-a * _END - peak) / a  # the powers beyond both ends
    high = np.exp(-b * _END - peak) / b
    below = low + np.concatenate([[0.0], np.cumsum(parts)])
    total = float(below[-1] + high)
    return ends, below / total, peak + float(np.log(total)), -_END
