"""Photographs' bytes in the order of a shard, read a little ahead of the work, never much of them at once."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import TimeoutError as NotYet  # the builtin one from Python 3.11 on
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

from fastfeed.preprocess.task import FREE_BYTES
from fastfeed.sources.base import Fetching, Sharded, Source
from fastfeed.storage.byte_range import is_local

__all__ = ["DEFERRED", "known_sizes", "read_ahead"]

_AHEAD = 16  # photographs that wait, at most
_USUAL = 6_000_000  # bytes of a photograph, as long as nothing is known
_WAITING_S = 0.2  # beyond this a read counts as waiting

DEFERRED: Any = (
    object()
)  # in place of bytes: too many to be held beside others, `source.read` them when it is their turn


def known_sizes(source: Source, ids: Sequence[int]) -> list[int]:
    """Bytes of each photograph where that is known before it is read, else 0."""
    if isinstance(source, Sharded):
        return [int(size) for size in source.sizes(np.asarray(ids, np.int64))]
    found = []
    for i in ids:
        uri = source.uri(i)
        try:
            found.append(os.stat(uri).st_size if is_local(uri) else 0)
        except (OSError, ValueError):  # reading it will say so
            found.append(0)
    return found


@contextmanager
def read_ahead(
    source: Source, ids: Sequence[int], waiting: Callable[[], None]
) -> Iterator[Iterator[tuple[int, Any, float]]]:
    """Yields (id, bytes or Failure or LATER, seconds waited for it). `waiting` is called when that takes long."""
    ahead = _Remote(source, ids) if isinstance(source, Fetching) and source.remote else _Local(source, ids)
    try:
        yield ahead.walk(waiting)
    finally:
        ahead.close()


class _Local:
    """A thread that reads."""

    def __init__(self, source: Source, ids: Sequence[int]) -> None:
        self._source, self._ids = source, ids
        self._found: deque[tuple[Any, int]] = deque()  # what was read, and its bytes
        self._held = 0
        self._change, self._closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name="preprocess-read", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for i in self._ids:
            try:
                found = DEFERRED if known_sizes(self._source, [i])[0] > FREE_BYTES // 2 else self._source.read([i])[0]
            except BaseException as error:  # raised where the bytes are wanted
                found = error
            # beside what is large, nothing is read
            held = FREE_BYTES if found is DEFERRED else len(found) if isinstance(found, (bytes, bytearray)) else 0
            with self._change:
                self._change.wait_for(
                    lambda: self._closed or (self._held < FREE_BYTES // 2 and len(self._found) < _AHEAD)
                )
                if self._closed:
                    return
                self._found.append((found, held))
                self._held += held
                self._change.notify_all()

    def walk(self, waiting: Callable[[], None]) -> Iterator[tuple[int, Any, float]]:
        for i in self._ids:
            begun = perf_counter()
            with self._change:
                if not self._change.wait_for(lambda: self._found, _WAITING_S):
                    waiting()
                    self._change.wait_for(lambda: self._found)
                found, held = self._found.popleft()
            if isinstance(found, BaseException):
                raise found
            yield i, found, perf_counter() - begun
            del found
            with self._change:
                self._held -= held
                self._change.notify_all()

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()


class _Remote:
    """Requests under way; the source's own threads read."""

    def __init__(self, source: Any, ids: Sequence[int]) -> None:
        self._source, self._ids = source, ids
        self._sizes = known_sizes(source, ids)
        self._pending: deque[tuple[Any, float]] = deque()  # reads, and bytes that they give; None for LATER
        self._begun = 0
        self._seen, self._bytes = 1, float(_USUAL)  # photographs, and their bytes

    def walk(self, waiting: Callable[[], None]) -> Iterator[tuple[int, Any, float]]:
        for i in self._ids:
            if len(self._pending) <= _AHEAD // 2:
                self._begin()
            begun, (pending, _) = perf_counter(), self._pending.popleft()
            found = DEFERRED if pending is None else _result(pending, waiting)
            if isinstance(found, (bytes, bytearray)):
                self._seen, self._bytes = self._seen + 1, self._bytes + len(found)
            yield i, found, perf_counter() - begun
            del found

    def _begin(self) -> None:
        """Begin more reads, some at a time: neighbors share them."""
        more: list[int] = []
        usual, held = self._bytes / self._seen, sum(size for _, size in self._pending)
        while self._begun < len(self._ids) and len(self._pending) + len(more) < _AHEAD:
            known = self._sizes[self._begun]
            if known > FREE_BYTES // 2:
                self._fetch(more, usual)
                more = []
                self._pending.append((None, 0.0))
            else:
                held += known or usual
                if held > FREE_BYTES and (self._pending or more):
                    break
                more.append(self._begun)
            self._begun += 1
        self._fetch(more, usual)

    def _fetch(self, places: Sequence[int], usual: float) -> None:
        if places:
            pendings = self._source.fetch([self._ids[k] for k in places])
            sizes = [float(self._sizes[k] or usual) for k in places]
            self._pending.extend(zip(pendings, sizes, strict=True))

    def close(self) -> None:
        for pending, _ in self._pending:
            if pending is not None:
                pending.cancel()


def _result(pending: Any, waiting: Callable[[], None]) -> Any:
    try:
        return pending.result(_WAITING_S)
    except (NotYet, TimeoutError):
        waiting()
        return pending.result()
