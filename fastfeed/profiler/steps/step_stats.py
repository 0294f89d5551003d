"""How much of a step each thing takes, and how much that differs from step to step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fastfeed.profiler.attribution.attribution import Attribution, caused
from fastfeed.profiler.attribution.time_breakdown import BUSY
from fastfeed.profiler.model.causes import CAUSES, Cause
from fastfeed.profiler.model.intervals import measure, overlap
from fastfeed.profiler.model.result import Period, Spread, Steps
from fastfeed.profiler.model.statistics import MIN_STEPS, share

__all__ = ["spreads"]

_LEAST = 0.001  # of the judged time: less has no row


def spreads(found: Attribution, steps: Steps, judged: Period) -> Mapping[str, Spread]:
    """Per key, what the steady steps say: "step", "idle", the busy classes, and causes by their keys.

    Empty with fewer than 3 steady steps. What takes less than a thousandth of the time is left out.
    """
    rounds = steps.spans[steps.steady]
    if len(rounds) < MIN_STEPS:
        return {}
    length = overlap(rounds, judged.spans)
    causes = {CAUSES[cause].key: caused(found.slices, cause) for cause in Cause if judged.causes.get(cause)}
    sets = {name: found.busy[name] for name in BUSY} | {"idle": caused(found.slices, *Cause)} | causes
    made = {"step": _spread(rounds[:, 1] - rounds[:, 0], length)}
    for key, covered in sets.items():
        if measure(covered):
            spent = overlap(rounds, covered)
            if spent.sum() >= _LEAST * length.sum():
                made[key] = _spread(spent, length)
    return made


def _spread(spent: np.ndarray, length: np.ndarray) -> Spread:
    low, high = share(np.minimum(spent, length), length)
    return Spread(
        mean=round(float(spent.mean())),
        median=round(float(np.median(spent))),
        p95=round(float(np.percentile(spent, 95))),
        low=low,
        high=high,
    )
