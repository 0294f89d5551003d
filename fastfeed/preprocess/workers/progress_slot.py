"""A worker's progress in shared memory, which outlives the worker and costs no messages."""

from __future__ import annotations

import mmap
import struct

from fastfeed.system.shared_memory import anonymous

# sample (-1: none), samples begun; native alignment, so each is stored atomically
_FORMAT = struct.Struct("qQ")


class ProgressSlot:
    """Shared memory that one process writes and another reads."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = anonymous(mmap.PAGESIZE, "fastfeed-place") if fd is None else fd
        self._memory = mmap.mmap(self.fd, mmap.PAGESIZE)
        self._begun = 0
        if fd is None:
            self.write(-1)

    def write(self, sample: int) -> None:
        """Set the sample that this process works on."""
        self._begun += sample >= 0
        _FORMAT.pack_into(self._memory, 0, sample, self._begun)

    def read(self) -> tuple[int, int]:
        """Read the pair (sample, samples begun)."""
        return _FORMAT.unpack_from(self._memory, 0)
