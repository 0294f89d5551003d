"""The share of a window that input costs, and its spread over steps."""

from __future__ import annotations

import numpy as np

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.intervals import intersect, measure, overlap, union
from fastfeed.profiler.model.result import Period, Share, Steps
from fastfeed.profiler.model.statistics import MIN_STEPS, share
from fastfeed.profiler.model.thresholds import STARVED

__all__ = ["STARVING", "share_of"]

STARVING = (Cause.INPUT, Cause.H2D_STAGING)  # what counts as waiting for input

_PARTS = 20  # where there are no steps, equal parts of the window take their place


def share_of(steps: Steps, judged: Period, *lost: np.ndarray) -> Share:
    """How much of the judged period these sets of nanoseconds cover, with what the steps say of its spread."""
    covered = intersect(union(*lost), judged.spans)
    window = max(judged.budget.window, 1)
    value = measure(covered) / window
    rounds = steps.spans[steps.steady]
    if len(rounds) < MIN_STEPS:
        first, last = map(int, (judged.spans[0, 0], judged.spans[-1, 1])) if len(judged.spans) else (0, 0)
        edges = np.array([first + (last - first) * part // _PARTS for part in range(_PARTS + 1)])
        rounds = np.column_stack([edges[:-1], edges[1:]])
        parts, wholes = overlap(rounds, covered), overlap(rounds, judged.spans)
        low, high = share(parts, wholes)
        return Share(value, min(low, value), max(high, value))
    parts, wholes = overlap(rounds, covered), overlap(rounds, judged.spans)
    low, high = share(parts, wholes)
    each = parts / np.maximum(wholes, 1)
    return Share(
        value,
        min(low, value),
        max(high, value),
        median=float(np.median(each)),
        p95=float(np.percentile(each, 95)),
        steps_over=float(np.mean(each > STARVED)),
    )
