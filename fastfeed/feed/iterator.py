"""Batches in order from some position on; across epoch ends without a pause."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

from fastfeed.feed.producer import BatchStream
from fastfeed.feed.stats import Meter
from fastfeed.runtime.timeline import Span, Timeline
from fastfeed.sampling.plan import Plan

__all__ = ["BatchIterator"]

T = TypeVar("T")


class BatchIterator(Generic[T]):
    """An iterator of batches, or of what was made of them."""

    def __init__(
        self, stream: BatchStream, plan: Plan, meter: Meter, timeline: Timeline, epoch: int, step: int
    ) -> None:
        self._stream, self._plan = stream, plan
        self.position = (epoch, step)  # of the batch that comes next
        self._meter, self._timeline, self._number = meter, timeline, 0

    def __iter__(self) -> BatchIterator[T]:
        return self

    def __next__(self) -> T:
        clock = self._timeline.clock
        asked = clock()
        self._meter.asked(asked, self._stream.ready)
        batch = next(self._stream)
        now = clock()
        self._meter.gave(asked, now, self._plan.batch)
        self._timeline.record(Span("wait", self._number, asked, now, threading.get_native_id()))
        self._number += 1
        epoch, step = self.position
        self.position = (epoch, step + 1) if step + 1 < self._plan.steps else (epoch + 1, 0)
        return batch

    @property
    def closed(self) -> bool:
        """No more batches will come."""
        return self._stream.closed

    def close(self) -> None:
        """Stop making batches."""
        self._stream.close()
