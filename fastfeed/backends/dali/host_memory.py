"""Memory of finished batches where DALI runs without a GPU."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from fastfeed.backends.gpu_memory import DEFAULT_LOAD, says_full
from fastfeed.ops.convert import Convert
from fastfeed.runtime.buffers import Allocate, aligned


class HostMemory:
    """NumPy arrays."""

    name, place, hw_load = "memory", "the CPU", DEFAULT_LOAD
    xp: Any = np
    empty: Allocate = staticmethod(aligned)
    device_context = staticmethod(nullcontext)

    def as_array(self, tensors: Any) -> np.ndarray:
        """DALI's output as an array."""
        return np.asarray(tensors.as_tensor())

    def store(self, how: Convert, pixels: np.ndarray, out: Any, rows: list[int]) -> None:
        """Finished uint8 pixels (n, height, width, channels), converted, into rows of a batch."""
        if not how.keeps_bytes:
            pixels = how.table()[pixels, np.arange(pixels.shape[-1])]
        out[rows] = pixels.transpose(0, 3, 1, 2) if how.layout == "CHW" else pixels

    def check_room(self, error: Exception) -> None:
        """Raise if the error means that no memory is left."""
        if says_full(error):
            raise error

    def synchronize(self) -> None:
        """Wait until all writes are visible to every thread."""
