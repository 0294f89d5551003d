"""Files of a raw shard that was built before, row by row."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastfeed.preprocess.model.record import Entry, label_in
from fastfeed.preprocess.writers.base import npy_header
from fastfeed.sources.shards.build_index import ForwardReader


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of an array file."""

    file: ForwardReader
    first: int  # byte
    count: int
    shape: tuple[int, ...]  # of one row
    dtype: np.dtype

    @classmethod
    def of(cls, file: ForwardReader) -> Rows:
        head = io.BytesIO(file.read(0, 1 << 10))
        np.lib.format.read_magic(head)
        (count, *shape), _, dtype = np.lib.format.read_array_header_1_0(head)
        return cls(file, head.tell(), count, tuple(shape), dtype)

    @property
    def size(self) -> int:
        """Size of one row, in bytes."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def read(self, start: int, stop: int) -> bytes:
        """The content of some rows."""
        return self.file.read(self.first + start * self.size, (stop - start) * self.size)

    def row(self, k: int) -> np.ndarray:
        """The array of a row."""
        return np.frombuffer(self.read(k, k + 1), self.dtype).reshape(self.shape)


class ArrayFiles:
    """Files of a raw shard: pixels, lines of metadata, and rows of labels and arrays by suffix."""

    def __init__(
        self,
        pixels: ForwardReader,
        open: Callable[[str], ForwardReader],
        arrays: Iterable[str],
        binary: Sequence[str],
    ) -> None:
        self._open = open
        self._binary = binary  # columns of bytes
        lines = open(".meta.jsonl")
        self.lines = lines.read(0, lines.size).splitlines(keepends=True)
        self.pixels = Rows.of(pixels)
        self._head = npy_header("|u1", self.pixels.shape)
        self._arrays = {name: Rows.of(open(f".{name}.npy")) for name in arrays}

    def entries(self, start: int, gone: Container[int]) -> Iterator[Entry]:
        """The samples that are not gone, of files some of which may lack those that are. ValueError.

        start: what ids are more than keys.
        """
        keys = [start + int(json.loads(line)["key"]) for line in self.lines]
        count = len(keys)
        kept = [k for k, key in enumerate(keys) if key not in gone]
        for number, k in enumerate(kept):

            def place(rows: Rows, k: int = k, number: int = number) -> int:
                if rows.count not in (count, len(kept)):
                    listed = f"{count} or {len(kept)} are listed"
                    raise ValueError(f"{rows.file.uri} has {rows.count} rows, {listed}")
                return k if rows.count == count else number

            yield self._entry(k, place)

    def sample(self, start: int, stop: int) -> Entry:
        """The sample in a byte range of the pixels."""
        k = self._line(start)
        return self._entry(k, lambda _: k)

    def _line(self, at: int) -> int:
        """Number of the sample that begins at this byte of the pixels."""
        return (at - self.pixels.first) // self.pixels.size

    def _entry(self, k: int, place: Callable[[Rows], int]) -> Entry:
        """The sample of a line, with its row in each array file."""
        line = json.loads(self.lines[k])
        meta = line["meta"]
        coded = line.get("bytes", {})
        row = place(self.pixels)
        height, width, _ = self.pixels.shape
        return Entry(
            line["key"],
            self._head + self.pixels.read(row, row + 1),
            "npy",
            height,
            width,
            label_in(meta),
            line["text"],
            meta,
            {name: rows.row(place(rows)) for name, rows in self._arrays.items()},
            {name: blob for name in self._binary if (blob := base64.b64decode(coded[name] or ""))},
        )

    @cached_property
    def _labels(self) -> Rows:
        return Rows.of(self._open(".labels.npy"))

    def others(self, start: int, stop: int) -> dict[str, bytes]:
        """Parts of the other files with the samples of a byte range of the pixels, by suffix.

        That of the pixels is a header.
        """
        start = self._line(start)
        stop = self._line(stop)
        return {
            ".npy": self._head,
            ".meta.jsonl": b"".join(self.lines[start:stop]),
            ".labels.npy": self._labels.read(start, stop),
            **{f".{name}.npy": rows.read(start, stop) for name, rows in self._arrays.items()},
        }
