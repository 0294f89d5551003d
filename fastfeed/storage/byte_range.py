"""Byte ranges of objects, and what a listing says of these: size and version."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

__all__ = ["ByteRange", "Stat", "is_local", "stat_of"]

_VERSIONS = (
    *(
        "ETag",
        "etag",
        "md5Hash",
        "Content-MD5",
        "Digest",
        "mtime",
        "LastModified",
        "last_modified",
        "Last-Modified",
    ),
    *("updated", "modified", "created", "blob_id", "sha"),
)


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


def stat_of(info: dict[str, Any]) -> Stat:
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
