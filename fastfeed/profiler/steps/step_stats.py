"""How much of a step each class of time and each cause takes, and how much that varies from step to step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fastfeed.profiler.attribution.attribution import Attribution, spans_with_cause
from fastfeed.profiler.attribution.time_breakdown import BUSY
from fastfeed.profiler.model.causes import CAUSES, Cause
from fastfeed.profiler.model.intervals import measure, overlap
from fastfeed.profiler.model.result import Period, Spread, Steps
from fastfeed.profiler.model.statistics import MIN_STEPS, share

__all__ = ["step_spreads"]

_MIN_SHARE = 0.001  # of the judged time: a smaller share has no row


def step_spreads(attribution: Attribution, steps: Steps, judged: Period) -> Mapping[str, Spread]:
    """Per-step statistics of the steady steps by key: "step", "idle", the busy classes, and causes by their keys.

    Empty with fewer than 3 steady steps. Anything below a thousandth of the time is left out.
    """
    steady = steps.spans[steps.steady]
    if len(steady) < MIN_STEPS:
        return {}
    length = overlap(steady, judged.spans)
    causes = {
        CAUSES[cause].key: spans_with_cause(attribution.slices, cause) for cause in Cause if judged.causes.get(cause)
    }
    sets = (
        {name: attribution.busy[name] for name in BUSY}
        | {"idle": spans_with_cause(attribution.slices, *Cause)}
        | causes
    )
    result = {"step": _spread(steady[:, 1] - steady[:, 0], length)}
    for key, covered in sets.items():
        if measure(covered):
            spent = overlap(steady, covered)
            if spent.sum() >= _MIN_SHARE * length.sum():
                result[key] = _spread(spent, length)
    return result


def _spread(spent: np.ndarray, length: np.ndarray) -> Spread:
    low, high = share(np.minimum(spent, length), length)
    return Spread(
        mean=round(float(spent.mean())),
        median=round(float(np.median(spent))),
        p95=round(float(np.percentile(spent, 95))),
        low=low,
        high=high,
    )
