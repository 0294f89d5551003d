"""Reads what is left of a zip file whose end is missing."""

from __future__ import annotations

import os
import zlib
from typing import Any

__all__ = ["TruncatedZip"]


class TruncatedZip:
    """The first file of a zip whose end, and with it the central directory, is missing."""

    def __init__(self, raw: Any) -> None:
        raw.seek(0)
        header = raw.read(30)
        if len(header) == 30:
            raw.seek(
                int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"),
                os.SEEK_CUR,
            )
        method = header[8:10]
        self._inflate = zlib.decompressobj(-15) if method == b"\x08\x00" else None
        self._raw, self._compressed = raw, b""
        self._is_supported = self._inflate is not None or method == b"\x00\x00"

    def read1(self, size: int) -> bytes:
        while self._is_supported:
            compressed = self._compressed or self._raw.read(65_536 if self._inflate else size)
            if not compressed or (self._inflate and self._inflate.eof):
                break
            if not self._inflate:
                return compressed
            data = self._inflate.decompress(compressed, max(size, 1))
            self._compressed = self._inflate.unconsumed_tail
            if data:
                return data
        raise EOFError  # a zip without its central directory is never complete
