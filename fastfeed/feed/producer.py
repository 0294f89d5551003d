"""Who makes batches ahead of the trainer: the threads of this process, or a helper process (`side`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from fastfeed.feed.batch_builder import Assembler
from fastfeed.feed.readahead import ReadAhead
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.buffers import Allocate
from fastfeed.runtime.thread_pool import Ahead, Cancel, Job, Pool

__all__ = ["Maker", "Making", "Place", "ThreadMaker"]

Place = Callable[[Batch], Any]  # what is done with a finished batch before its turn, such as a copy to the device


class Making(Protocol):
    """Batches under way, in order; an error comes at its batch's turn."""

    def __next__(self) -> Any: ...

    @property
    def ready(self) -> int:
        """How many can be had without waiting."""
        ...

    @property
    def closed(self) -> bool:
        """No more will come."""
        ...

    def close(self) -> None: ...


class Maker(Protocol):
    """Begins to make batches at any position."""

    def begin(self, epoch: int, step: int, epochs: int | None, place: Place | None, raw: bool) -> Making:
        """`raw`: images as bytes, before conversion, which is left to the device."""
        ...

    def use_memory(self, allocate: Allocate) -> None:
        """Make images in memory of this kind from now on."""
        ...

    def close(self) -> None: ...


class ThreadMaker:
    """The threads of this process."""

    def __init__(self, assembler: Assembler, raw: Assembler, threads: int, depth: int) -> None:
        self._assembler, self._raw, self._pool, self._depth = assembler, raw, Pool(threads), depth
        self.close = self._pool.close

    def use_memory(self, allocate: Allocate) -> None:
        for assembler in (self._assembler, self._raw):
            if assembler.backend.xp is np:  # a GPU's batches are in its memory
                for branch in assembler.branches:
                    branch.slots.come_from(allocate)

    def begin(self, epoch: int, step: int, epochs: int | None, place: Place | None, raw: bool) -> Making:
        assembler = self._raw if raw else self._assembler
        return _Threads(assembler, self._pool, self._depth, (epoch, step), epochs, place)


class _Threads:
    """Holds its pool, so it outlives the feed that began it."""

    def __init__(
        self,
        assembler: Assembler,
        pool: Pool,
        depth: int,
        start: tuple[int, int],
        epochs: int | None,
        place: Place | None,
    ) -> None:
        self._stop = Cancel(pool)
        self._reads = assembler.ahead()
        jobs = _jobs(assembler, self._stop, self._reads, start, epochs, place)
        self._ahead = Ahead(pool, jobs, depth, self._stop)

    def __next__(self) -> Any:
        return next(self._ahead)

    @property
    def ready(self) -> int:
        return self._ahead.ready

    @property
    def closed(self) -> bool:
        return self._stop.is_set()

    def close(self) -> None:
        self._ahead.close()
        if self._reads is not None:
            self._reads.close()


def _jobs(
    assembler: Assembler,
    stop: Cancel,
    reads: ReadAhead | None,
    start: tuple[int, int],
    epochs: int | None,
    place: Place | None,
) -> Iterator[Job[Any]]:
    epoch, step = start
    number, last = 0, None if epochs is None else epoch + epochs
    while epoch != last:
        while step < assembler.plan.steps:
            job = assembler.job(epoch, step, number, stop, reads)
            yield job if place is None else job.then(_timed(assembler, place, number))
            number, step = number + 1, step + 1
        epoch, step = epoch + 1, 0


def _timed(assembler: Assembler, place: Place, number: int) -> Place:
    def placed(batch: Batch) -> Any:
        with assembler.timeline.span("place", number):
            return place(batch)

    return placed
