"""Reads through the disk cache in whole chunks, each fetched once for all readers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from fastfeed.storage.byte_range import ByteRange, Stat
from fastfeed.storage.disk_cache import Cache, Chunk
from fastfeed.storage.retry import Unread

__all__ = ["CachedRead", "ChunkFetches", "ChunkParts"]

# parts of a span by the numbers of their chunks
ChunkParts: TypeAlias = "dict[int, bytes] | Unread"
_Key = tuple[str, Stat, int]


@dataclass(slots=True)
class _Flight:
    task: asyncio.Task[bytes | Unread]
    waiting: int = 0


class ChunkFetches:
    """Chunk fetches in progress. For one event loop: no lock."""

    def __init__(self, fetch: Callable[[ByteRange, Chunk], Awaitable[bytes | Unread]]) -> None:
        self._fetch = fetch
        self._flights: dict[_Key, _Flight] = {}

    async def pieces(self, span: ByteRange, chunks: Sequence[Chunk]) -> ChunkParts:
        """The parts of the span in these chunks. Only these are kept in memory, not the chunks."""
        results = await asyncio.gather(*(self._piece(span, chunk) for chunk in chunks))
        pieces: dict[int, bytes] = {}
        for chunk, piece in zip(chunks, results, strict=True):
            if isinstance(piece, Unread):
                return piece
            pieces[chunk.number] = piece
        return pieces

    async def _piece(self, span: ByteRange, chunk: Chunk) -> bytes | Unread:
        assert span.stat is not None
        key = (span.uri, span.stat, chunk.number)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(self._fetch(span, chunk)))
            flight.task.add_done_callback(partial(self._landed, key, flight))
        flight.waiting += 1
        try:
            data = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():  # no one waits for it any more
                flight.task.cancel()
                self._landed(key, flight)
        return data if isinstance(data, Unread) else _within(span, chunk, data)

    def _landed(self, key: _Key, flight: _Flight, _: object = None) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


def _within(span: ByteRange, chunk: Chunk, data: bytes) -> bytes:
    """The part of a chunk that belongs to the span."""
    assert span.stop is not None
    start, stop = max(span.start - chunk.start, 0), min(span.stop, chunk.stop) - chunk.start
    return data if stop - start == len(data) else data[start:stop]


class CachedRead:
    """A pending read from cache and storage; reads when `result` is called."""

    def __init__(
        self,
        span: ByteRange,
        cache: Cache,
        work: Future[ChunkParts] | None,  # fetches the missing chunks
        fetch: Callable[
            [Sequence[Chunk]], Future[ChunkParts]
        ],  # for chunks evicted in the meantime
    ) -> None:
        assert span.stat is not None and span.stop is not None
        self._span = span
        self._stat = span.stat
        self._stop = span.stop
        self._cache = cache
        self._work = work
        self._fetch = fetch
        self._pieces: dict[int, bytes] = {}

    def done(self) -> bool:
        """All missing chunks have been fetched."""
        return self._work is None or self._work.done()

    def cancel(self) -> object:
        """No one will ask for the result."""
        return self._work is not None and self._work.cancel()

    def result(self, timeout: float | None = None) -> bytes | Unread:
        """The bytes, from cache and storage. After a TimeoutError it may be called again."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._work is not None:
                fetched = self._work.result(
                    None if end is None else max(0.0, end - time.monotonic())
                )
                if isinstance(fetched, Unread):
                    return fetched
                self._pieces |= fetched
                self._work = None
            parts, absent = self._collect()
            if not absent:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            self._work = self._fetch(absent)  # evicted since, or not readable

    def _collect(self) -> tuple[list[bytes], list[Chunk]]:
        """All parts in order, and the chunks that are neither in memory nor in the cache."""
        span, stat, size = self._span, self._stat, self._cache.chunk
        parts, absent = [], []
        for number in range(span.start // size, (self._stop - 1) // size + 1):
            chunk = Chunk(number, number * size, min((number + 1) * size, stat.size))
            start, stop = max(span.start, chunk.start), min(self._stop, chunk.stop)
            part = self._pieces.get(number)
            if part is None:
                part = self._cache.get(span.uri, stat.version, start, stop, stat.size)
            if part is None:
                absent.append(chunk)
            else:
                parts.append(part)
        return parts, absent
