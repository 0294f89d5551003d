"""Reads of byte ranges through the disk cache, with retries, under the request limit."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from fastfeed.errors import ConfigError
from fastfeed.storage.byte_range import ByteRange
from fastfeed.storage.cached_reads import CachedRead, ChunkFetches
from fastfeed.storage.clients import explain
from fastfeed.storage.disk_cache import Cache, Chunk
from fastfeed.storage.endpoints import Endpoint, Endpoints
from fastfeed.storage.event_loop import Submissions, completed, defer, launch
from fastfeed.storage.filesystem import DaemonThreads, read_range
from fastfeed.storage.pending import Pending
from fastfeed.storage.request_limit import Limiter
from fastfeed.storage.retry import RetryPolicy, Unread, retry

__all__ = ["RangeReads"]

_writers = DaemonThreads(4, "storage-cache")


class RangeReads:
    """The range reads of one `Storage`."""

    def __init__(
        self, endpoints: Endpoints, limiter: Limiter, cache: Cache | None, policy: RetryPolicy
    ) -> None:
        self._endpoints = endpoints
        self._limiter = limiter
        self._cache = cache
        self._policy = policy
        self._chunks = ChunkFetches(self._fetch_chunk)

    def begin(self, span: ByteRange, submissions: Submissions) -> Pending:
        """A read that begins when the submissions are launched."""
        stat = span.stat
        if stat is not None and span.stop is None:
            span = replace(span, stop=stat.size)
        if span.start < 0 or (span.stop is not None and span.stop < span.start):
            raise ConfigError(
                f"a byte range must have 0 <= start <= stop, got {span.start}, {span.stop}"
            )
        if stat is not None and span.stop is not None and span.stop > stat.size:
            return completed(
                Unread(
                    "truncated", f"it ends at {stat.size}, bytes up to {span.stop} were asked for"
                )
            )
        if span.start == span.stop:
            return completed(b"")
        if self._cache is None or stat is None or span.stop is None:
            return defer(submissions, partial(self._get, *self._endpoints.at(span.uri), span))
        self._endpoints.at(span.uri)  # connects here, where an error can be raised
        missing = self._cache.missing(span.uri, stat.version, span.start, span.stop, stat.size)
        work = defer(submissions, partial(self._chunks.pieces, span, missing)) if missing else None
        return CachedRead(span, self._cache, work, partial(self._refetch, span))

    def _refetch(self, span: ByteRange, chunks: Sequence[Chunk]) -> Future[Any]:
        submissions: Submissions = []
        work = defer(submissions, partial(self._chunks.pieces, span, chunks))
        launch(submissions)
        return work

    async def _get(self, endpoint: Endpoint, path: str, span: ByteRange) -> bytes | Unread:
        size = 0 if span.stop is None else span.stop - span.start
        async with self._limiter.permit() as permit:
            request = partial(
                read_range, endpoint.system, endpoint.s3, path, span, endpoint.max_body
            )
            # without a size there is no limit for lagging reads
            latencies = endpoint.reads if size else None
            return _checked(
                span,
                await retry(
                    request, size, explain, self._policy, latencies, permit.pause, endpoint.health
                ),
            )

    async def _fetch_chunk(self, span: ByteRange, chunk: Chunk) -> bytes | Unread:
        """Fetch and cache a chunk while holding the permit, so that a slow disk slows fetching."""
        endpoint, path = self._endpoints.at(span.uri)
        part = replace(span, start=chunk.start, stop=chunk.stop)
        request = partial(read_range, endpoint.system, endpoint.s3, path, part, endpoint.max_body)
        async with self._limiter.permit() as permit:
            size = chunk.stop - chunk.start
            data = await retry(
                request, size, explain, self._policy, endpoint.reads, permit.pause, endpoint.health
            )
            if isinstance(data, bytes) and self._cache is not None and span.stat is not None:
                stat = span.stat
                put = partial(
                    self._cache.put, span.uri, stat.version, chunk.number, data, stat.size
                )
                await _writers.run(put)
        return _checked(span, data)


def _checked(span: ByteRange, data: bytes | Unread) -> bytes | Unread:
    """An object that is shorter than when it was listed has been replaced."""
    if isinstance(data, Unread) and data.reason == "truncated" and span.stat is not None:
        return Unread("changed", f"{data.detail}; it had {span.stat.size} bytes when it was listed")
    return data
