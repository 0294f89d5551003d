"""Anonymous shared memory as arrays. It has no name in any folder and is freed with the last process that maps it.

Mapped by the C library: a mapping made by Python's `mmap` keeps a file descriptor for as long as it lives, and a
trainer that keeps a thousand batches would run out of them.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import weakref
from itertools import count
from typing import Any

import numpy as np

__all__ = ["BufferKey", "SharedBuffers", "anonymous", "mapped"]

BufferKey = tuple[bool, int]  # (of raw batches?, number in order of allocation)

_MAP_POPULATE = 0x8000
_C = ctypes.CDLL(None, use_errno=True)
_C.mmap.restype = ctypes.c_void_p
_C.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_C.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def anonymous(size: int) -> int:
    """A descriptor of `size` bytes, which any process that receives it may map."""
    fd = os.memfd_create("fastfeed", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, max(1, size))
    except OSError:
        os.close(fd)
        raise
    return fd


def mapped(fd: int, size: int, *, populate: bool = False, private: bool = False) -> np.ndarray:
    """The memory as uint8 (size,), page aligned, writable, mapped as long as any view of it lives.

    `populate`: its pages exist already, so map them all at once. `private`: writes stay in this process.
    """
    return np.asarray(_Mapping(fd, size, populate, private))


class _Mapping:
    """One mapping, held by its arrays."""

    def __init__(self, fd: int, size: int, populate: bool, private: bool) -> None:
        flags = (mmap.MAP_PRIVATE if private else mmap.MAP_SHARED) | (_MAP_POPULATE if populate else 0)
        address = _C.mmap(None, max(1, size), mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)
        if address == ctypes.c_void_p(-1).value:
            code = ctypes.get_errno()
            raise OSError(code, f"cannot map {size} bytes of shared memory: {os.strerror(code)}")
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}
        end = weakref.finalize(self, _C.munmap, address, max(1, size))
        end.atexit = False  # threads may still use it then


class SharedBuffers:
    """The helper's side: memory for one `BufferPool`, and which of it the feed uses."""

    def __init__(self, raw: bool) -> None:
        self._raw, self._numbers = raw, count()
        self._by_address: dict[int, _Memory] = {}  # by address
        self._buffers: dict[BufferKey, np.ndarray] = {}

    def allocate(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """For a `BufferPool`."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        fd = anonymous(size)
        try:
            root = mapped(fd, size)
        except OSError:
            os.close(fd)
            raise
        address = _address(root)
        self._by_address[address] = _Memory((self._raw, next(self._numbers)), fd)
        weakref.finalize(root, _forget, self._by_address, address).atexit = False
        return root.view(dtype).reshape(shape)

    def lend(self, array: np.ndarray) -> tuple[BufferKey, list[int]]:
        """Keep an array until `release`. Returns its key, and its descriptor unless the feed has it already."""
        memory = self._by_address[_address(array)]
        self._buffers[memory.key] = array
        return memory.key, [] if memory.fd is None else [memory.fd]

    def mark_sent(self, array: np.ndarray) -> None:
        """The feed has received its descriptor."""
        self._by_address[_address(array)].close()

    def release(self, key: BufferKey) -> None:
        """The feed no longer uses this buffer."""
        self._buffers.pop(key, None)


class _Memory:
    """One allocation; its descriptor, until it has been sent."""

    __slots__ = ("fd", "key")

    def __init__(self, key: BufferKey, fd: int) -> None:
        self.key = key
        self.fd: int | None = fd

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def _forget(memories: dict[int, _Memory], address: int) -> None:
    """Runs before the memory is unmapped, so the address cannot have been reused yet."""
    memories.pop(address).close()


def _address(array: np.ndarray) -> Any:
    return array.__array_interface__["data"][0]
