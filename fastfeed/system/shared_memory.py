"""Anonymous shared memory, freed with the last process that maps it.

Linux alone has it (`is_available`). macOS and Windows: no helper process, and jobs run in this
process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import weakref
from functools import cache
from typing import Any

import numpy as np

_MAP_POPULATE = 0x8000


def is_available() -> bool:
    """Return True if the functions of this module work."""
    return sys.platform == "linux" and hasattr(os, "memfd_create")


def anonymous(size: int, name: str = "fastfeed") -> int:
    """A descriptor of `size` bytes, which any process that receives it may map."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, max(1, size))
    except OSError:
        os.close(fd)
        raise
    return fd


def mapped(fd: int, size: int, *, populate: bool = False, private: bool = False) -> np.ndarray:
    """The memory as uint8 (size,), page aligned, writable, mapped as long as any view of it lives.

    `populate`: its pages exist already, so map them all at once. `private`: writes stay in this
    process.
    """
    return np.asarray(_Mapping(fd, size, populate, private))


@cache
def _libc() -> Any:
    """The C library's mmap, which keeps no file descriptor open for each mapping."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


class _Mapping:
    """One mapping, held by its arrays."""

    def __init__(self, fd: int, size: int, populate: bool, private: bool) -> None:
        libc = _libc()
        flags = (mmap.MAP_PRIVATE if private else mmap.MAP_SHARED) | (
            _MAP_POPULATE if populate else 0
        )
        address = libc.mmap(None, max(1, size), mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)
        if address == ctypes.c_void_p(-1).value:
            code = ctypes.get_errno()
            raise OSError(code, f"cannot map {size} bytes of shared memory: {os.strerror(code)}")
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
        end = weakref.finalize(self, libc.munmap, address, max(1, size))
        end.atexit = False  # threads may still use it then
