"""The share of a window lost to input, and its spread over steps."""

from __future__ import annotations

import numpy as np

from fastfeed.profiler.model.causes import INPUT_CAUSES, Cause
from fastfeed.profiler.model.intervals import intersect, measure, overlap, union
from fastfeed.profiler.model.result import Period, Share, Steps
from fastfeed.profiler.model.statistics import MIN_STEPS, share
from fastfeed.profiler.model.thresholds import STARVED

__all__ = ["STARVING", "share_of"]

STARVING = (*INPUT_CAUSES, Cause.H2D_STAGING)  # what counts as waiting for input

_PARTS = 20  # equal parts of the window that stand in for steps if there are none


def share_of(steps: Steps, judged: Period, *lost: np.ndarray) -> Share:
    """The part of the judged period that these sets cover, and its spread over steps."""
    covered = intersect(union(*lost), judged.spans)
    window = max(judged.budget.window, 1)
    value = measure(covered) / window
    windows = steps.spans[steps.steady]
    if 0 < len(windows) < MIN_STEPS and measure(judged.spans) <= measure(union(windows)):
        return Share(value)
    if len(windows) < MIN_STEPS:
        first, last = (
            map(int, (judged.spans[0, 0], judged.spans[-1, 1])) if len(judged.spans) else (0, 0)
        )
        edges = np.array([first + (last - first) * part // _PARTS for part in range(_PARTS + 1)])
        windows = np.column_stack([edges[:-1], edges[1:]])
        parts, wholes = overlap(windows, covered), overlap(windows, judged.spans)
        return Share(value, *_interval(value, parts, wholes))
    parts, wholes = overlap(windows, covered), overlap(windows, judged.spans)
    step_shares = parts / np.maximum(wholes, 1)
    return Share(
        value,
        *_interval(value, parts, wholes),
        median=float(np.median(step_shares)),
        p95=float(np.percentile(step_shares, 95)),
        steps_over=float(np.mean(step_shares > STARVED)),
    )


def _interval(
    value: float, parts: np.ndarray, wholes: np.ndarray
) -> tuple[float | None, float | None]:
    """The interval around the value; None if all parts are alike, which shows no spread."""
    low, high = share(parts, wholes)
    return (None, None) if low == high else (min(low, value), max(high, value))
