"""Images in the order of a shard, read ahead within a bound on memory."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import TimeoutError as NotYet  # the builtin one from Python 3.11 on
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

from fastfeed.errors import FastfeedError
from fastfeed.faults import Failure
from fastfeed.preprocess.model.record import combined_sum
from fastfeed.preprocess.model.task import FREE_BYTES, to_decode_failure
from fastfeed.sources.base import Fetching, Sharded, Source
from fastfeed.storage.reads import Completed, Pending, is_local

_AHEAD = 16  # images read ahead, at most
_TYPICAL = 6_000_000  # bytes of an image, until sizes are known
_SLOW_S = 0.2  # a read that takes longer calls on_wait

# instead of bytes: too large to read ahead, to be read with `source.read` in its turn
DEFERRED: Any = object()


class EachImage:
    """The images of a source with several as samples: image k of n of sample i is i * n + k.

    Args:
        images: Sources of the images.
    """

    def __init__(self, images: Sequence[Source]) -> None:
        self.images = tuple(images)
        self.remote = any(isinstance(own, Fetching) and own.remote for own in self.images)

    def place(self, id: int) -> tuple[Source, int]:
        """The source of an image, and its id there."""
        sample, k = divmod(id, len(self.images))
        return self.images[k], sample

    def uri(self, i: int) -> str:
        """Address of image i, as its source names it."""
        source, sample = self.place(i)
        return source.uri(sample)

    def read(self, ids: Sequence[int]) -> list[Any]:
        """Read encoded images by their ids."""
        return [source.read([sample])[0] for source, sample in map(self.place, ids)]

    def fetch(self, ids: Sequence[int]) -> list[Pending]:
        """Start reading images, those of each source together."""
        pending: dict[int, Pending] = {}
        count = len(self.images)
        for k, source in enumerate(self.images):
            own = [i for i in ids if i % count == k]
            samples = [i // count for i in own]
            if isinstance(source, Fetching) and source.remote:
                reads = source.fetch(samples)
            else:
                reads = map(Completed, source.read(samples))
            pending |= zip(own, reads, strict=True)
        return [pending[i] for i in ids]


def read_sums(source: Source, ids: Sequence[int]) -> list[str]:
    """The sha256 of each sample's content as in `content_sum`; "" if it cannot be read."""
    images = getattr(source, "together", None) or {"": source}
    columns = [
        [
            hashlib.sha256(blob).hexdigest() if isinstance(blob, bytes) else ""
            for blob in read_each(own, ids)
        ]
        for own in images.values()
    ]
    rows = [dict(zip(images, sums, strict=True)) for sums in zip(*columns, strict=True)]
    first = next(iter(images))
    return [combined_sum(sums.pop(first), sums) for sums in rows]


def known_sizes(source: Source, ids: Sequence[int]) -> list[int]:
    """Size in bytes of each image, if known without reading it, else 0."""
    if isinstance(source, EachImage):
        return [known_sizes(own, [sample])[0] for own, sample in map(source.place, ids)]
    if isinstance(source, Sharded):
        return [int(size) for size in source.sizes(np.asarray(ids, np.int64))]
    sizes = []
    for i in ids:
        uri = source.uri(i)
        try:
            sizes.append(os.stat(uri).st_size if is_local(uri) else 0)
        except (OSError, ValueError):  # reported when it is read
            sizes.append(0)
    return sizes


def read_failure(source: Source, i: int, error: Exception) -> Failure:
    """The failure of a sample whose reading raised `error`; FastfeedErrors are raised again."""
    if isinstance(error, FastfeedError):
        raise error
    fault = to_decode_failure(error)
    try:
        uri = source.uri(i)
    except Exception:  # code of the user's, which may be what failed
        uri = f"sample {i}"
    return Failure(i, uri, "read", "internal", fault.detail)


def read_each(source: Source, ids: Sequence[int]) -> list[Any]:
    """Read as `source.read`, with a Failure for each sample whose reading raises."""
    try:
        return source.read(ids)
    except Exception as error:
        if len(ids) == 1:
            return [read_failure(source, ids[0], error)]
    return [read_each(source, [i])[0] for i in ids]


@contextmanager
def read_ahead(
    source: Source, ids: Sequence[int], on_wait: Callable[[], None]
) -> Iterator[Iterator[tuple[int, Any, float]]]:
    """Yield (id, bytes or Failure or DEFERRED, seconds waited); slow reads call `on_wait`."""
    is_remote = isinstance(source, Fetching) and source.remote
    ahead = _Remote(source, ids) if is_remote else _Local(source, ids)
    try:
        yield ahead.walk(on_wait)
    finally:
        ahead.close()


class _Local:
    """Reads ahead in a thread."""

    def __init__(self, source: Source, ids: Sequence[int]) -> None:
        self._source = source
        self._ids = ids
        self._results: deque[tuple[Any, int]] = deque()  # what was read, and its size
        self._held_bytes = 0
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="preprocess-read", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for i in self._ids:
            try:
                blob = self._read(i)
            except BaseException as error:  # raised in the consumer
                blob = error
            blob_bytes = len(blob) if isinstance(blob, (bytes, bytearray)) else 0
            if blob is DEFERRED:
                blob_bytes = FREE_BYTES  # nothing else is read while a large file waits
            with self._change:
                self._change.wait_for(self._has_room)
                if self._closed:
                    return
                self._results.append((blob, blob_bytes))
                self._held_bytes += blob_bytes
                self._change.notify_all()

    def _has_room(self) -> bool:
        is_room = self._held_bytes < FREE_BYTES // 2 and len(self._results) < _AHEAD
        return self._closed or is_room

    def _read(self, i: int) -> Any:
        try:
            if known_sizes(self._source, [i])[0] > FREE_BYTES // 2:
                return DEFERRED
        except Exception as error:
            return read_failure(self._source, i, error)
        return read_each(self._source, [i])[0]

    def walk(self, on_wait: Callable[[], None]) -> Iterator[tuple[int, Any, float]]:
        for i in self._ids:
            started = perf_counter()
            with self._change:
                if not self._change.wait_for(lambda: self._results, _SLOW_S):
                    on_wait()
                    self._change.wait_for(lambda: self._results)
                blob, blob_bytes = self._results.popleft()
            if isinstance(blob, BaseException):
                raise blob
            yield i, blob, perf_counter() - started
            del blob
            with self._change:
                self._held_bytes -= blob_bytes
                self._change.notify_all()

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()


class _Remote:
    """Keeps requests in flight; the source's own threads read."""

    def __init__(self, source: Any, ids: Sequence[int]) -> None:
        self._source = source
        self._ids = ids
        self._sizes = known_sizes(source, ids)
        # reads and their sizes; None for DEFERRED
        self._pending: deque[tuple[Any, float]] = deque()
        self._next = 0
        # images read, and their size
        self._sizes_seen = 1
        self._total_bytes = float(_TYPICAL)

    def walk(self, on_wait: Callable[[], None]) -> Iterator[tuple[int, Any, float]]:
        for i in self._ids:
            if len(self._pending) <= _AHEAD // 2:
                self._start_reads()
            started = perf_counter()
            (pending, _) = self._pending.popleft()
            try:
                blob = DEFERRED if pending is None else _result(pending, on_wait)
            except Exception as error:
                blob = read_failure(self._source, i, error)
            if isinstance(blob, (bytes, bytearray)):
                self._sizes_seen += 1
                self._total_bytes += len(blob)
            yield i, blob, perf_counter() - started
            del blob

    def _start_reads(self) -> None:
        """Start more reads, several at a time: neighbors share requests."""
        batch: list[int] = []
        mean = self._total_bytes / self._sizes_seen
        pending_bytes = sum(bytes for _, bytes in self._pending)
        while self._next < len(self._ids) and len(self._pending) + len(batch) < _AHEAD:
            size = self._sizes[self._next]
            if size > FREE_BYTES // 2:
                self._fetch(batch, mean)
                batch = []
                self._pending.append((None, 0.0))
            else:
                pending_bytes += size or mean
                if pending_bytes > FREE_BYTES and (self._pending or batch):
                    break
                batch.append(self._next)
            self._next += 1
        self._fetch(batch, mean)

    def _fetch(self, positions: Sequence[int], mean: float) -> None:
        if positions:
            pendings = self._begin([self._ids[k] for k in positions])
            sizes = [float(self._sizes[k] or mean) for k in positions]
            self._pending.extend(zip(pendings, sizes, strict=True))

    def _begin(self, ids: Sequence[int]) -> Sequence[Any]:
        """Begin reads as `fetch`; a sample whose read cannot begin has failed."""
        try:
            return self._source.fetch(ids)
        except Exception as error:
            if len(ids) == 1:
                return [Completed(read_failure(self._source, ids[0], error))]
        return [self._begin([i])[0] for i in ids]

    def close(self) -> None:
        for pending, _ in self._pending:
            if pending is not None:
                pending.cancel()


def _result(pending: Any, on_wait: Callable[[], None]) -> Any:
    try:
        return pending.result(_SLOW_S)
    except (NotYet, TimeoutError):
        on_wait()
        return pending.result()
