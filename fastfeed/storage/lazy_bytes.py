"""Bytes that stay in their file until a part of them is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from fastfeed.system.descriptors import open_regular, pread

__all__ = ["LazyBytes", "OpenFile", "chunks_of"]

_PIECE = 4 << 20  # bytes


class OpenFile:
    """A file open for reading; closed with its last reference."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.fd = open_regular(path)

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            os.close(self.fd)


class LazyBytes:
    """Bytes [start, start + size) of an open file; `lazy[a:b]` reads as `bytes` does.

    Read, not mapped: where a file on network storage is replaced or truncated, a mapping kills the process. Missing
    bytes read as zeros. Pickles as the bytes themselves.
    """

    def __init__(self, file: OpenFile, start: int, size: int) -> None:
        self._file, self._start, self._size = file, start, size

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
