"""Reads through the disk cache: what is missing is fetched in whole chunks, each once however many ask for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from fastfeed.storage.byte_range import Span, Stat
from fastfeed.storage.disk_cache import Cache, Chunk
from fastfeed.storage.retry import Unread

__all__ = ["Cached", "Chunks", "Pieces"]

Pieces: TypeAlias = "dict[int, bytes] | Unread"  # parts of a span by the numbers of their chunks
_Key = tuple[str, Stat, int]


@dataclass(slots=True)
class _Flight:
    task: asyncio.Task[bytes | Unread]
    waiting: int = 0


class Chunks:
    """Those that are under way. For one event loop, hence no lock."""

    def __init__(self, fetch: Callable[[Span, Chunk], Awaitable[bytes | Unread]]) -> None:
        self._fetch = fetch
        self._flights: dict[_Key, _Flight] = {}

    async def pieces(self, span: Span, chunks: Sequence[Chunk]) -> Pieces:
        """The parts of the span that lie in these chunks. Only these are held on to, not the chunks."""
        found = await asyncio.gather(*(self._piece(span, chunk) for chunk in chunks))
        pieces: dict[int, bytes] = {}
        for chunk, piece in zip(chunks, found, strict=True):
            if isinstance(piece, Unread):
                return piece
            pieces[chunk.number] = piece
        return pieces

    async def _piece(self, span: Span, chunk: Chunk) -> bytes | Unread:
        assert span.whole is not None
        key = (span.uri, span.whole, chunk.number)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(self._fetch(span, chunk)))
            flight.task.add_done_callback(partial(self._landed, key, flight))
        flight.waiting += 1
        try:
            data = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():  # nobody asks for it any more
                flight.task.cancel()
                self._landed(key, flight)
        return data if isinstance(data, Unread) else _within(span, chunk, data)

    def _landed(self, key: _Key, flight: _Flight, _: object = None) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


def _within(span: Span, chunk: Chunk, data: bytes) -> bytes:
    """What of a chunk belongs to the span."""
    assert span.stop is not None
    start, stop = max(span.start - chunk.start, 0), min(span.stop, chunk.stop) - chunk.start
    return data if stop - start == len(data) else data[start:stop]


class Cached:
    """A pending span of which the cache has all, some or nothing. What it has is read by the thread that takes it."""

    def __init__(
        self,
        span: Span,
        cache: Cache,
        work: Future[Pieces] | None,  # fetches what was missing
        fetch: Callable[[Sequence[Chunk]], Future[Pieces]],  # for what is removed in the meantime
    ) -> None:
        assert span.whole is not None and span.stop is not None
        self._span, self._whole, self._stop = span, span.whole, span.stop
        self._cache, self._work, self._fetch = cache, work, fetch
        self._pieces: dict[int, bytes] = {}

    def done(self) -> bool:
        """All that was missing is there."""
        return self._work is None or self._work.done()

    def cancel(self) -> object:
        """Nobody will ask."""
        return self._work is not None and self._work.cancel()

    def result(self, timeout: float | None = None) -> bytes | Unread:
        """The bytes, from cache and storage. After a TimeoutError it may be asked for again."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._work is not None:
                found = self._work.result(None if end is None else max(0.0, end - time.monotonic()))
                if isinstance(found, Unread):
                    return found
                self._pieces |= found
                self._work = None
            parts, absent = self._collect()
            if not absent:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            self._work = self._fetch(absent)  # removed since they were looked for, or not readable

    def _collect(self) -> tuple[list[bytes], list[Chunk]]:
        """All pieces in order, less those that are in neither place."""
        span, whole, size = self._span, self._whole, self._cache.chunk
        parts, absent = [], []
        for number in range(span.start // size, (self._stop - 1) // size + 1):
            chunk = Chunk(number, number * size, min((number + 1) * size, whole.size))
            start, stop = max(span.start, chunk.start), min(self._stop, chunk.stop)
            part = self._pieces.get(number)
            if part is None:
                part = self._cache.get(span.uri, whole.version, start, stop, whole.size)
            if part is None:
                absent.append(chunk)
            else:
                parts.append(part)
        return parts, absent
