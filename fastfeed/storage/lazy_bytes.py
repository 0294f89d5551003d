"""Bytes that stay in their file until a part of them is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from fastfeed.storage.local_file import open_to_read
from fastfeed.system.descriptors import pread

__all__ = ["LazyBytes", "OpenFile", "chunks_of", "open_count"]

_PIECE = 4 << 20  # bytes


_open: set[int] = set()  # descriptors; changed by single operations, which need no lock


class OpenFile:
    """A file open for reading; closed with its last reference."""

    __slots__ = ("__weakref__", "fd", "used")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.fd = open_to_read(path)
        self.used = 0  # when, as its holder counts
        _open.add(self.fd)

    # when the interpreter ends, the names of this module may be gone before the last file
    def __del__(
        self, close: Callable[[int], None] = os.close, forget: Callable[[int], None] = _open.discard
    ) -> None:
        if hasattr(self, "fd"):
            forget(self.fd)
            close(self.fd)


def open_count() -> int:
    """Files that are open in this process."""
    return len(_open)


class LazyBytes:
    """Bytes [start, start + size) of an open file; `lazy[a:b]` reads as `bytes` does.

    Read, not mapped: where a file on network storage is replaced or truncated, a mapping kills the
    process. Missing bytes read as zeros. Pickles as the bytes themselves.
    """

    def __init__(self, file: OpenFile, start: int, size: int) -> None:
        self._file = file
        self._start = start
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        first, last, _ = part.indices(self._size)
        data = b""
        while len(data) < last - first:
            more = pread(self._file.fd, last - first - len(data), self._start + first + len(data))
            if not more:
                return data + bytes(last - first - len(data))
            data += more
        return data

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (self[:],)


def chunks_of(data: bytes | LazyBytes) -> Iterator[bytes]:
    """All of it, in chunks."""
    for at in range(0, len(data), _PIECE):
        yield data[at : at + _PIECE]
