"""Many texts as one blob, and the numbers they stand for in CSV, whose columns have no types.

10 million Python strings would take a gigabyte. A column is one of numbers only if reading it loses
nothing: `007`, `1e5` and `12345678901234567890` are texts, and make texts of all values of their
column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from fastfeed.sources.class_names import canonical_integers

_AT_ONCE = 1 << 16  # texts that are Python objects at the same time


@dataclass(frozen=True, slots=True, eq=False)
class StringColumn:
    """`texts[i]` is a text; `blob` is uint8 (bytes,), UTF-8, `ends` are integers (n,)."""

    blob: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str]) -> StringColumn:
        """Build a column from Python strings."""
        joined = "".join(texts)
        blob = _encoded(joined)
        if len(blob) != len(joined):  # not one byte for each character
            return cls.of_bytes([_encoded(text) for text in texts])
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return cls(np.frombuffer(blob, np.uint8), np.cumsum(lengths))

    @classmethod
    def of_bytes(cls, texts: Sequence[bytes]) -> StringColumn:
        """Build from encoded texts, or from any bytes."""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return cls(np.frombuffer(b"".join(texts), np.uint8), np.cumsum(lengths))

    @classmethod
    def joined(cls, parts: Sequence[StringColumn]) -> StringColumn:
        """Texts of columns one after another."""
        blobs, ends = in_one_blob(parts)
        return cls(
            np.concatenate([np.empty(0, np.uint8), *blobs]),
            np.concatenate([np.empty(0, np.int64), *ends]),
        )

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, i: int) -> str:
        return self.content(i).decode("utf-8", "surrogateescape")

    def content(self, i: int) -> bytes:
        """UTF-8 bytes of text number i."""
        start = int(self.ends[i - 1]) if i else 0
        return self.blob[start : int(self.ends[i])].tobytes()

    def tolist(self) -> list[str]:
        """All texts as Python strings."""
        blob = self.blob.tobytes()
        ends = self.ends.tolist()
        starts = [0, *ends[:-1]]
        if blob.isascii():
            text = blob.decode("ascii")
            return [text[i:j] for i, j in zip(starts, ends, strict=False)]
        return [
            blob[i:j].decode("utf-8", "surrogateescape") for i, j in zip(starts, ends, strict=False)
        ]

    def take(self, ids: np.ndarray) -> np.ndarray:
        """Some of them: Python strings in an object array, shape (len(ids),)."""
        if len(ids) > len(self) // 2:  # cut all at once, several times as fast
            return np.array([*self.tolist(), ""], object)[ids]
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


def in_one_blob(parts: Sequence[StringColumn]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Blobs of columns one after another, and ends that count from the first of them."""
    firsts = accumulate((len(part.blob) for part in parts), initial=0)
    ends = [part.ends.astype(np.int64) + first for part, first in zip(parts, firsts, strict=False)]
    return [part.blob for part in parts], ends


def _encoded(text: str) -> bytes:
    """Encode text that may hold undecodable bytes or lone surrogates."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


_EXACT = 1 << 53  # integers up to this are themselves as float64
_FRACTION = re.compile(
    r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[nN]a[nN]|-?inf"
)
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def fractions(texts: Iterable[str]) -> list[float] | None:
    """Numbers of a column with decimal points; None if any text is something else."""
    values = []
    for text in texts:
        if not _FRACTION.fullmatch(text):
            return None
        value = float(text)
        if (
            abs(value) >= _EXACT
            and (integer := canonical_integers([text]))
            and int(value) != integer[0]
        ):
            return None
        values.append(value)
    return values


def numbers(parts: Sequence[StringColumn]) -> list[np.ndarray] | None:
    """Integers, else fractions, else bools, 0 for empty texts; None for other texts."""
    kinds: list[tuple[Callable[[list[str]], list[Any] | None], Any]] = [
        (canonical_integers, np.int64)
    ]
    if any(ord(".") in part.blob for part in parts):
        # else `1e5` is one of several codes rather than a number
        kinds.append((fractions, np.float64))
    kinds.append((_bools, np.bool_))
    for parse, dtype in kinds:
        arrays = _parse_all(parts, parse, dtype)
        if arrays is not None:
            return arrays
    return None


def _parse_all(
    parts: Sequence[StringColumn], parse: Callable[[list[str]], list[Any] | None], dtype: Any
) -> list[np.ndarray] | None:
    arrays = []
    for part in parts:
        present = part.lengths() > 0
        values = parse([text for text in part.tolist() if text])
        if values is None:
            return None
        array = np.zeros(len(part), dtype)
        array[present] = values
        arrays.append(array)
    return arrays


def _bools(texts: list[str]) -> list[bool] | None:
    return [_BOOLS[text] for text in texts] if set(texts) <= _BOOLS.keys() else None
