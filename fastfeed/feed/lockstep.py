"""Feeds of one order that are iterated in turn, as by `zip`: their batches must hold the same
samples.

A feed replaces a bad sample by itself. If another feed with the same plan delivers the same step
next to it, for instance the masks of its images, the pair of that row would be of two different
samples.
"""

from __future__ import annotations

import threading
import weakref

import numpy as np

from fastfeed.errors import SampleError
from fastfeed.sampling.plan import Plan

__all__ = ["Lockstep"]

_LOCK = threading.Lock()  # of the set
_LIVE: weakref.WeakSet[Lockstep] = weakref.WeakSet()

Position = tuple[int, int]  # epoch, step


class Lockstep:
    """Position of one iteration, and the iterations that were at the same step at its last
    batch.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._key = (plan.samples, plan.global_batch, plan.seed, plan.tail, plan.mixed, plan.world)
        self._position: Position | None = None  # of the last batch that was delivered
        self._ids = np.empty(0, np.int64)
        self._alongside: weakref.WeakSet[Lockstep] = weakref.WeakSet()
        with _LOCK:
            _LIVE.add(self)

    def delivered(self, position: Position, ids: np.ndarray) -> None:
        """Note a batch that is about to be delivered.

        Raises:
            SampleError: If an iteration that is taken from in turn with this one has delivered
                other samples for the same step of the same order.
        """
        with _LOCK:
            same = [
                other for other in _LIVE if other._key == self._key and other._position == position
            ]
        first, before = self._position is None, self._alongside
        self._position, self._ids, self._alongside = position, ids, weakref.WeakSet(same)
        for other in same:
            if other is not self and (first or other in before):
                self._compare(other, position)

    def end(self) -> None:
        """Deliver no more."""
        with _LOCK:
            _LIVE.discard(self)

    def _compare(self, other: Lockstep, position: Position) -> None:
        differing = np.flatnonzero(self._ids != other._ids)
        if not len(differing) or not np.array_equal(
            self._plan.ids(*position), other._plan.ids(*position)
        ):
            return
        row, (epoch, step) = int(differing[0]), position
        raise SampleError(
            f"feeds of one order that are iterated together differ at epoch {epoch}, step {step}:"
            f" row {row} is sample {self._ids[row]} here and {other._ids[row]} there, since a bad"
            ' sample was replaced in one of them; pass on_bad="mask" to both and multiply their'
            " weights, so that pairs stay together. Feeds that are no pairs take different seeds"
        )
