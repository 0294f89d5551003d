"""Time of each class and cause per step, and its spread."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise

import numpy as np

from fastfeed.profiler.attribution.attribution import Attribution, spans_with_cause
from fastfeed.profiler.attribution.time_breakdown import BUSY
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.intervals import measure, overlap
from fastfeed.profiler.model.result import Period, Spread, Steps
from fastfeed.profiler.model.statistics import MIN_STEPS, share

__all__ = ["step_spreads"]


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
        if judged.causes.get(cause):
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
