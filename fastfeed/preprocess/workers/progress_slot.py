"""Where a worker process is, in memory that outlives it: a note costs nothing, and nobody has to listen."""

from __future__ import annotations

import mmap
import os
import struct

__all__ = ["ProgressSlot"]

_NOTE = struct.Struct("qQ")  # the sample, -1 for none; how many have been begun. Native: each is stored at once


class ProgressSlot:
    """One process writes, another reads."""

    def __init__(self, fd: int | None = None) -> None:
        self.fd = os.memfd_create("fastfeed-place") if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, mmap.PAGESIZE)
        self._memory = mmap.mmap(self.fd, mmap.PAGESIZE)
        self._begun = 0
        if fd is None:
            self.write(-1)

    def write(self, sample: int) -> None:
        """What this process is at from now on."""
        self._begun += sample >= 0
        _NOTE.pack_into(self._memory, 0, sample, self._begun)

    def read(self) -> tuple[int, int]:
        """(sample, samples begun)."""
        return _NOTE.unpack_from(self._memory, 0)
