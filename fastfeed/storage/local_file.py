"""Reads one whole local file."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter, sleep
from typing import TypeVar

from fastfeed.errors import StorageError
from fastfeed.storage.reads import Unread
from fastfeed.system.descriptors import EXHAUSTED, open_file, open_regular
from fastfeed.system.within import Within

_T = TypeVar("_T")
_Path = str | bytes | os.PathLike[str]

# of the path rather than of the disk: another try gives the same
_NO_SUCH_PATH = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}

_PAUSES_S = (0.0, 0.05, 0.2, 0.5, 1.0)  # before another try to open a file
# close files that are held open and not in use; True if there were any
closers: list[Callable[[], bool]] = []

MAX_BYTES = 1 << 30  # of one file; images are far below

_PROBED = 8  # files that are looked at one after another, to see how long it takes
_SLOW_S = 50e-6  # for each, from which on threads are worth their cost: a network's disk takes 1 ms
# threads; files that one of them takes in a row, at most
_AT_ONCE = 32
_GROUP = 32


def over_files(look: Callable[[str], _T], paths: Sequence[str]) -> list[_T]:
    """Call `look` with each path, many at a time where that is slow, as on a network's disk."""
    started = perf_counter()
    results = list(map(look, paths[:_PROBED]))
    remaining = paths[_PROBED:]
    if not remaining or perf_counter() - started < _PROBED * _SLOW_S:
        return results + list(map(look, remaining))
    size = min(_GROUP, -(-len(remaining) // _AT_ONCE))
    groups = [remaining[i : i + size] for i in range(0, len(remaining), size)]
    with ThreadPoolExecutor(min(_AT_ONCE, len(groups)), thread_name_prefix="fastfeed-stat") as pool:
        for part in pool.map(lambda group: list(map(look, group)), groups):
            results += part
    return results


def open_to_read(path: _Path, opens: Callable[[_Path], int] = open_regular) -> int:
    """Open a file, closing idle shards and retrying for two seconds without descriptors.

    StorageError where that does not help.
    """
    for pause in _PAUSES_S:
        try:
            return opens(path)
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
        if not any(close() for close in closers):
            sleep(pause)
    try:
        return opens(path)
    except OSError as error:
        raise_exhausted(error, f"cannot open {os.fsdecode(path)}")
        raise


def raise_exhausted(error: OSError, what: str) -> None:
    """StorageError if the process or the machine has run out of something; otherwise nothing."""
    if error.errno not in EXHAUSTED:
        return
    if error.errno == errno.EMFILE:
        advice = "raise the limit on open files, `ulimit -n`"
    else:
        advice = "close other programs"
    text = f"{what}: {error.strerror or error}; no sample is listed as bad for it: {advice}"
    exhausted = StorageError(text)
    exhausted.errno = error.errno
    raise exhausted from error


def read_file(
    path: str | bytes,
    within: Within | None = None,
    limit: int = MAX_BYTES,
    part: tuple[int, int] | None = None,
) -> bytes | Unread:
    """Bytes of a file; Unread if empty, larger than `limit` or not `within`.

    `part`: where to start and to stop; None reads all.
    """
    try:
        # a named pipe called photo.jpg must not stop the thread for ever
        fd = open_to_read(path, partial(open_file, wait=False))
        with open(fd, "rb", buffering=0) as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return Unread("not_image", "not a regular file")
            if status.st_size > limit:
                return Unread("bomb", f"{status.st_size:,} bytes, the limit is {limit:,}")
            if within is not None and not within.holds(fd, path):
                return Unread("not_allowed", "a link that leads out of its folder")
            if part is None:
                blob = file.readall()
            else:
                file.seek(part[0])
                blob = file.read(part[1] - part[0])
    except FileNotFoundError:
        return Unread("not_found")
    except IsADirectoryError:
        return Unread("not_image", "not a regular file")
    except OSError as error:
        return unread(error, os.fsdecode(path))
    except ValueError as error:  # a path with a zero byte, or that cannot be encoded
        return Unread("not_found", str(error))
    return blob or Unread("empty")


def unread(error: OSError, path: str = "a file") -> Unread:
    """The reason why a local file could not be read.

    StorageError where that is not the fault of the file or its storage.
    """
    if isinstance(error, StorageError):
        raise error
    raise_exhausted(error, f"cannot read {path}")
    detail = error.strerror or str(error)
    if error.errno in _NO_SUCH_PATH:
        return Unread("not_found", detail)
    return Unread("denied" if isinstance(error, PermissionError) else "io_error", detail)


def file_size(path: str) -> int:
    """Bytes of a local file; -1 if it is missing."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1
