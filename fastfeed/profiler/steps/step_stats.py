"""Time per step of each class and cause, the share lost to input, and their spread."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise

import numpy as np

from fastfeed.profiler.attribution.attribution import Attribution, spans_with_cause
from fastfeed.profiler.attribution.gaps import BUSY
from fastfeed.profiler.model.causes import STARVED, Cause
from fastfeed.profiler.model.intervals import intersect, measure, overlap, union
from fastfeed.profiler.model.result import Period, Share, Spread, Steps
from fastfeed.profiler.model.statistics import MIN_STEPS, share

_PARTS = 20  # equal parts of the window that stand in for missing steps


def step_spreads(attribution: Attribution, steps: Steps, judged: Period) -> Mapping[str, Spread]:
    """Statistics over steady steps by key: "step", "idle", busy classes, causes.

    Means are rounded so that they add up: the busy classes and "idle" to the step, the causes to
    "idle". Empty with fewer than 3 steady steps, or if they are not what is judged.
    """
    steady = steps.spans[steps.steady]
    if len(steady) < MIN_STEPS:
        return {}
    length = overlap(steady, judged.spans)
    sets = {name: attribution.busy[name] for name in BUSY if measure(attribution.busy[name])}
    for cause in Cause:
        if judged.ns(cause):
            sets[cause.key] = spans_with_cause(attribution.slices, cause)
    spent = {key: overlap(steady, covered) for key, covered in sets.items()}
    spent = {key: each for key, each in spent.items() if each.any()}
    means = _means([int(each.sum()) for each in spent.values()], len(steady))
    result = {"step": _spread(length, length, round(int(length.sum()) / len(steady)))}
    causes = {}
    for (key, each), mean in zip(spent.items(), means, strict=True):
        (result if key in BUSY else causes)[key] = _spread(each, length, mean)
    if causes:
        idle = overlap(steady, spans_with_cause(attribution.slices, *Cause))
        result["idle"] = _spread(idle, length, sum(spread.mean for spread in causes.values()))
    return result | causes


def _means(sums: list[int], count: int) -> list[int]:
    """Each sum divided by the count, rounded so that the results add up."""
    edges = [round(total / count) for total in accumulate(sums, initial=0)]
    return [end - start for start, end in pairwise(edges)]


def _spread(spent: np.ndarray, length: np.ndarray, mean: int) -> Spread:
    low, high = share(np.minimum(spent, length), length)
    return Spread(
        mean=mean,
        median=round(float(np.median(spent))),
        p95=round(float(np.percentile(spent, 95))),
        low=low,
        high=high,
    )


def measure_share(steps: Steps, judged: Period, *lost: np.ndarray) -> Share:
    """The part of the judged period that these sets cover, and its spread over steps."""
    covered = intersect(union(*lost), judged.spans)
    value = judged.share(measure(covered))
    windows = steps.spans[steps.steady]
    if 0 < len(windows) < MIN_STEPS and measure(judged.spans) <= measure(union(windows)):
        return Share(value)
    if len(windows) < MIN_STEPS:
        first, last = (
            map(int, (judged.spans[0, 0], judged.spans[-1, 1])) if len(judged.spans) else (0, 0)
        )
        edges = np.array([first + (last - first) * part // _PARTS for part in range(_PARTS + 1)])
        windows = np.column_stack([edges[:-1], edges[1:]])
        parts = overlap(windows, covered)
        wholes = overlap(windows, judged.spans)
        return Share(value, *_interval(value, parts, wholes))
    parts = overlap(windows, covered)
    wholes = overlap(windows, judged.spans)
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
