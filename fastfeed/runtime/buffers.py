"""Batch memory that is reused when no batch refers to it any more.

Fresh pages cost a page fault each, some 5 % of a batch. A buffer is free when this pool holds the
only reference to its array; every view or tensor made from it counts. Reference counts are exact,
whatever the trainer keeps. But without the interpreter's lock a count is the sum of two numbers,
which other threads change between the two reads: there, memory is lent instead, and is returned
when the last array on it is freed.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

# (shape, dtype) -> memory with undefined content
Allocate = Callable[[tuple[int, ...], str], np.ndarray]

_PAGE = 4096  # bytes
_SIZES = 3  # numbers of rows of which memory is kept


def aligned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Page-aligned memory: frameworks use such arrays in place and copy others."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + _PAGE, np.uint8)
    first = -memory.ctypes.data % _PAGE
    return memory[first : first + size].view(dtype).reshape(shape)


@dataclass(eq=False)
class BufferPool:
    """Reusable arrays of one shape and dtype."""

    _shape: tuple[int, ...]
    _dtype: str
    _keep: int
    _allocate: Allocate = aligned

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._lends = not getattr(sys, "_is_gil_enabled", lambda: True)()
        self._forget()

    def _forget(self) -> None:
        self._buffers: list[_Buffer] = []
        self._returned: deque[np.ndarray] = deque(maxlen=self._keep)  # lent, and free again

    def use_allocator(self, allocate: Allocate) -> None:
        """Allocate from other memory from now on."""
        with self._lock:
            self._allocate = allocate
            self._forget()

    def take(self) -> np.ndarray:
        """An array with undefined content that is not in use."""
        with self._lock:
            if self._lends:
                return self._lent()
            for buffer in self._buffers:
                if buffer.references() == buffer.free_count:
                    return buffer.array.view()
            buffer = _Buffer(self._allocate(self._shape, self._dtype))
            buffer.free_count = buffer.references()
            if len(self._buffers) < self._keep:
                self._buffers.append(buffer)
            return buffer.array.view()

    def _lent(self) -> np.ndarray:
        try:
            memory = self._returned.pop()
        except IndexError:
            memory = self._allocate(self._shape, self._dtype)
            if not hasattr(
                memory, "__array_interface__"
            ):  # CuPy's: it has its own pool, and is not lent
                return memory
        return np.asarray(_Loan(memory, self._returned))


@dataclass(eq=False)
class SizedPools:
    """Pools of up to `keep` arrays each, of any number of rows of one shape.

    Those of the numbers taken last are kept.
    """

    _shape: tuple[int, ...]
    _dtype: str
    _keep: int
    _allocate: Allocate = aligned
    _pools: dict[int, BufferPool] = field(default_factory=dict)

    def take(self, rows: int, allocate: Allocate | None = None) -> np.ndarray:
        """An array of this number of rows with undefined content that is not in use.

        `allocate`: other memory, which is not kept.
        """
        if allocate is not None:
            return allocate((rows, *self._shape), self._dtype)
        pool = self._pools.get(rows)
        if pool is None:
            pool = BufferPool((rows, *self._shape), self._dtype, self._keep, self._allocate)
            pools = dict(list(self._pools.items())[1 - _SIZES :])
            self._pools = pools | {rows: pool}  # replaced whole: other threads may look
        return pool.take()


class _Loan:
    """The owner that all arrays on lent memory refer to."""

    def __init__(self, memory: np.ndarray, returned: deque[np.ndarray]) -> None:
        # first: it is returned whatever happens
        self._memory = memory
        self._returned = returned
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:  # on any thread; a deque needs no lock
        self._returned.append(self._memory)


class _Buffer:
    """An array and its root, which all views refer to.

    In NumPy, views of views refer to the first array.
    """

    __slots__ = ("array", "free_count", "root")

    def __init__(self, array: np.ndarray) -> None:
        self.array = self.root = array
        while isinstance(self.root.base, type(self.root)):
            self.root = self.root.base
        # references when only the pool holds it; interpreters count differently
        self.free_count = 0

    def references(self) -> int:
        return sys.getrefcount(self.root)
