"""What stands behind a table of contents that is written first, but known last."""

from __future__ import annotations

import tempfile
import weakref

from fastfeed.preprocess.writers import File

__all__ = ["Spool"]

_IN_MEMORY = 32 << 20  # bytes; more go to a file without a name, which is gone with the process
_AT_ONCE = 4 << 20  # bytes


class Spool:
    """Bytes kept in their order, in memory or in the folder of temporary files (TMPDIR)."""

    def __init__(self) -> None:
        self.size = 0  # bytes
        self._kept = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  closed by `pour`, or with this
        weakref.finalize(self, self._kept.close)

    def write(self, data: bytes | memoryview) -> None:
        """To the end."""
        self.size += self._kept.write(data)

    def pour(self, file: File) -> None:
        """All of it to the end of a file; then nothing is kept."""
        self._kept.seek(0)
        while data := self._kept.read(_AT_ONCE):
            file.write(data)
        self._kept.close()
