"""Reads images stored in Arrow files, each by its bytes alone."""

from __future__ import annotations

import numpy as np

from fastfeed.runtime.addresses import Grouped, SampleLocations
from fastfeed.sources.tables.columns import RowLocator
from fastfeed.sources.tables.image_files import ImageFiles
from fastfeed.storage.reads import Completed, MappedRead, Pending, Unread
from fastfeed.storage.shard_files import ShardReader


class ArrowImages:
    """Random access to images; rows without bytes are read from their paths."""

    def __init__(
        self,
        arrays: dict[str, np.ndarray],
        where: RowLocator,
        shards: ShardReader,
        named: ImageFiles,
    ) -> None:
        self._starts = arrays["span_starts"]
        self._lengths = arrays["span_lengths"]
        self._where = where
        self._shards = shards
        self._named = named
        self.remote = shards.remote or named.remote

    def uri(self, i: int) -> str:
        """`data.arrow#7`, the row in the file; or the path of a row without bytes."""
        return self._named.uri(i) if self._lengths[i] < 0 else self._where.uri(i)

    def read(self, i: int) -> bytes | Unread:
        """The image of row i."""
        if self._lengths[i] < 0:
            return self._named.read(i)
        return _or_empty(self._shards.read(*self._span(i)))

    def fetch(self, i: int) -> Pending:
        """Begin to read from storage."""
        if self._lengths[i] < 0:
            return self._named.fetch(i)
        if not self._shards.remote:
            return MappedRead(Completed(i), self.read)
        return MappedRead(self._shards.fetch(*self._span(i)), _or_empty)

    def addresses(self, ids: np.ndarray) -> SampleLocations | None:
        """Bytes of local files, int64 (n,), -1 to skip; None if any may be remote."""
        if self.remote:
            return None
        wanted = ids >= 0
        lengths = self._lengths[ids]
        held = np.flatnonzero(wanted & (lengths > 0))
        named = np.flatnonzero(wanted & (lengths < 0))
        starts = self._starts[ids[held]]
        ranges = self._shards.ranges(self._where.files(ids[held]), starts, starts + lengths[held])
        parts: list[tuple[np.ndarray, SampleLocations | None]] = [(held, ranges)]
        if len(named):
            parts.append((named, self._named.addresses(ids[named])))
        return Grouped.of(len(ids), parts)

    def _span(self, i: int) -> tuple[int, int, int]:
        start = int(self._starts[i])
        return self._where.file(i), start, start + int(self._lengths[i])

    # -- Sharded: a unit is a file

    @property
    def bounds(self) -> np.ndarray:
        """First row of each file, and the number of rows last: int64."""
        return self._where.bounds(len(self._lengths))

    def sizes(self, ids: np.ndarray) -> np.ndarray:
        """Bytes of images: int64 (n,); 0 for those named by path."""
        return np.maximum(self._lengths[ids], 0)

    def shard(self, unit: int) -> str:
        """Path or address of a file."""
        return self._where.uris[unit]


def _or_empty(data: bytes | Unread) -> bytes | Unread:
    return data or Unread("empty")
