"""The samples of a step.

Those of the steps behind it are computed with them: one call costs as much as eight.
"""

from __future__ import annotations

import numpy as np

from fastfeed.sampling import SampleRefs
from fastfeed.sampling.plan import Plan
from fastfeed.sampling.rng import SLOT_SUBSTITUTE, uniform

_STEPS = 8


class StepSampleCache:
    """The visits of the steps of one plan; any thread may ask."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        # epoch, its number
        self._block: tuple[int, int, SampleRefs] = (
            -1,
            -1,
            SampleRefs.once(np.empty((0, 0), np.int64)),
        )

    def __call__(self, epoch: int, step: int) -> SampleRefs:
        """Samples of one step, as `plan.visits` returns them."""
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
                SampleRefs(visits.ids.reshape(shape), visits.occurrences.reshape(shape)),
            )
            self._block = block
        ids, occurrences = block[2]
        return SampleRefs(ids[row].copy(), occurrences[row])


def substitutes(seed: int, epoch: int, key: int, attempts: int, length: int) -> np.ndarray:
    """Positions in the epoch of samples to try in place of a bad one: int64, (attempts,).

    Positions, so that a substitute is drawn as all samples are: by class, by weight, from its share
    of a mixture.
    """
    u = uniform(seed, epoch, np.array([key]), SLOT_SUBSTITUTE, attempts)[0]
    return np.minimum((u * length).astype(np.int64), length - 1)
