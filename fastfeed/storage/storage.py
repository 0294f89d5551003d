"""Reads byte ranges from any fsspec file system: many at once, with retries until a deadline.

All requests of a process run in fsspec's one event loop. Clients' own retries are switched off
where that can be, so that one policy decides how often and how long.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import REASONS
from fastfeed.storage.clients import Endpoint, Endpoints, explain
from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.event_loop import batched, results, submit
from fastfeed.storage.filesystem import call, list_files
from fastfeed.storage.range_reads import Limiter, RangeReads
from fastfeed.storage.reads import ByteRange, Pending, Stat, Unread, parse_stat
from fastfeed.storage.retry import Latencies, RetryPolicy, retry
from fastfeed.system.processes import after_fork

T = TypeVar("T")

_LISTING_S = 3600.0  # for a listing, which takes many requests
# of which each may take long: about a minute where they fail at once, as a read is given
_LISTING_ATTEMPTS = 17

_PUBLIC_OPTIONS = ("anon", "endpoint_url", "project", "requester_pays")  # options without secrets

_storages: weakref.WeakSet[Storage] = weakref.WeakSet()
_inherited: list[Any] = []  # file systems of the process that this one was forked from


@checked
class Storage:
    """Reads, stats and lists objects on S3, Google Cloud, Azure, the web, or with fsspec.

    It connects on first use, can be pickled, and may be used by many threads.

    Args:
        options (dict[str, Any] | None): Passed to fsspec's client: key, secret, endpoint_url, anon,
            token... `max_body`: bytes of a body whose length the server does not say, or that it
            compresses, by default "256MB"; of an object whose size was not known before, at least 1
            GiB. Default: None, what the client finds itself (environment, profiles, machine roles).
        cache (Cache | None): Keeps what was read on a local disk. Default: None, nothing is kept.
        in_flight (int): Requests that run at once, plus hedged requests for those that lag. At
            least 1. Default: 64.
        policy (RetryPolicy | None): How long and how often a read is tried. Default: None,
            `RetryPolicy()`, a minute.

    Raises:
        ConfigError: `in_flight` is less than 1.

    Example:
        >>> storage = ff.sources.Storage({"anon": True}, in_flight=8)
        >>> storage
        Storage(anon=True)
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
            raise ConfigError.of("in_flight", ">= 1", in_flight)
        self.options = dict(options or {})
        self.cache = cache
        self.in_flight = in_flight
        self.policy = policy or RetryPolicy()
        self._forget()

    def _forget(self) -> None:
        self._endpoints = Endpoints(self.options, self.in_flight, self.cache is not None)
        self._limiter = Limiter(self.in_flight)
        self._reads = RangeReads(self._endpoints, self._limiter, self.cache, self.policy)
        _storages.add(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("options", "cache", "in_flight", "policy")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    # -- reading

    def fetch(self, spans: Sequence[ByteRange]) -> list[Pending]:
        """Start to read; does not wait.

        Args:
            spans (Sequence[ByteRange]): What to read.

        Returns:
            One `Pending` per range, in their order; its `result()` is all of the requested bytes,
            or an `Unread` with the reason.

        Raises:
            ConfigError: A range ends before it starts, or its address has an unknown protocol.
            MissingExtra: The client of this protocol is not installed.

        Example:
            >>> from fastfeed.storage.reads import ByteRange
            >>> (pending,) = ff.sources.Storage().fetch([ByteRange("photos.csv", 0, 4)])
            >>> pending.result(timeout=10)
            b'path'
        """
        with batched():
            return [self._reads.begin(span) for span in spans]

    def read(self, spans: Sequence[ByteRange]) -> list[bytes | Unread]:
        """Read, and wait for it.

        Args:
            spans (Sequence[ByteRange]): What to read.

        Returns:
            For each range all of the requested bytes, or an `Unread` with the reason.

        Raises:
            ConfigError: A range ends before it starts, or its address has an unknown protocol.
            MissingExtra: The client of this protocol is not installed.

        Example:
            >>> from fastfeed.storage.reads import ByteRange
            >>> ff.sources.Storage().read([ByteRange("photos.csv", 5, 11), ByteRange("missing.csv")])[0]
            b'animal'
        """
        return results(self.fetch(spans))

    # -- stat and listing

    def stat(self, uris: Sequence[str]) -> list[Stat | Unread]:
        """Ask for size and version of objects.

        Args:
            uris (Sequence[str]): Addresses, such as "s3://bucket/a.jpg", or paths.

        Returns:
            For each a `Stat`, or an `Unread` with the reason.

        Example:
            >>> stat, missing = ff.sources.Storage().stat(["photos.csv", "missing.csv"])
            >>> stat.size > 100, missing.reason
            (True, 'not_found')
        """
        with batched():
            pending = [submit(partial(self._stat, *self._endpoints.at(uri))) for uri in uris]
        return results(pending)

    async def _retried(
        self,
        endpoint: Endpoint,
        request: Callable[[], Awaitable[T]],
        policy: RetryPolicy,
        latencies: Latencies | None,
    ) -> T | Unread:
        async with self._limiter.permit() as permit:
            how = policy, latencies, permit.pause, endpoint.health
            return await retry(request, 0, explain, *how)

    async def _stat(self, endpoint: Endpoint, path: str) -> Stat | Unread:
        request = partial(call, endpoint.system, "info", path)
        info = await self._retried(endpoint, request, self.policy, endpoint.stats)
        if isinstance(info, Unread):
            return info
        if info["type"] == "directory":
            return Unread("not_found", "it is a folder")
        if info.get("size") is None:
            return Unread("io_error", "the server does not say how large it is")
        return parse_stat(info)

    def find(self, pattern: str) -> list[tuple[str, Stat]]:
        """List files that match a pattern or are below a folder.

        Args:
            pattern (str): The address of a folder, or one with `*`, `?` (not on the web) and
                `[...]`; not a path.

        Returns:
            (address, `Stat`) of each file, sorted by address. Empty where nothing matches.

        Raises:
            SourceError: The listing failed, or a file's size cannot be learned.

        Example:
            >>> import fsspec
            >>> fsspec.filesystem("memory").pipe({"/cats/1.jpg": b"..", "/cats/2.jpg": b"...", "/cats/list.txt": b""})
            >>> [(uri, stat.size) for uri, stat in ff.sources.Storage().find("memory://cats/*.jpg")]
            [('memory://cats/1.jpg', 2), ('memory://cats/2.jpg', 3)]
        """
        # an address on the web may have a query
        magic = "*[" if pattern.startswith("http") else "*?["
        verb = "glob" if any(mark in pattern for mark in magic) else "find"
        infos = self._list(pattern, partial(list_files, verb=verb), default={})
        spell = self._endpoints.spelling(pattern)
        files = {
            spell(name): info for name, info in infos.items() if info.get("type", "file") == "file"
        }
        unsized = [uri for uri, info in files.items() if info.get("size") is None]  # of web servers
        stats: dict[str, Stat] = {uri: parse_stat(info) for uri, info in files.items()}
        for uri, stat in zip(unsized, self.stat(unsized), strict=True):
            if isinstance(stat, Unread):
                raise SourceError(f"cannot stat {uri}: {_message(stat)}")
            stats[uri] = stat
        return sorted(stats.items())

    def folder(self, address: str) -> list[dict[str, Any]]:
        """List the direct contents of a folder.

        Args:
            address (str): The folder.

        Returns:
            fsspec's info of each entry, with its address added as "uri"; sorted by name.

        Raises:
            SourceError: The listing failed, or there is no such folder.

        Example:
            >>> import fsspec
            >>> fsspec.filesystem("memory").pipe({"/dogs/small/1.jpg": b"..", "/dogs/list.txt": b""})
            >>> [(info["uri"], info["type"]) for info in ff.sources.Storage().folder("memory://dogs")]
            [('memory://dogs/list.txt', 'file'), ('memory://dogs/small', 'directory')]
        """
        infos: list[dict[str, Any]] = self._list(
            address, lambda system, path: call(system, "ls", path, detail=True)
        )
        spell = self._endpoints.spelling(address)
        _, path = self._endpoints.at(address)
        entries = [info for info in infos if info["name"].rstrip("/") != path.rstrip("/")]
        return sorted(
            (info | {"uri": spell(info["name"])} for info in entries), key=lambda info: info["name"]
        )

    def _list(
        self, address: str, operation: Callable[[Any, str], Awaitable[T]], default: T | None = None
    ) -> T:
        """`default` is returned if the path does not exist; None: that is an error."""
        attempts = min(self.policy.attempts, _LISTING_ATTEMPTS)
        policy = replace(
            self.policy, deadline_s=_LISTING_S, attempt_s=_LISTING_S, hedge=False, attempts=attempts
        )
        (result,) = results([self.submit(address, operation, policy)])
        if isinstance(result, Unread) and result.reason == "not_found" and default is not None:
            return default
        if isinstance(result, Unread):
            raise SourceError(f"cannot list {address}: {_message(result)}")
        return result

    def submit(
        self,
        address: str,
        operation: Callable[[Any, str], Awaitable[T]],
        policy: RetryPolicy | None = None,
    ) -> Future[T | Unread]:
        """Start a custom operation in the event loop; it is repeated when it fails.

        Args:
            address (str): Says which file system, and which path.
            operation (Callable[[Any, str], Awaitable[T]]): Called with fsspec's file system and the
                path.
            policy (RetryPolicy | None): How long and how often to try. Default: None, the policy of
                this storage.

        Returns:
            A future of what the operation returned, or of an `Unread`.

        Example:
            >>> from fastfeed.storage.filesystem import call
            >>> storage = ff.sources.Storage()
            >>> storage.submit("photos.csv", lambda system, path: call(system, "exists", path)).result()
            True
        """
        (endpoint, path) = self._endpoints.at(address)
        policy = policy or self.policy
        request = partial(operation, endpoint.system, path)
        latencies = endpoint.calls if policy.hedge else None
        return submit(partial(self._retried, endpoint, request, policy, latencies))

    def __repr__(self) -> str:
        options = ", ".join(
            f"{k}={v!r}" if k in _PUBLIC_OPTIONS else f"{k}=..." for k, v in self.options.items()
        )
        return f"Storage({options})"


def open_storage(
    storage: dict[str, Any] | Storage | None, cache: str | os.PathLike[str] | Cache | None = None
) -> Storage:
    """The storage that a source's arguments mean: a shared one, or one of these options."""
    if isinstance(storage, Storage):
        return storage
    return Storage(storage, cache=Cache(cache) if isinstance(cache, (str, os.PathLike)) else cache)


def _message(why: Unread) -> str:
    return why.detail or REASONS[why.reason]


def _forked() -> None:
    for storage in list(_storages):
        # closing them would close connections that the parent still uses
        _inherited.append(storage._endpoints)
        storage._forget()


after_fork(_forked)
