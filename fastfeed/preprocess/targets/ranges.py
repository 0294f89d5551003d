"""Byte ranges of files in a target."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable

from fastfeed.errors import SourceError
from fastfeed.preprocess.targets.target import Target
from fastfeed.storage.reads import ByteRange, Unread, is_local
from fastfeed.storage.storage import Storage
from fastfeed.system.descriptors import open_regular

_PIECE = 8 << 20  # bytes read at once

Read = Callable[[int, int], bytes]  # bytes [start, start + count) of a file


def target_location(target: Target) -> tuple[str, Storage]:
    """Root of a target's files, and the storage to read them with."""
    root = getattr(target, "folder", "") or getattr(target, "url", "") or target.text
    return str(root).rstrip("/"), getattr(target, "storage", None) or Storage()


def reader(target: Target, name: str) -> Read:
    """A function that reads ranges of a file below a target. OSError."""
    root, storage = target_location(target)
    path = f"{root}/{name}"
    if is_local(root):

        def of_file(start: int, count: int) -> bytes:
            with open(open_regular(path), "rb") as file:
                file.seek(start)
                return file.read(count)

        return of_file

    def of_object(start: int, count: int) -> bytes:
        (data,) = storage.read([ByteRange(path, start, start + count)])
        if isinstance(data, Unread):
            raise SourceError(f"{data.reason} {data.detail}".strip())
        return data

    return of_object


def file_size(target: Target, name: str) -> int:
    """Bytes of a file below a target. OSError if it is missing."""
    root, storage = target_location(target)
    if is_local(root):
        return os.stat(f"{root}/{name}").st_size
    (stat,) = storage.stat([f"{root}/{name}"])
    if isinstance(stat, Unread):
        raise SourceError(f"{name}: {stat.reason} {stat.detail}".strip())
    return stat.size


class HashedFile:
    """A file below a target that is read in order, and hashed on the way."""

    def __init__(self, target: Target, name: str, size: int | None = None) -> None:
        self.size = file_size(target, name) if size is None else size
        self._read = reader(target, name)
        self._hash = hashlib.sha256()
        self._hashed = 0  # bytes

    def read(self, start: int, count: int) -> bytes:
        """Bytes [start, start + count); those before them are read as well. OSError."""
        self._take_up_to(start)
        return self._take(start, count)

    def sha256(self) -> str:
        """Hash of the whole file; what was not read yet is read now. OSError."""
        self._take_up_to(self.size)
        return self._hash.hexdigest()

    def _take_up_to(self, stop: int) -> None:
        for at in range(self._hashed, stop, _PIECE):
            self._take(at, min(_PIECE, stop - at))

    def _take(self, start: int, count: int) -> bytes:
        data = self._read(start, count)
        if start <= self._hashed < start + len(data):
            self._hash.update(memoryview(data)[self._hashed - start :])
            self._hashed = start + len(data)
        return data


class RangeFile(io.RawIOBase):
    """A file for PyArrow from its byte ranges."""

    def __init__(self, read: Read, size: int) -> None:
        self._read = read
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        rest = max(self._size - self._at, 0)
        data = self._read(self._at, rest if size < 0 else min(size, rest))
        self._at += len(data)
        return data
