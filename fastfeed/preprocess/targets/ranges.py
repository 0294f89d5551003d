"""Byte ranges of files in a target."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from fastfeed.errors import SourceError
from fastfeed.preprocess.targets.target import Target
from fastfeed.storage.reads import ByteRange, Unread, is_local
from fastfeed.storage.storage import Storage
from fastfeed.system.descriptors import open_regular

_PIECE = 8 << 20  # bytes read at once

Read = Callable[[int, int], bytes]  # bytes [start, start + count) of a file


def location_of(target: Target) -> tuple[str, Storage]:
    """Root of a target's files, and the storage to read them with."""
    root = getattr(target, "folder", "") or getattr(target, "url", "") or target.text
    return str(root).rstrip("/"), getattr(target, "storage", None) or Storage()


def reader(target: Target, name: str) -> Read:
    """A function that reads ranges of a file below a target. OSError."""
    root, storage = location_of(target)
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


def size_of(target: Target, name: str) -> int:
    """Bytes of a file below a target. OSError if it is missing."""
    root, storage = location_of(target)
    if is_local(root):
        return os.stat(f"{root}/{name}").st_size
    (stat,) = storage.stat([f"{root}/{name}"])
    if isinstance(stat, Unread):
        raise SourceError(f"{name}: {stat.reason} {stat.detail}".strip())
    return stat.size


def sha256_of(target: Target, name: str, size: int) -> str:
    """Hash of a file of this size below a target. OSError."""
    read = reader(target, name)
    digest = hashlib.sha256()
    for start in range(0, size, _PIECE):
        digest.update(read(start, min(_PIECE, size - start)))
    return digest.hexdigest()
