"""Is a change per step, or per batch, more than noise?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastfeed.profiler.compare.changes import MetricChange
from fastfeed.profiler.model import statistics

__all__ = ["with_statistics"]

FLOOR = 0.002  # of a step: a smaller change is negligible, however certain


def with_statistics(
    change: MetricChange, per_step: Sequence[np.ndarray], lengths: Sequence[np.ndarray]
) -> MetricChange:
    """Adds the statistics over steps.

    Args:
        change: without them.
        per_step: int64 nanoseconds for each side, shape (steps,).
        lengths: int64 nanoseconds of the steps of each side, shape (steps,).
    """
    value, low, high = statistics.difference(
        per_step[0], np.ones_like(per_step[0]), per_step[1], np.ones_like(per_step[1])
    )
    floor = FLOOR * min(float(np.mean(length)) for length in lengths)
    change = replace(
        change, before_ns=float(per_step[0].mean()), after_ns=float(per_step[1].mean())
    )
    if not math.isfinite(low):
        return change
    direction = (
        "same" if low <= 0 <= high or abs(value) < floor else "less" if value < 0 else "more"
    )
    return replace(change, change_ns=(value, low, high), direction=direction)
