"""Arrays in shared memory: which of them the feed has, and when they are free again."""

from __future__ import annotations

import math
import os
import weakref
from itertools import count
from typing import Any

import numpy as np

from fastfeed.system.shared_memory import anonymous, mapped

BufferKey = tuple[bool, int]  # (of raw batches?, number in order of allocation)


class SharedBuffers:
    """The helper's side: memory for one `BufferPool`, and which of it the feed uses."""

    def __init__(self, raw: bool) -> None:
        self._raw = raw
        self._numbers = count()
        self._by_address: dict[int, _Memory] = {}  # by address
        self._buffers: dict[BufferKey, np.ndarray] = {}

    def allocate(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Allocate an array in shared memory, for a `BufferPool`."""
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
        """Keep an array until `release`.

        Returns its key, and its descriptor unless the feed has it already.
        """
        memory = self._by_address[_address(array)]
        self._buffers[memory.key] = array
        return memory.key, [] if memory.fd is None else [memory.fd]

    def mark_sent(self, array: np.ndarray) -> None:
        """Close the array's descriptor once the feed has received it."""
        self._by_address[_address(array)].close()

    def release(self, key: BufferKey) -> None:
        """Release a buffer that the feed no longer uses."""
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
    """Forget memory before it is unmapped, so the address cannot have been reused yet."""
    memories.pop(address).close()


def _address(array: np.ndarray) -> Any:
    return array.__array_interface__["data"][0]
