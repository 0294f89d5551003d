"""Bytes by ranges from any file system that fsspec knows; many at once, each until it succeeds or its deadline.

All requests of a process run in fsspec's one event loop. Clients' own retries are switched off where that can be, so
that one place decides how often and how long.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fsspec.asyn import AsyncFileSystem, get_loop
from fsspec.core import url_to_fs

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.base import Pending
from fastfeed.sources.cache import Cache
from fastfeed.sources.clients import explain, settings
from fastfeed.sources.fetch import Latencies, Patience, Unread, persist

__all__ = ["Span", "Stat", "Storage", "is_local"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stat:
    """What a listing says of an object."""

    size: int  # bytes
    version: str  # its etag, or when it was changed; another one means other content


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [start, stop) of an object; a stop of None is its end."""

    uri: str
    start: int = 0
    stop: int | None = None
    whole: Stat | None = None  # the object's, where it is known: only then it can be cached


class Storage:
    """Reads, stats and lists. Connects when first used; pickles; for many threads.

    `options` go to fsspec: key, secret, endpoint_url, anon, token... `in_flight` requests are under way at once.
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
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._systems: dict[str, Any] = {}
        self._latencies: dict[str, Latencies] = {}
        self._room: asyncio.Semaphore | None = None  # of the event loop
        self._flying: dict[tuple[str, str, int], asyncio.Future[bytes | Unread]] = {}  # chunks; of the event loop

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("options", "cache", "in_flight", "patience")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    # -- reading

    def fetch(self, spans: Sequence[Span]) -> list[Pending]:
        """Begin to read; each result is bytes, all that were asked for, or Unread."""
        return [self._begin(span) for span in spans]

    def read(self, spans: Sequence[Span]) -> list[bytes | Unread]:
        """Read, and wait for it."""
        return [pending.result() for pending in self.fetch(spans)]

    def _begin(self, span: Span) -> Pending:
        if self.cache is not None and span.whole is not None:
            if span.stop is None:
                span = replace(span, stop=span.whole.size)
            return Cached(self, self.cache, span)
        return self.run(span.uri, lambda: self._get(span))

    def run(self, uri: str, work: Callable[[], Awaitable[T]]) -> Future[T]:
        """Run a coroutine of this storage's in the event loop."""
        self._system(uri)  # connects here, where an error may be raised

        async def limited() -> T:
            if self._room is None:
                self._room = asyncio.Semaphore(self.in_flight)
            async with self._room:
                return await work()

        return asyncio.run_coroutine_threadsafe(limited(), get_loop())

    def chunk(self, span: Span, number: int, first: int, last: int) -> Future[bytes | Unread]:
        """A chunk for the cache: fetched once however many ask for it, and stored."""
        assert span.whole is not None
        key, whole = (span.uri, span.whole.version, number), span.whole

        async def share() -> bytes | Unread:
            flying = self._flying.get(key)
            if flying is None:
                flying = self._flying[key] = asyncio.ensure_future(fly())
                flying.add_done_callback(lambda _: self._flying.pop(key, None))
            return await asyncio.shield(flying)

        async def fly() -> bytes | Unread:
            data = await self._get(replace(span, start=first, stop=last))
            if isinstance(data, bytes) and self.cache is not None:
                await asyncio.to_thread(self.cache.put, span.uri, whole.version, number, data, whole.size)
            return data

        return self.run(span.uri, share)

    async def _get(self, span: Span) -> bytes | Unread:
        system, path = self._system(span.uri)
        whole = span.start == 0 and (span.stop is None or (span.whole is not None and span.stop == span.whole.size))
        want = None if span.stop is None else span.stop - span.start
        if want == 0:
            return b""

        async def request() -> bytes:
            ends = {} if whole and want is None else {"start": span.start, "end": span.stop}
            data = await _call(system, "cat_file", path, **ends)
            if want is not None and len(data) > want:  # a web server without ranges sends all
                data = data[span.start : span.stop]
            if want is not None and len(data) != want:
                raise OSError(f"got {len(data)} of {want} bytes at {span.start}")
            return data

        return await self._persist(span.uri, want or 0, request)

    async def _persist(self, uri: str, size: int, request: Callable[[], Awaitable[T]]) -> T | Unread:
        latencies = self._latencies.setdefault(uri.partition("://")[0], Latencies())
        return await persist(request, size, explain, self.patience, latencies, time.monotonic)

    # -- looking

    def stat(self, uris: Sequence[str]) -> list[Stat | Unread]:
        """Size and version of each object."""

        async def look(uri: str) -> Stat | Unread:
            system, path = self._system(uri)
            found = await self._persist(uri, 0, lambda: _call(system, "info", path))
            return found if isinstance(found, Unread) else _stat(found)

        return [f.result() for f in [self.run(uri, lambda uri=uri: look(uri)) for uri in uris]]

    def find(self, place: str) -> list[tuple[str, Stat]]:
        """What a pattern (with *, ?, [) matches, or all below a folder, sorted: (uri, stat) each. SourceError."""
        system, path = self._system(place)
        verb = "glob" if any(c in path for c in "*?[") else "find"
        work = self.run(place, lambda: self._persist(place, 0, lambda: _call(system, verb, path, detail=True)))
        found = work.result()
        if isinstance(found, Unread):
            raise SourceError(f"cannot list {place}: {found.detail or found.reason}")
        files = {system.unstrip_protocol(name): info for name, info in found.items() if info["type"] == "file"}
        return [(uri, _stat(files[uri])) for uri in sorted(files)]

    def folder(self, place: str) -> list[dict[str, Any]]:
        """What lies directly in a folder, sorted by name: fsspec's infos, with a `uri` added. SourceError."""
        system, path = self._system(place)
        work = self.run(place, lambda: self._persist(place, 0, lambda: _call(system, "ls", path, detail=True)))
        found = work.result()
        if isinstance(found, Unread):
            raise SourceError(f"cannot list {place}: {found.detail or found.reason}")
        infos = [info | {"uri": system.unstrip_protocol(info["name"])} for info in found]
        return sorted(infos, key=lambda info: info["name"])

    def _system(self, uri: str) -> tuple[Any, str]:
        """The file system of an address, and the path in it."""
        if self._pid != os.getpid():  # the loop's thread stayed in the parent
            self._forget()
        protocol = uri.partition("://")[0] if "://" in uri else "file"
        with self._lock:
            system = self._systems.get(protocol)
            if system is None:
                try:
                    system, _ = url_to_fs(uri, **settings(protocol, self.options, self.in_flight))
                except ImportError as error:
                    raise SourceError(f"cannot open {uri}: {error}") from error
                except (ValueError, TypeError) as error:
                    raise ConfigError(f"cannot open {uri}: {error}") from error
                if hasattr(system, "retries"):
                    system.retries = 1  # times that one request is sent: trying again is `persist`'s
                self._systems[protocol] = system
        return system, system._strip_protocol(uri)

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={'...' if k in ('key', 'secret', 'token') else v!r}" for k, v in self.options.items())
        return f"Storage({shown})"


class Cached:
    """A span of which the cache has all, some or nothing. What it has is read by the thread that takes the result."""

    def __init__(self, storage: Storage, cache: Cache, span: Span) -> None:
        self._storage, self._cache, self._span = storage, cache, span
        self._missing = self._ask()

    def _ask(self) -> list[tuple[int, int, int, Future[bytes | Unread]]]:
        span = self._span
        assert span.whole is not None and span.stop is not None
        missing = self._cache.missing(span.uri, span.whole.version, span.start, span.stop, span.whole.size)
        return [(n, first, last, self._storage.chunk(span, n, first, last)) for n, first, last in missing]

    def done(self) -> bool:
        """All that was missing is there."""
        return all(work.done() for *_, work in self._missing)

    def cancel(self) -> object:
        """Nobody will ask."""
        return [work.cancel() for *_, work in self._missing]

    def result(self, timeout: float | None = None) -> bytes | Unread:
        """The bytes, from cache and storage."""
        span = self._span
        assert span.whole is not None and span.stop is not None
        fetched: list[tuple[int, int, bytes]] = []
        for _, first, last, work in self._missing:
            data = work.result(timeout)
            if isinstance(data, Unread):
                return data
            fetched.append((first, last, data))
        if len(fetched) == 1 and fetched[0][0] <= span.start and span.stop <= fetched[0][1]:
            first, _, data = fetched[0]
            return data[span.start - first : span.stop - first]
        got = self._cache.get(span.uri, span.whole.version, span.start, span.stop, span.whole.size)
        if got is not None:
            return got
        # evicted again since it was looked for, or not storable: past the cache
        return self._storage.run(span.uri, lambda: self._storage._get(span)).result(timeout)


async def _call(system: Any, verb: str, *args: Any, **kwargs: Any) -> Any:
    """A method of a file system, in this loop where it is asynchronous, else in a thread."""
    if isinstance(system, AsyncFileSystem) and system.async_impl:
        return await getattr(system, "_" + verb)(*args, **kwargs)
    return await asyncio.to_thread(getattr(system, verb), *args, **kwargs)


def _stat(info: dict[str, Any]) -> Stat:
    for name in ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "created"):
        if info.get(name):
            return Stat(int(info.get("size") or 0), str(info[name]).strip('"'))
    return Stat(int(info.get("size") or 0), "")


def is_local(uri: str) -> bool:
    """A path of this machine's file system."""
    return "://" not in uri and "::" not in uri
