"""Reads byte ranges from any fsspec file system: many at once, with retries until a deadline.

All requests of a process run in fsspec's one event loop. Clients' own retries are switched off where that can be, so
that one policy decides how often and how long.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import REASONS
from fastfeed.storage.byte_range import ByteRange, Stat, is_local, stat_of
from fastfeed.storage.cached_reads import CachedRead, ChunkFetches
from fastfeed.storage.clients import connect, explain, parse_uri
from fastfeed.storage.disk_cache import Cache, Chunk
from fastfeed.storage.event_loop import Submissions, completed, defer, launch, results
from fastfeed.storage.filesystem import DaemonThreads, call, list_files, read_range
from fastfeed.storage.health import Health
from fastfeed.storage.pending import Pending
from fastfeed.storage.request_limit import Limiter
from fastfeed.storage.retry import Latencies, RetryPolicy, Unread, retry
from fastfeed.storage.s3 import S3Reader, is_s3
from fastfeed.system.forks import after_fork

__all__ = ["ByteRange", "Stat", "Storage", "call", "is_local", "stat_of"]

T = TypeVar("T")

_LISTING_S = 3600.0  # for a listing, which takes many requests
_STAT_ATTEMPTS = 10  # for stat and listings: a wrong path should fail soon, at the start of a run

_PUBLIC_OPTIONS = ("anon", "endpoint_url", "project", "requester_pays")  # options without secrets

_writers = DaemonThreads(4, "storage-cache")
_storages: weakref.WeakSet[Storage] = weakref.WeakSet()
_inherited: list[Any] = []  # file systems of the process that this one was forked from


@dataclass(frozen=True, slots=True, eq=False)
class _Endpoint:
    """A file system and its latencies."""

    system: Any
    s3: S3Reader | None  # reads, where it is S3
    health: Health
    reads: Latencies = field(default_factory=Latencies)
    stats: Latencies = field(default_factory=Latencies)
    calls: Latencies = field(default_factory=Latencies)


class Storage:
    """Reads, stats and lists objects. Connects on first use; pickles; thread-safe.

    `options` go to fsspec: key, secret, endpoint_url, anon, token... Up to `in_flight` requests run at once, plus
    hedged requests for those that lag.
    """

    def __init__(
        self,
        options: dict[str, Any] | None = None,
        *,
        cache: Cache | None = None,
        in_flight: int = 64,
        policy: RetryPolicy | None = None,
    ) -> None:
        if in_flight < 1:
            raise ConfigError(f"in_flight must be >= 1, got {in_flight}")
        self.options, self.cache, self.in_flight = dict(options or {}), cache, in_flight
        self.policy = policy or RetryPolicy()
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._endpoints: dict[str, _Endpoint] = {}
        self._systems: dict[str, _Endpoint] = {}
        self._limiter = Limiter(self.in_flight)
        self._chunks = ChunkFetches(self._fetch_chunk)
        _storages.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("options", "cache", "in_flight", "policy")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    # -- reading

    def fetch(self, spans: Sequence[ByteRange]) -> list[Pending]:
        """Start reading; each result is all of the requested bytes, or Unread."""
        submissions: Submissions = []
        pendings = [self._prepare(span, submissions) for span in spans]
        launch(submissions)
        return pendings

    def read(self, spans: Sequence[ByteRange]) -> list[bytes | Unread]:
        """Read and wait."""
        return results(self.fetch(spans))

    def _prepare(self, span: ByteRange, submissions: Submissions) -> Pending:
        stat = span.stat
        if stat is not None and span.stop is None:
            span = replace(span, stop=stat.size)
        if span.start < 0 or (span.stop is not None and span.stop < span.start):
            raise ConfigError(f"a byte range must have 0 <= start <= stop, got {span.start}, {span.stop}")
        if stat is not None and span.stop is not None and span.stop > stat.size:
            return completed(Unread("truncated", f"it ends at {stat.size}, bytes up to {span.stop} were asked for"))
        if span.start == span.stop:
            return completed(b"")
        if self.cache is None or stat is None or span.stop is None:
            return defer(submissions, partial(self._get, *self._endpoint(span.uri), span))
        self._endpoint(span.uri)  # connects here, where an error can be raised
        missing = self.cache.missing(span.uri, stat.version, span.start, span.stop, stat.size)
        work = defer(submissions, partial(self._chunks.pieces, span, missing)) if missing else None
        return CachedRead(span, self.cache, work, partial(self._refetch, span))

    def _refetch(self, span: ByteRange, chunks: Sequence[Chunk]) -> Future[Any]:
        submissions: Submissions = []
        work = defer(submissions, partial(self._chunks.pieces, span, chunks))
        launch(submissions)
        return work

    async def _get(self, endpoint: _Endpoint, path: str, span: ByteRange) -> bytes | Unread:
        size = 0 if span.stop is None else span.stop - span.start
        async with self._limiter.permit() as permit:
            request = partial(read_range, endpoint.system, endpoint.s3, path, span)
            latencies = endpoint.reads if size else None  # where the size is not known, none can be said to lag
            return _checked(
                span, await retry(request, size, explain, self.policy, latencies, permit.pause, endpoint.health)
            )

    async def _fetch_chunk(self, span: ByteRange, chunk: Chunk) -> bytes | Unread:
        """Fetch a chunk and cache it while holding the permit: a slow disk slows the network down."""
        endpoint, path = self._endpoint(span.uri)
        request = partial(
            read_range, endpoint.system, endpoint.s3, path, replace(span, start=chunk.start, stop=chunk.stop)
        )
        async with self._limiter.permit() as permit:
            size = chunk.stop - chunk.start
            data = await retry(request, size, explain, self.policy, endpoint.reads, permit.pause, endpoint.health)
            if isinstance(data, bytes) and self.cache is not None and span.stat is not None:
                stat = span.stat
                put = partial(self.cache.put, span.uri, stat.version, chunk.number, data, stat.size)
                await _writers.run(put)
        return _checked(span, data)

    # -- stat and listing

    def stat(self, uris: Sequence[str]) -> list[Stat | Unread]:
        """Size and version of each object."""
        submissions: Submissions = []
        pending = [defer(submissions, partial(self._stat, *self._endpoint(uri))) for uri in uris]
        launch(submissions)
        return results(pending)

    async def _stat(self, endpoint: _Endpoint, path: str) -> Stat | Unread:
        async with self._limiter.permit() as permit:
            request = partial(call, endpoint.system, "info", path)
            policy = replace(self.policy, attempts=min(self.policy.attempts, _STAT_ATTEMPTS))
            info = await retry(request, 0, explain, policy, endpoint.stats, permit.pause, endpoint.health)
        if isinstance(info, Unread):
            return info
        if info["type"] == "directory":
            return Unread("not_found", "it is a folder")
        if info.get("size") is None:
            return Unread("io_error", "the server does not say how large it is")
        return stat_of(info)

    def find(self, pattern: str) -> list[tuple[str, Stat]]:
        """Files that match a pattern (*, ?, [) or lie below a folder, sorted: (uri, stat) each. SourceError."""
        magic = "*[" if pattern.startswith("http") else "*?["  # an address on the web may have a query
        verb = "glob" if any(mark in pattern for mark in magic) else "find"
        infos, spell = self._list(pattern, partial(list_files, verb=verb), default={}), self._spelling(pattern)
        files = {spell(name): info for name, info in infos.items() if info.get("type", "file") == "file"}
        unsized = [uri for uri, info in files.items() if info.get("size") is None]  # of web servers
        stats: dict[str, Stat] = {uri: stat_of(info) for uri, info in files.items()}
        for uri, stat in zip(unsized, self.stat(unsized), strict=True):
            if isinstance(stat, Unread):
                raise SourceError(f"cannot stat {uri}: {_message(stat)}")
            stats[uri] = stat
        return sorted(stats.items())

    def folder(self, address: str) -> list[dict[str, Any]]:
        """Entries directly in a folder, sorted by name: fsspec's infos, with a `uri` added. SourceError."""
        infos: list[dict[str, Any]] = self._list(address, lambda system, path: call(system, "ls", path, detail=True))
        spell = self._spelling(address)
        _, path = self._endpoint(address)
        entries = [info for info in infos if info["name"].rstrip("/") != path.rstrip("/")]
        return sorted((info | {"uri": spell(info["name"])} for info in entries), key=lambda info: info["name"])

    def _list(self, address: str, operation: Callable[[Any, str], Awaitable[T]], default: T | None = None) -> T:
        """`default` is returned if the path does not exist; None: that is an error."""
        attempts = min(self.policy.attempts, _STAT_ATTEMPTS)
        policy = replace(self.policy, deadline_s=_LISTING_S, attempt_s=_LISTING_S, hedge=False, attempts=attempts)
        (result,) = results([self.submit(address, operation, policy)])
        if isinstance(result, Unread) and result.reason == "not_found" and default is not None:
            return default
        if isinstance(result, Unread):
            raise SourceError(f"cannot list {address}: {_message(result)}")
        return result

    def submit(
        self, address: str, operation: Callable[[Any, str], Awaitable[T]], policy: RetryPolicy | None = None
    ) -> Future[T | Unread]:
        """Start `operation(file system, path)` in the event loop; it is retried when it fails."""
        (endpoint, path), policy = self._endpoint(address), policy or self.policy
        request, latencies = partial(operation, endpoint.system, path), endpoint.calls if policy.hedge else None

        async def work() -> T | Unread:
            async with self._limiter.permit() as permit:
                return await retry(request, 0, explain, policy, latencies, permit.pause, endpoint.health)

        submissions: Submissions = []
        future = defer(submissions, work)
        launch(submissions)
        return future

    # -- connecting

    def _endpoint(self, uri: str) -> tuple[_Endpoint, str]:
        """The file system of an address, and the path in it."""
        protocol, _, remainder = uri.partition("://")
        key = f"{protocol}://{remainder.partition('/')[0]}" if remainder else "file"
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            with self._lock:
                system = repr(parse_uri(uri))
                if system not in self._systems:
                    client = connect(uri, self.options, self.in_flight)
                    reader = S3Reader(client) if is_s3(client) else None
                    self._systems[system] = _Endpoint(client, reader, Health(key))
                # hosts of the web share a client, not their health
                health = Health(key, cached=self.cache is not None)
                endpoint = self._endpoints[key] = replace(self._systems[system], health=health)
        return endpoint, endpoint.system._strip_protocol(uri)

    def _spelling(self, address: str) -> Callable[[str], str]:
        """A function that writes paths in the file system of `place` as addresses like it."""
        protocol, _, remainder = address.partition("://")
        host = remainder.partition("/")[0]
        (endpoint, _), about = self._endpoint(address), parse_uri(address)

        def spell(path: str) -> str:
            bare = path.lstrip("/")
            for uri in (f"{protocol}://{bare}", f"{protocol}://{path}", f"{protocol}://{host}/{bare}"):
                if "://" not in path and parse_uri(uri) == about and endpoint.system._strip_protocol(uri) == path:
                    return uri
            return endpoint.system.unstrip_protocol(path)

        return spell

    def __repr__(self) -> str:
        options = ", ".join(f"{k}={v!r}" if k in _PUBLIC_OPTIONS else f"{k}=..." for k, v in self.options.items())
        return f"Storage({options})"


def _checked(span: ByteRange, data: bytes | Unread) -> bytes | Unread:
    """An object that is shorter than when it was listed has been replaced."""
    if isinstance(data, Unread) and data.reason == "truncated" and span.stat is not None:
        return Unread("changed", f"{data.detail}; it had {span.stat.size} bytes when it was listed")
    return data


def _message(why: Unread) -> str:
    return why.detail or REASONS[why.reason]


def _forked() -> None:
    for storage in list(_storages):
        _inherited.append(storage._systems)  # closing them would close connections that the parent still uses
        storage._forget()


after_fork(_forked)
