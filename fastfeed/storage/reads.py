"""Byte ranges to read, sizes and versions of objects, and reads in progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from fastfeed.errors import SourceError

T = TypeVar("T")

_VERSIONS = ("ETag", "etag", "md5Hash", "Content-MD5", "Digest", "mtime")
_VERSIONS += ("LastModified", "last_modified", "Last-Modified")
_VERSIONS += ("updated", "modified", "created", "blob_id", "sha")


@dataclass(frozen=True, slots=True)
class Stat:
    """Size and version of an object, as a listing has them."""

    size: int  # bytes
    version: str  # its etag or modification time; another one means other content


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes [start, stop) of an object; stop=None reads to its end."""

    uri: str
    start: int = 0
    stop: int | None = None
    stat: Stat | None = None  # of the whole object, if known: only then can it be cached


def parse_stat(info: dict[str, Any]) -> Stat:
    """Size and version from fsspec's info."""
    for name in _VERSIONS:
        if value := info.get(name):
            # one client gives a time here and a number there
            text = str(value.timestamp() if isinstance(value, datetime) else value)
            return Stat(int(info.get("size") or 0), text.strip('"'))
    return Stat(int(info.get("size") or 0), "")


def is_local(uri: str) -> bool:
    """Return True for a path in this machine's file system."""
    return "://" not in uri and "::" not in uri


class Pending(Protocol):
    """A read that has begun. `concurrent.futures.Future` is one."""

    def done(self) -> bool:
        """True if `result` will not wait."""
        ...

    def result(self, timeout: float | None = None) -> Any:
        """Result of the read; TimeoutError after `timeout` seconds."""
        ...

    def cancel(self) -> object:
        """The result is no longer needed."""
        ...


@dataclass(frozen=True, slots=True)
class Unread:
    """Reason why a read returned no bytes."""

    reason: str  # a key of faults.REASONS
    detail: str = ""


def readable(data: T | Unread, uri: str, who: str) -> T:
    """The data that was read. SourceError for an Unread."""
    if isinstance(data, Unread):
        raise SourceError(f"{who}: cannot read {uri}: {data.detail or data.reason}")
    return data


class MappedRead:
    """A pending read whose result goes through a function, in the thread that calls `result`."""

    def __init__(self, pending: Pending, function: Callable[[Any], Any]) -> None:
        self._pending = pending
        self._function = function
        self.done = pending.done
        self.cancel = pending.cancel

    def result(self, timeout: float | None = None) -> Any:
        """The function's value for the result."""
        return self._function(self._pending.result(timeout))


class DeferredRead:
    """A read that happens when its result is requested."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read

    def done(self) -> bool:
        """Always True: it does not wait for a network."""
        return True

    def cancel(self) -> object:
        """Do nothing, as no read has begun."""
        return None

    def result(self, timeout: float | None = None) -> Any:
        """Read now, on the calling thread."""
        return self._read()


class Completed(DeferredRead):
    """A pending read whose result is already there."""

    def __init__(self, value: Any) -> None:
        super().__init__(lambda: value)
