"""Pages of files that the operating system has in memory.

Linux alone can do both (posix_fadvise(2), mincore(2)); elsewhere nothing is forgotten, or known.
Asking by preadv2(2) with RWF_NOWAIT would be shorter, but it starts to read what is not there.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from typing import Any

_fadvise = getattr(os, "posix_fadvise", None)


def can_forget() -> bool:
    """Return True if this system can drop pages."""
    return _fadvise is not None


def forget(fd: int) -> None:
    """Drop all clean pages of a file that no one has mapped."""
    if _fadvise is not None:
        _fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # type: ignore[attr-defined]


def is_held(fd: int, first: int = 0) -> bool | None:
    """Return True if the page at an offset is in memory; None if unknown.

    Reads nothing from the disk.
    """
    if sys.platform != "linux" or not _may_know(fd):
        return None
    begin = first - first % mmap.ALLOCATIONGRANULARITY
    try:
        size = min(mmap.PAGESIZE, os.fstat(fd).st_size - begin)
        if size <= 0:
            return None
        with mmap.mmap(
            fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=begin
        ) as pages:
            start = ctypes.c_char.from_buffer(pages)
            resident = ctypes.c_ubyte()
            failed = _mincore()(ctypes.addressof(start), size, ctypes.byref(resident))
            del start  # or the mapping could not be closed
        return None if failed else bool(resident.value & 1)
    except (
        OSError,
        ValueError,
        AttributeError,
    ):  # no regular file, or a file system without mappings
        return None


def _may_know(fd: int) -> bool:
    """Return True if Linux reports pages of this file, which others may own."""
    try:
        return os.fstat(fd).st_uid == os.geteuid() or os.access(f"/proc/self/fd/{fd}", os.W_OK)
    except OSError:
        return False


def _mincore() -> Any:
    function = ctypes.CDLL(None).mincore
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    return function
