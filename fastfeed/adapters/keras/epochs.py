"""Iterates a feed epoch by epoch, as Keras requests it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastfeed.adapters.batch_tuples import BatchTuples
from fastfeed.adapters.keras.checks import callers
from fastfeed.feed.fields import Yields
from fastfeed.feed.producer import PlaceFunction
from fastfeed.feed.session import FeedSession
from fastfeed.printable import log
from fastfeed.runtime.placement import Placement, on_host

_PEEKING = {"_symbolic_build", "_maybe_symbolic_build"}


class Epochs:
    """Keras may take a batch to learn its shapes, and then begin again: it is given zeros.

    `peeks`: this version takes it where we cannot tell, in the first fit; that one is given once
    more, unless the feed has been moved since. Any other iteration is like iterating the feed: if
    interrupted, the next one is the next epoch.
    """

    def __init__(
        self,
        session: FeedSession,
        yields: Yields | None = None,
        factors: np.ndarray | None = None,
        peeks: bool = False,
    ) -> None:
        self.session = session
        self._peeks = peeks
        self.tuples = BatchTuples.of(session, yields, weighted=True, factors=factors, lists=False)
        self._placement: Placement | None = None
        self._place = _host(self.tuples)
        self.endless = False  # the next epoch follows, within an iteration
        self._live: Iterator[tuple[int, Any]] = iter(())
        self._delivered = 0  # batches, in all
        self._peeked: tuple[int, Any] | None = None  # the first, while it is the only one
        self._moves = session.cursor.moves

    def walk(self) -> Iterator[Any]:
        """One epoch, or all, of (images, labels[, weights]), or what `yields` says."""
        if is_keras_peeking():
            yield self.zeros()
            return
        while True:
            for _, placed in self._batches():
                yield self.tuples.nested(
                    placed if self._placement is None else self._placement.take(placed)
                )
            if not self.endless:
                return

    def zeros(self) -> Any:
        """Shapes and types of a batch: zeros, weights of 1, empty texts."""
        plan = self.session.plan
        arrays = []
        batch = plan.rows_of(min(plan.counts)) if plan.counts else plan.batch  # of the largest size
        for field in self.tuples.fields:
            shape = batch, *(side or 0 for side in field.largest or field.shape)
            numbers = np.full(shape, field.name == "weight", field.dtype)
            arrays.append(numbers if field.is_array else np.full(batch, "", object))
        return self.tuples.nested(arrays)

    def use(self, placement: Placement) -> None:
        """Place the batches of later iterations on this device."""
        if self._placement is None or self._placement.name != placement.name:
            self._placement = placement
            self._place = _device(self.tuples, placement)
            self.session.place_on(placement, names=self.tuples.names)

    def _batches(self) -> Iterator[tuple[int, Any]]:
        if self._peeked is not None and self._moves == self.session.cursor.moves:
            yield self._peeked
        else:
            self._live = self.session.placed(self._place)
        self._peeked = None
        first = -1
        for step, placed in self._live:
            first = step if first < 0 else first
            self._delivered += 1
            if self._peeks and self._delivered == 1 and step + 1 < len(self.session):
                self._peeked = (step, placed)
                self._moves = self.session.cursor.moves
            yield step, placed
            self._peeked = None
        if first > 0 and not self.endless:
            log.warning(
                "this epoch began at step %d of %d, where it was resumed, so it is shorter for"
                " Keras, which says that the input ran out of data; nothing was left out, and the"
                " next epoch is complete",
                first,
                len(self.session),
            )


def is_keras_peeking() -> bool:
    """Keras wants to see a batch, on this thread, to build a model with; it will not train on it.

    A batch, or several that a framework takes ahead, would be lost to training.
    """
    return any(frame.f_code.co_name in _PEEKING for frame in callers())


def _host(tuples: BatchTuples) -> PlaceFunction:
    return lambda batch: (batch.step, tuple(on_host(array) for array in tuples(batch)))


def _device(tuples: BatchTuples, placement: Placement) -> PlaceFunction:
    return lambda batch: (batch.step, placement.put(tuples(batch)))
