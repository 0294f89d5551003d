"""Batches in order from some position on, made ahead; across epoch ends without a pause."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from fastfeed.assemble import Assembler
from fastfeed.batch import Batch
from fastfeed.prefetch import Ahead, Cancel, Job, Pool
from fastfeed.readahead import ReadAhead
from fastfeed.stats import Meter
from fastfeed.timeline import Span

__all__ = ["Walk"]


class Walk:
    """An iterator of batches. Holds its pool, so it outlives the feed that made it."""

    def __init__(
        self, assembler: Assembler, pool: Pool, depth: int, meter: Meter, epoch: int, step: int, epochs: int | None
    ) -> None:
        self._steps = assembler.plan.steps
        self.position = (epoch, step)  # of the batch that comes next
        self._meter, self._timeline, self._number = meter, assembler.timeline, 0
        self._stop = Cancel(pool)
        self._reads = assembler.ahead()
        jobs = _jobs(assembler, self._stop, self._reads, epoch, step, epochs)
        self._ahead = Ahead(pool, jobs, depth, self._stop)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        clock = self._timeline.clock
        asked = clock()
        self._meter.asked(asked, self._ahead.ready)
        batch = next(self._ahead)
        now = clock()
        self._meter.gave(asked, now, len(batch))
        self._timeline.record(Span("wait", self._number, asked, now, threading.get_native_id()))
        self._number += 1
        epoch, step = self.position
        self.position = (epoch, step + 1) if step + 1 < self._steps else (epoch + 1, 0)
        return batch

    @property
    def closed(self) -> bool:
        """No more batches will come."""
        return self._stop.is_set()

    def close(self) -> None:
        """Stop making batches."""
        self._ahead.close()
        if self._reads is not None:
            self._reads.close()


def _jobs(
    assembler: Assembler, stop: Cancel, reads: ReadAhead | None, epoch: int, step: int, epochs: int | None
) -> Iterator[Job[Batch]]:
    number, last = 0, None if epochs is None else epoch + epochs
    while epoch != last:
        while step < assembler.plan.steps:
            yield assembler.job(epoch, step, number, stop, reads)
            number, step = number + 1, step + 1
        epoch, step = epoch + 1, 0
