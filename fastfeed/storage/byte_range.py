"""What is read: bytes of objects, which a listing described."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["Span", "Stat", "is_local", "stat_of"]

_VERSIONS = (
    *("ETag", "etag", "md5Hash", "Content-MD5", "Digest", "mtime", "LastModified", "last_modified", "Last-Modified"),
    *("updated", "modified", "created", "blob_id", "sha"),
)


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


def stat_of(info: dict[str, Any]) -> Stat:
    """Size and version in an info of fsspec's."""
    for name in _VERSIONS:
        if value := info.get(name):
            # one client gives a time here and a number there
            text = str(value.timestamp() if isinstance(value, datetime) else value)
            return Stat(int(info.get("size") or 0), text.strip('"'))
    return Stat(int(info.get("size") or 0), "")


def is_local(uri: str) -> bool:
    """A path of this machine's file system."""
    return "://" not in uri and "::" not in uri
