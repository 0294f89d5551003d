"""Reads one whole local file."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar

from fastfeed.storage.retry import Unread
from fastfeed.system.descriptors import open_file
from fastfeed.system.within import Within

__all__ = ["MAX_BYTES", "over_files", "read_file", "size_of", "unread"]

_T = TypeVar("_T")

# of the path rather than of the disk: another try gives the same
_NO_SUCH_PATH = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}

MAX_BYTES = 1 << 30  # of one file; a photograph is far below

_PROBED = 64  # files that are looked at one after another, to see how long it takes
_SLOW_S = 50e-6  # for each, from which on threads are worth their cost: a network's disk takes 1 ms
_AT_ONCE, _GROUP = 32, 32  # threads; files that one of them takes in a row


def over_files(look: Callable[[str], _T], paths: Sequence[str]) -> list[_T]:
    """Call `look` with each path, many at a time where that is slow, as on a network's disk."""
    started = perf_counter()
    results = list(map(look, paths[:_PROBED]))
    remaining = paths[_PROBED:]
    if not remaining or perf_counter() - started < _PROBED * _SLOW_S:
        return results + list(map(look, remaining))
    groups = [remaining[i : i + _GROUP] for i in range(0, len(remaining), _GROUP)]
    with ThreadPoolExecutor(min(_AT_ONCE, len(groups)), thread_name_prefix="fastfeed-stat") as pool:
        for part in pool.map(lambda group: list(map(look, group)), groups):
            results += part
    return results


def read_file(path: str | bytes, within: Within | None = None) -> bytes | Unread:
    """The file's bytes; Unread for an empty file as well, and "not_allowed" for one that does not lie `within`."""
    try:
        # a named pipe called photo.jpg must not stop the thread for ever
        fd = open_file(path, wait=False)
        with open(fd, "rb", buffering=0) as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return Unread("not_image", "not a regular file")
            if status.st_size > MAX_BYTES:
                return Unread("bomb", f"{status.st_size} bytes, the limit is {MAX_BYTES}")
            if within is not None and not within.holds(fd, path):
                return Unread("not_allowed", "a link that leads out of its folder")
            blob = file.readall()
    except FileNotFoundError:
        return Unread("not_found")
    except IsADirectoryError:
        return Unread("not_image", "not a regular file")
    except OSError as error:
        return unread(error)
    except ValueError as error:  # a path with a zero byte, or that cannot be encoded
        return Unread("not_found", str(error))
    return blob or Unread("empty")


def unread(error: OSError) -> Unread:
    """Why a local file could not be read."""
    detail = error.strerror or str(error)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        detail += "; this is a limit on open files, `ulimit -n`, and no fault of the file or its storage"
    if error.errno in _NO_SUCH_PATH:
        return Unread("not_found", detail)
    return Unread("denied" if isinstance(error, PermissionError) else "io_error", detail)


def size_of(path: str) -> int:
    """Bytes of a local file; -1 where it is missing."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
