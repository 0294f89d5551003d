"""Photographs' bytes in the order of a shard, read a little ahead of the work, never much of them at once."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fastfeed.preprocess.work import FREE
from fastfeed.sources.base import Fetching, Sharded, Source
from fastfeed.sources.spans import is_local

__all__ = ["LATER", "large", "reading"]

_AHEAD = 16  # photographs that wait, at most
_WAITING_S = 0.2  # beyond this a read counts as waiting

LATER: Any = object()  # in place of bytes: too many to be held beside others, `source.read` them when it is their turn


def large(source: Source, ids: Sequence[int]) -> list[int]:
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
def reading(
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
            size = large(self._source, [i])[0]
            try:
                found = LATER if size > FREE // 2 else self._source.read([i])[0]
            except BaseException as error:  # raised where the bytes are wanted
                found = error
            # beside what is large, nothing is read
            held = FREE if found is LATER else len(found) if isinstance(found, (bytes, bytearray)) else 0
            with self._change:
                self._change.wait_for(lambda: self._closed or (self._held < FREE // 2 and len(self._found) < _AHEAD))
                if self._closed:
                    return
                self._found.append((found, held))
                self._held += held
                self._change.notify_all()

    def walk(self, waiting: Callable[[], None]) -> Iterator[tuple[int, Any, float]]:
        from time import perf_counter

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
        self._pending: deque[Any] = deque()

    def walk(self, waiting: Callable[[], None]) -> Iterator[tuple[int, Any, float]]:
        from time import perf_counter

        begun_until = 0
        for k, i in enumerate(self._ids):
            if begun_until <= k + _AHEAD // 2 and begun_until < len(self._ids):  # some at a time: neighbors share reads
                more = self._ids[begun_until : k + _AHEAD]
                self._pending.extend(self._source.fetch(more))
                begun_until += len(more)
            begun, pending = perf_counter(), self._pending.popleft()
            try:
                found = pending.result(_WAITING_S)
            except TimeoutError:
                waiting()
                found = pending.result()
            yield i, found, perf_counter() - begun

    def close(self) -> None:
        for pending in self._pending:
            pending.cancel()
