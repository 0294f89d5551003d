"""Bytes by ranges from any file system that fsspec knows; many at once, each until it succeeds or its deadline.

All requests of a process run in fsspec's one event loop. Clients' own retries are switched off where that can be, so
that one place decides how often and how long.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import REASONS
from fastfeed.storage.byte_range import Span, Stat, is_local, stat_of
from fastfeed.storage.cached_reads import Cached, Chunks
from fastfeed.storage.clients import connect, explain, named
from fastfeed.storage.disk_cache import Cache, Chunk
from fastfeed.storage.event_loop import Begun, known, later, launch, results
from fastfeed.storage.filesystem import Threads, call, find, read
from fastfeed.storage.pending import Pending
from fastfeed.storage.request_limit import Room
from fastfeed.storage.retry import Latencies, Patience, Unread, persist

__all__ = ["Span", "Stat", "Storage", "call", "is_local", "stat_of"]

T = TypeVar("T")

_LISTING_S = 3600.0  # that a listing may take, of many requests
_LOOKS = 10  # attempts at a listing: whoever begins a run wants to know soon what is wrong

_SHOWN = ("anon", "endpoint_url", "project", "requester_pays")  # options without secrets

_writers = Threads(4, "storage-cache")
_storages: weakref.WeakSet[Storage] = weakref.WeakSet()
_left: list[Any] = []  # file systems of the process that this one was forked from


@dataclass(frozen=True, slots=True, eq=False)
class _Home:
    """A file system, and how fast it is."""

    system: Any
    reads: Latencies = field(default_factory=Latencies)
    looks: Latencies = field(default_factory=Latencies)
    asks: Latencies = field(default_factory=Latencies)


class Storage:
    """Reads, stats and lists. Connects when first used; pickles; for many threads.

    `options` go to fsspec: key, secret, endpoint_url, anon, token... `in_flight` requests are under way at once, and a
    few more for those that lag.
    """

    def __init__(
        self,
        options: dict[str, Any] | None = None,
        *,
        cache: Cache | None = None,
        in_flight: int = 64,
        patience: Patience | None = None,
    ) -> None:
        if in_flight < 1:
            raise ConfigError(f"in_flight must be >= 1, got {in_flight}")
        self.options, self.cache, self.in_flight = dict(options or {}), cache, in_flight
        self.patience = patience or Patience()
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._homes: dict[str, _Home] = {}
        self._systems: dict[str, _Home] = {}
        self._room = Room(self.in_flight)
        self._chunks = Chunks(self._fetch_chunk)
        _storages.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("options", "cache", "in_flight", "patience")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    # -- reading

    def fetch(self, spans: Sequence[Span]) -> list[Pending]:
        """Begin to read; each result is bytes, all that were asked for, or Unread."""
        begun: Begun = []
        pendings = [self._prepare(span, begun) for span in spans]
        launch(begun)
        return pendings

    def read(self, spans: Sequence[Span]) -> list[bytes | Unread]:
        """Read, and wait for it."""
        return results(self.fetch(spans))

    def _prepare(self, span: Span, begun: Begun) -> Pending:
        whole = span.whole
        if whole is not None and span.stop is None:
            span = replace(span, stop=whole.size)
        if span.start < 0 or (span.stop is not None and span.stop < span.start):
            raise ConfigError(f"a span must be [start, stop) with 0 <= start <= stop, got {span.start}, {span.stop}")
        if whole is not None and span.stop is not None and span.stop > whole.size:
            return known(Unread("truncated", f"it ends at {whole.size}, bytes up to {span.stop} were asked for"))
        if span.start == span.stop:
            return known(b"")
        if self.cache is None or whole is None or span.stop is None:
            return later(begun, partial(self._get, *self._home(span.uri), span))
        self._home(span.uri)  # connects here, where an error may be raised
        missing = self.cache.missing(span.uri, whole.version, span.start, span.stop, whole.size)
        work = later(begun, partial(self._chunks.pieces, span, missing)) if missing else None
        return Cached(span, self.cache, work, partial(self._refetch, span))

    def _refetch(self, span: Span, chunks: Sequence[Chunk]) -> Future[Any]:
        begun: Begun = []
        work = later(begun, partial(self._chunks.pieces, span, chunks))
        launch(begun)
        return work

    async def _get(self, home: _Home, path: str, span: Span) -> bytes | Unread:
        size = 0 if span.stop is None else span.stop - span.start
        async with self._room.place() as place:
            request = partial(read, home.system, path, span)
            latencies = home.reads if size else None  # where the size is not known, none can be said to lag
            return _judged(span, await persist(request, size, explain, self.patience, latencies, place.rest))

    async def _fetch_chunk(self, span: Span, chunk: Chunk) -> bytes | Unread:
        """Fetch a chunk and store it; disk and network then go at the pace of the slower one."""
        home, path = self._home(span.uri)
        request = partial(read, home.system, path, replace(span, start=chunk.start, stop=chunk.stop))
        async with self._room.place() as place:
            size = chunk.stop - chunk.start
            data = await persist(request, size, explain, self.patience, home.reads, place.rest)
            if isinstance(data, bytes) and self.cache is not None and span.whole is not None:
                whole = span.whole
                put = partial(self.cache.put, span.uri, whole.version, chunk.number, data, whole.size)
                await _writers.run(put)
        return _judged(span, data)

    # -- looking

    def stat(self, uris: Sequence[str]) -> list[Stat | Unread]:
        """Size and version of each object."""
        begun: Begun = []
        found = [later(begun, partial(self._look, *self._home(uri))) for uri in uris]
        launch(begun)
        return results(found)

    async def _look(self, home: _Home, path: str) -> Stat | Unread:
        async with self._room.place() as place:
            request = partial(call, home.system, "info", path)
            patience = replace(self.patience, attempts=min(self.patience.attempts, _LOOKS))
            info = await persist(request, 0, explain, patience, home.looks, place.rest)
        if isinstance(info, Unread):
            return info
        if info["type"] == "directory":
            return Unread("not_found", "there is a folder of that name")
        if info.get("size") is None:
            return Unread("io_error", "the server does not say how large it is")
        return stat_of(info)

    def find(self, place: str) -> list[tuple[str, Stat]]:
        """What a pattern (with *, ?, [) matches, or all below a folder, sorted: (uri, stat) each. SourceError."""
        marks = "*[" if place.startswith("http") else "*?["  # an address on the web may have a query
        verb = "glob" if any(mark in place for mark in marks) else "find"
        found, spell = self._listed(place, partial(find, verb=verb), nothing={}), self._spelling(place)
        files = {spell(name): info for name, info in found.items() if info.get("type", "file") == "file"}
        unsized = [uri for uri, info in files.items() if info.get("size") is None]  # of web servers
        stats: dict[str, Stat] = {uri: stat_of(info) for uri, info in files.items()}
        for uri, stat in zip(unsized, self.stat(unsized), strict=True):
            if isinstance(stat, Unread):
                raise SourceError(f"cannot look at {uri}: {_said(stat)}")
            stats[uri] = stat
        return sorted(stats.items())

    def folder(self, place: str) -> list[dict[str, Any]]:
        """What lies directly in a folder, sorted by name: fsspec's infos, with a `uri` added. SourceError."""
        found: list[dict[str, Any]] = self._listed(place, lambda system, path: call(system, "ls", path, detail=True))
        spell = self._spelling(place)
        _, path = self._home(place)
        inside = [info for info in found if info["name"].rstrip("/") != path.rstrip("/")]
        return sorted((info | {"uri": spell(info["name"])} for info in inside), key=lambda info: info["name"])

    def _listed(self, place: str, question: Callable[[Any, str], Awaitable[T]], nothing: T | None = None) -> T:
        """`nothing` is the answer where there is no such place; None: that is an error."""
        attempts = min(self.patience.attempts, _LOOKS)
        patience = replace(self.patience, deadline_s=_LISTING_S, attempt_s=_LISTING_S, hedge=False, attempts=attempts)
        (found,) = results([self.ask(place, question, patience)])
        if isinstance(found, Unread) and found.reason == "not_found" and nothing is not None:
            return nothing
        if isinstance(found, Unread):
            raise SourceError(f"cannot list {place}: {_said(found)}")
        return found

    def ask(
        self, place: str, question: Callable[[Any, str], Awaitable[T]], patience: Patience | None = None
    ) -> Future[T | Unread]:
        """Begin to ask: `question(file system, path)` runs in the event loop, again where it fails."""
        (home, path), patience = self._home(place), patience or self.patience
        request, latencies = partial(question, home.system, path), home.asks if patience.hedge else None

        async def work() -> T | Unread:
            async with self._room.place() as held:
                return await persist(request, 0, explain, patience, latencies, held.rest)

        begun: Begun = []
        asked = later(begun, work)
        launch(begun)
        return asked

    # -- connecting

    def _home(self, uri: str) -> tuple[_Home, str]:
        """The file system of an address, and the path in it."""
        protocol, _, rest = uri.partition("://")
        key = f"{protocol}://{rest.partition('/')[0]}" if rest else "file"
        home = self._homes.get(key)
        if home is None:
            with self._lock:
                system = repr(named(uri))
                if system not in self._systems:
                    self._systems[system] = _Home(connect(uri, self.options, self.in_flight))
                home = self._homes[key] = self._systems[system]
        return home, home.system._strip_protocol(uri)

    def _spelling(self, place: str) -> Callable[[str], str]:
        """How to write an address of the same file system as `place` for a path in it."""
        protocol, _, rest = place.partition("://")
        host = rest.partition("/")[0]
        (home, _), about = self._home(place), named(place)

        def spell(path: str) -> str:
            bare = path.lstrip("/")
            for uri in (f"{protocol}://{bare}", f"{protocol}://{path}", f"{protocol}://{host}/{bare}"):
                if "://" not in path and named(uri) == about and home.system._strip_protocol(uri) == path:
                    return uri
            return home.system.unstrip_protocol(path)

        return spell

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" if k in _SHOWN else f"{k}=..." for k, v in self.options.items())
        return f"Storage({shown})"


def _judged(span: Span, found: bytes | Unread) -> bytes | Unread:
    """An object that ends too early, and did not when it was listed, is another one."""
    if isinstance(found, Unread) and found.reason == "truncated" and span.whole is not None:
        return Unread("changed", f"{found.detail}; it had {span.whole.size} bytes when it was listed")
    return found


def _said(why: Unread) -> str:
    return why.detail or REASONS[why.reason]


def _forked() -> None:
    for storage in list(_storages):
        _left.append(storage._systems)  # their end would close connections that the parent goes on using
        storage._forget()


os.register_at_fork(after_in_child=_forked)
