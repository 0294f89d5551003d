"""The batches of each mode, as the trainer gets them: after the adapter's place function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any, Protocol

import numpy as np

from fastfeed.feed.iterator import BatchIterator
from fastfeed.feed.producer import BatchStream, PlaceFunction
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.buffers import Allocate
from fastfeed.runtime.placement import flatten
from fastfeed.runtime.thread_pool import CancelToken, ParallelJob, Prefetcher, ThreadPool


class Batches(Protocol):
    """Source of batches during one block."""

    def next(self) -> Any: ...

    def close(self) -> None: ...


class Resident:
    """One batch, always the same: nothing is read, made or copied."""

    def __init__(self, placed: Any) -> None:
        self._placed = placed

    def next(self) -> Any:
        return self._placed

    def close(self) -> None:
        pass


class Cached:
    """Finished batches, placed by a separate thread as far ahead as the feed works."""

    def __init__(
        self, pool: ThreadPool, batches: Sequence[Batch], place: PlaceFunction | None, depth: int
    ) -> None:
        if place is None:
            self._placed: Iterator[Any] = cycle(batches)
            self.close = lambda: None
            return
        stop = CancelToken(pool)
        prefetcher: Prefetcher[Any] = Prefetcher(pool, _jobs(batches, place, stop), depth, stop)
        self._placed = prefetcher
        self.close = prefetcher.close

    def next(self) -> Any:
        return next(self._placed)


class Busy:
    """Cached batches, while the feed makes one per step that no one waits for.

    It never gets further behind than its queue is long, as with a trainer that does wait.
    """

    def __init__(self, cached: Cached, stream: BatchStream, depth: int) -> None:
        self._cached = cached
        self._stream = stream
        self._depth = depth
        self._owed = 0  # batches that a trainer would have taken
        self._begun = False

    def next(self) -> Any:
        # the first request starts the threads; it is the only one that waits, and does not count
        if not self._begun:
            self._begun = True
            next(self._stream)
        self._owed = min(self._owed + 1, self._depth + 1)
        while self._owed and self._stream.ready:
            next(self._stream)
            self._owed -= 1
        return self._cached.next()

    def close(self) -> None:
        self._stream.close()
        self._cached.close()


class Real:
    """The feed's own batches; it counts and records them as in any other run."""

    def __init__(self, batches: BatchIterator[Any]) -> None:
        self._batches = batches

    def next(self) -> Any:
        return next(self._batches)

    def close(self) -> None:
        self._batches.close()


def copied(batch: Batch, allocate: Allocate) -> Batch:
    """Copy a batch out of the feed's buffers, which are few and needed for real batches."""
    arrays, rebuild = flatten(batch)
    return rebuild(iter([_copy(array, allocate) for array in arrays]))


def _copy(array: Any, allocate: Allocate) -> Any:
    if not isinstance(array, np.ndarray):  # decoded on a GPU
        return array.copy()
    own = allocate(array.shape, array.dtype.name) if array.nbytes else np.empty_like(array)
    own[...] = array
    return own


def _jobs(
    batches: Sequence[Batch], place: PlaceFunction, stop: CancelToken
) -> Iterator[ParallelJob[Any]]:
    for batch in cycle(batches):
        yield ParallelJob(stop, [], lambda batch=batch: place(batch))
