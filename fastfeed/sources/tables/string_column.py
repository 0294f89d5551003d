"""Many texts as one blob and where each ends: 10 million Python strings would take a gigabyte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["StringColumn"]

_AT_ONCE = 1 << 16  # texts that are Python objects at the same time


@dataclass(frozen=True, slots=True, eq=False)
class StringColumn:
    """`texts[i]` is a text; `blob` is uint8 (bytes,), UTF-8, `ends` are integers (n,)."""

    blob: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str]) -> StringColumn:
        """Build from Python strings."""
        joined = "".join(texts)
        blob = _encoded(joined)
        pieces: Sequence[str | bytes] = texts
        if len(blob) != len(joined):  # not one byte for each character
            pieces = [_encoded(text) for text in texts]
            blob = b"".join(pieces)
        lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
        return cls(np.frombuffer(blob, np.uint8), np.cumsum(lengths))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, i: int) -> str:
        start = int(self.ends[i - 1]) if i else 0
        return self.blob[start : int(self.ends[i])].tobytes().decode("utf-8", "surrogateescape")

    def tolist(self) -> list[str]:
        """All of them as Python strings."""
        blob, ends = self.blob.tobytes(), self.ends.tolist()
        starts = [0, *ends[:-1]]
        if blob.isascii():
            text = blob.decode("ascii")
            return [text[i:j] for i, j in zip(starts, ends, strict=False)]
        return [
            blob[i:j].decode("utf-8", "surrogateescape") for i, j in zip(starts, ends, strict=False)
        ]

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Some of them: Python strings in an object array, shape (len(ids),)."""
        out = np.empty(len(ids), object)
        for row, i in enumerate(np.asarray(ids).tolist()):
            out[row] = self[i]
        return out

    def lengths(self) -> np.ndarray:
        """Bytes of each: int64 (n,)."""
        return np.diff(self.ends, prepend=np.zeros(1, self.ends.dtype)).astype(np.int64)

    def hashes(self) -> np.ndarray:
        """Hashes of texts, valid within this process: int64 (n,)."""
        hashes = np.empty(len(self), np.int64)
        for first in range(0, len(self), _AT_ONCE):
            ends = self.ends[first : first + _AT_ONCE].astype(np.int64)
            begin = int(self.ends[first - 1]) if first else 0
            blob = self.blob[begin : int(ends[-1])].tobytes()
            stops = (ends - begin).tolist()
            pieces = map(blob.__getitem__, map(slice, [0, *stops[:-1]], stops))
            hashes[first : first + len(stops)] = np.fromiter(
                map(hash, pieces), np.int64, len(stops)
            )
        return hashes


def _encoded(text: str) -> bytes:
    """Encode text that may hold undecodable bytes or lone surrogates."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
