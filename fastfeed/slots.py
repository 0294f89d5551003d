"""Batch memory that is used again once nobody holds it.

Fresh pages cost a page fault each, some 5 % of a batch. A slot is free when its array, and with it every view or tensor
made from it, has no holder left but this pool: reference counts say so exactly, whatever the trainer keeps.
"""

from __future__ import annotations

import sys
import threading

import numpy as np

__all__ = ["Slots"]


class Slots:
    """Arrays of one shape and dtype."""

    def __init__(self, shape: tuple[int, ...], dtype: str, keep: int) -> None:
        self._shape, self._dtype, self._keep = shape, dtype, keep
        self._arrays: list[np.ndarray] = []
        self._lock = threading.Lock()

    def take(self) -> np.ndarray:
        """An array with undefined content that nobody else holds."""
        with self._lock:
            for i in range(len(self._arrays)):
                if sys.getrefcount(self._arrays[i]) == _ALONE:
                    return self._arrays[i].view()
            fresh = np.empty(self._shape, self._dtype)
            if len(self._arrays) < self._keep:
                self._arrays.append(fresh)
            return fresh.view()


def _alone() -> int:
    arrays = [np.empty(1)]
    return sys.getrefcount(arrays[0])


_ALONE = _alone()  # what the count is when only a list holds an array; interpreters differ
