"""Batch memory that is used again once nobody holds it.

Fresh pages cost a page fault each, some 5 % of a batch. A slot is free when its array, and with it every view or tensor
made from it, has no holder left but this pool: reference counts say so exactly, whatever the trainer keeps.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable

import numpy as np

__all__ = ["Allocate", "BufferPool", "aligned"]

Allocate = Callable[[tuple[int, ...], str], np.ndarray]  # (shape, dtype) -> memory with undefined content

_PAGE = 4096  # bytes


def aligned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Memory that begins with a page: frameworks take such arrays as they are, and copy others."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _PAGE, np.uint8)
    first = -memory.ctypes.data % _PAGE
    return memory[first : first + size].view(dtype).reshape(shape)


class BufferPool:
    """Arrays of one shape and dtype."""

    def __init__(self, shape: tuple[int, ...], dtype: str, keep: int, allocate: Allocate = aligned) -> None:
        self._shape, self._dtype, self._keep, self._allocate = shape, dtype, keep, allocate
        self._buffers: list[_Buffer] = []
        self._lock = threading.Lock()

    def like(self, shape: tuple[int, ...], dtype: str) -> BufferPool:
        """As many, from the same kind of memory, of another shape."""
        return BufferPool(shape, dtype, self._keep, self._allocate)

    def use_allocator(self, allocate: Allocate) -> None:
        """From now on take memory of another kind."""
        with self._lock:
            self._allocate, self._buffers = allocate, []

    def take(self) -> np.ndarray:
        """An array with undefined content that nobody else holds."""
        with self._lock:
            for buffer in self._buffers:
                if buffer.holders() == buffer.alone:
                    return buffer.array.view()
            buffer = _Buffer(self._allocate(self._shape, self._dtype))
            buffer.alone = buffer.holders()
            if len(self._buffers) < self._keep:
                self._buffers.append(buffer)
            return buffer.array.view()


class _Buffer:
    """One array, and the one that all its views hold: NumPy has views of views hold the first."""

    __slots__ = ("alone", "array", "root")

    def __init__(self, array: np.ndarray) -> None:
        self.array = self.root = array
        while isinstance(self.root.base, type(self.root)):
            self.root = self.root.base
        self.alone = 0  # what `holders` is when only the pool holds it; interpreters count differently

    def holders(self) -> int:
        return sys.getrefcount(self.root)
