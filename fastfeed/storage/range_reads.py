"""Reads of byte ranges through the disk cache, with retries, under the request limit."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TypeAlias

from fastfeed.errors import ConfigError
from fastfeed.storage.clients import Endpoint, Endpoints, explain
from fastfeed.storage.disk_cache import Cache, Chunk
from fastfeed.storage.event_loop import submit
from fastfeed.storage.filesystem import DaemonThreads, read_range
from fastfeed.storage.reads import ByteRange, Completed, Pending, Stat, Unread
from fastfeed.storage.retry import RetryPolicy, retry

_writers = DaemonThreads(4, "storage-cache")


@dataclass(eq=False)
class RangeReads:
    """The range reads of one `Storage`."""

    _endpoints: Endpoints
    _limiter: Limiter
    _cache: Cache | None
    _policy: RetryPolicy

    def __post_init__(self) -> None:
        self._chunks = ChunkFetches(self._fetch_chunk)

    def begin(self, span: ByteRange) -> Pending:
        """Start to read a byte range."""
        stat = span.stat
        if stat is not None and span.stop is None:
            span = replace(span, stop=stat.size)
        if span.start < 0 or (span.stop is not None and span.stop < span.start):
            raise ConfigError(
                f"a byte range must have 0 <= start <= stop, got {span.start}, {span.stop}"
            )
        if stat is not None and span.stop is not None and span.stop > stat.size:
            detail = f"it ends at {stat.size}, bytes up to {span.stop} were asked for"
            return Completed(Unread("truncated", detail))
        if span.start == span.stop:
            return Completed(b"")
        if self._cache is None or stat is None or span.stop is None:
            return submit(partial(self._get, *self._endpoints.at(span.uri), span))
        self._endpoints.at(span.uri)  # connects here, where an error can be raised
        missing = self._cache.missing(span.uri, stat.version, span.start, span.stop, stat.size)
        fetch = partial(self._chunks.pieces, span)
        return CachedRead(
            span, self._cache, fetch, submit(partial(fetch, missing)) if missing else None
        )

    async def _get(self, endpoint: Endpoint, path: str, span: ByteRange) -> bytes | Unread:
        async with self._limiter.permit() as permit:
            return _checked(span, await self._retried(endpoint, path, span, permit))

    async def _retried(
        self, endpoint: Endpoint, path: str, span: ByteRange, permit: Permit
    ) -> bytes | Unread:
        size = 0 if span.stop is None else span.stop - span.start
        request = partial(read_range, endpoint.system, endpoint.s3, path, span, endpoint.max_body)
        # without a size there is no limit for lagging reads
        latencies = endpoint.reads if size else None
        how = self._policy, latencies, permit.pause, endpoint.health
        return await retry(request, size, explain, *how)

    async def _fetch_chunk(self, span: ByteRange, chunk: Chunk) -> bytes | Unread:
        """Fetch and cache a chunk while holding the permit, so that a slow disk slows fetching."""
        endpoint, path = self._endpoints.at(span.uri)
        part = replace(span, start=chunk.start, stop=chunk.stop)
        async with self._limiter.permit() as permit:
            data = await self._retried(endpoint, path, part, permit)
            if isinstance(data, bytes) and self._cache is not None and span.stat is not None:
                about = span.uri, span.stat.version, chunk.number, data, span.stat.size
                await _writers.run(partial(self._cache.put, *about))
        return _checked(span, data)


def _checked(span: ByteRange, data: bytes | Unread) -> bytes | Unread:
    """The bytes, or Unread as changed if the object is shorter than when it was listed."""
    if isinstance(data, Unread) and data.reason == "truncated" and span.stat is not None:
        return Unread("changed", f"{data.detail}; it had {span.stat.size} bytes when it was listed")
    return data


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
    start = max(span.start - chunk.start, 0)
    stop = min(span.stop, chunk.stop) - chunk.start
    return data if stop - start == len(data) else data[start:stop]


@dataclass(eq=False)
class CachedRead:
    """A pending read from cache and storage; reads when `result` is called."""

    _span: ByteRange
    _cache: Cache
    _fetch: Callable[[Sequence[Chunk]], Awaitable[ChunkParts]]
    _work: Future[ChunkParts] | None  # fetches the missing chunks

    def __post_init__(self) -> None:
        assert self._span.stat is not None and self._span.stop is not None
        self._stat = self._span.stat
        self._stop = self._span.stop
        self._pieces: dict[int, bytes] = {}

    def done(self) -> bool:
        """True once all missing chunks have been fetched."""
        return self._work is None or self._work.done()

    def cancel(self) -> object:
        """Cancel the read, as no one will ask for the result."""
        return self._work is not None and self._work.cancel()

    def result(self, timeout: float | None = None) -> bytes | Unread:
        """The bytes, from cache and storage. After a TimeoutError it may be called again."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._work is not None:
                left = None if end is None else max(0.0, end - time.monotonic())
                fetched = self._work.result(left)
                if isinstance(fetched, Unread):
                    return fetched
                self._pieces |= fetched
                self._work = None
            parts, absent = self._collect()
            if not absent:
                return parts[0] if len(parts) == 1 else b"".join(parts)
            # evicted since, or not readable
            self._work = submit(partial(self._fetch, absent))

    def _collect(self) -> tuple[list[bytes], list[Chunk]]:
        """All parts in order, and the chunks that are neither in memory nor in the cache."""
        span = self._span
        stat = self._stat
        size = self._cache.chunk
        parts = []
        absent = []
        for number in range(span.start // size, (self._stop - 1) // size + 1):
            chunk = Chunk(number, number * size, min((number + 1) * size, stat.size))
            start = max(span.start, chunk.start)
            stop = min(self._stop, chunk.stop)
            part = self._pieces.get(number)
            if part is None:
                part = self._cache.get(span.uri, stat.version, start, stop, stat.size)
            if part is None:
                absent.append(chunk)
            else:
                parts.append(part)
        return parts, absent


class Limiter:
    """Permits for `limit` requests at once, first come first served, also after a pause.

    For one event loop.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._numbers = count()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # a heap

    def permit(self) -> Permit:
        """A permit for one read; use it with `async with`."""
        return Permit(self, next(self._numbers))

    async def acquire(self, number: int) -> None:
        """Wait for a permit; lower numbers go first."""
        if self._free:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (number, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # it got the permit before it was canceled
                self.release()
            raise

    def release(self) -> None:
        """Hand the permit to the next waiter."""
        while self._waiting:
            _, waiter = heapq.heappop(self._waiting)
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


@dataclass(eq=False)
class Permit:
    """The permit of one read."""

    _limiter: Limiter
    _number: int
    _in_use: bool = False

    async def __aenter__(self) -> Permit:
        await self._limiter.acquire(self._number)
        self._in_use = True
        return self

    async def __aexit__(self, *error: object) -> None:
        self._release()

    async def pause(self, seconds: float) -> None:
        """Release the permit for this long, then wait for it again."""
        self._release()
        await asyncio.sleep(seconds)
        await self.__aenter__()

    def _release(self) -> None:
        if self._in_use:
            self._in_use = False
            self._limiter.release()
