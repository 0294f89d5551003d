"""Spools data that follows a header which is known only at the end."""

from __future__ import annotations

import tempfile
import weakref

from fastfeed.preprocess.writers import File

__all__ = ["Spool"]

_IN_MEMORY = 32 << 20  # bytes; more go to an unnamed temporary file
_COPY_BYTES = 4 << 20  # bytes


class Spool:
    """Bytes in order, in memory or in the temporary folder (TMPDIR)."""

    def __init__(self) -> None:
        self.size = 0  # bytes
        self._spooled = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  closed by `pour`, or on deletion
        weakref.finalize(self, self._spooled.close)

    def write(self, data: bytes | memoryview) -> None:
        """Append data."""
        self.size += self._spooled.write(data)

    def pour(self, file: File) -> None:
        """Append everything to a file and discard it here."""
        self._spooled.seek(0)
        while data := self._spooled.read(_COPY_BYTES):
            file.write(data)
        self._spooled.close()
