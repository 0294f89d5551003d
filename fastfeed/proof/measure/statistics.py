"""Means of blocks -> step times and their differences, with 95 % intervals.

A block's steps depend on each other (queues, caches, clocks of the processor), blocks hardly do: so
a block's mean is one observation, and the interval is Student's t over the rounds ("batch means":
Schmeiser, Batch size effects in the analysis of simulation output, Operations Research 30(3), 1982;
Law, Simulation Modeling and Analysis, ch. 9). A difference is taken within each round first,
between blocks that were run close to each other (paired differences). That rounds are independent
is made true by drawing the order of each (`modes.order`). What machines have in common with all
rounds, such as a speed that changes over minutes, is no error: costs are those at the speed of the
proof's time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastfeed.proof.measure.modes import PARTS, Mode

# two-sided 95 % quantiles of Student's t with 1 to 30 degrees of freedom
_T = [
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
]
_Z = 1.959964


@dataclass(frozen=True, slots=True)
class Estimate:
    """A time per step, and the interval that holds the true one in 95 of 100 proofs.

    Args:
        ns (int): Nanoseconds per step. Whole, so that parts add up exactly.
        low (float): Lower end of the interval, nanoseconds.
        high (float): Upper end.

    Example:
        >>> ff.proof.statistics.Estimate(2_000_000, 1.5e6, 2.5e6).is_measurable
        True
    """

    ns: int
    low: float
    high: float

    @property
    def ms(self) -> float:
        """Mean time per step, in milliseconds."""
        return self.ns / 1e6

    @property
    def is_measurable(self) -> bool:
        """The interval does not hold 0."""
        return self.low > 0 or self.high < 0

    def holds(self, ns: float) -> bool:
        """Test if the interval contains a value.

        Args:
            ns (float): Nanoseconds per step.
        """
        return self.low <= ns <= self.high

    def as_dict(self) -> dict[str, Any]:
        """Mean and interval in milliseconds, for JSON."""
        return {"ms": self.ns / 1e6, "low_ms": self.low / 1e6, "high_ms": self.high / 1e6}


def mean(blocks: Sequence[float]) -> Estimate:
    """Estimate the mean from the block means of one mode, nanoseconds."""
    middle = math.fsum(blocks) / len(blocks)
    return _estimate(round(middle), blocks)


def difference(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Between two modes: block means round by round. Exactly the difference of their `mean`s."""
    paired = [b - a for a, b in zip(before, after, strict=True)]
    return _estimate(mean(after).ns - mean(before).ns, paired)


def parts(blocks: Mapping[Mode, Sequence[float]]) -> dict[str, Estimate]:
    """The parts whose two modes were measured.

    They add up to the last mode's step minus RESIDENT's, exactly.
    """
    return {
        name: difference(blocks[before], blocks[after])
        for name, (before, after) in PARTS.items()
        if before in blocks and after in blocks
    }


def t_quantile(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t; above 30 degrees by Abramowitz and Stegun, 26.7.5."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    return _Z + (_Z**3 + _Z) / (4 * freedom) + (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)


def _estimate(ns: int, blocks: Sequence[float]) -> Estimate:
    n = len(blocks)
    if n < 2:
        return Estimate(ns, -math.inf, math.inf)
    middle = math.fsum(blocks) / n
    variance = math.fsum((block - middle) ** 2 for block in blocks) / (n - 1)
    half = t_quantile(n - 1) * math.sqrt(variance / n)
    return Estimate(ns, ns - half - 0.5, ns + half + 0.5)  # half a nanosecond for the rounding
