"""The samples of a step.

Those of the steps behind it are computed with them: one call costs as much as eight.
"""

from __future__ import annotations

import numpy as np

from fastfeed.sampling import Visits
from fastfeed.sampling.plan import Plan

__all__ = ["StepVisits"]

_STEPS = 8


class StepVisits:
    """The visits of the steps of one plan; any thread may ask."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        # epoch, its number
        self._block: tuple[int, int, Visits] = (
            -1,
            -1,
            Visits.once(np.empty((0, 0), np.int64)),
        )

    def __call__(self, epoch: int, step: int) -> Visits:
        """As `plan.visits`."""
        number, row = divmod(step, _STEPS)
        block = self._block
        if block[:2] != (epoch, number):
            plan, first = self._plan, number * _STEPS
            firsts = np.array(
                [plan.first(other) for other in range(first, min(first + _STEPS, plan.steps))]
            )
            visits = plan.at(epoch, (firsts[:, None] + np.arange(plan.batch)).reshape(-1))
            shape = len(firsts), plan.batch
            block = (
                epoch,
                number,
                Visits(visits.ids.reshape(shape), visits.occurrences.reshape(shape)),
            )
            self._block = block
        ids, occurrences = block[2]
        return Visits(ids[row].copy(), occurrences[row])
