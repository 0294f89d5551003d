"""Paths, sizes and versions of many files as arrays, in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.sources.tables.string_column import StringColumn

ROWS = 1 << 16  # of a piece


@dataclass(frozen=True, slots=True, eq=False)
class FileTable:
    """Columns of listed files, in their order."""

    paths: StringColumn  # below the root, folders set off by /
    sizes: np.ndarray | None = None  # bytes, int64 (n,); -1: not known. None: no size is known
    versions: StringColumn | None = None  # what changes with the content; None: not known
    labels: np.ndarray | None = None  # int32 (n,): in which of some folders; -1: in none of them

    def __len__(self) -> int:
        return len(self.paths)

    @classmethod
    def joined(cls, parts: Sequence[FileTable]) -> FileTable:
        """Concatenate tables, all of which have the same columns."""
        if len(parts) == 1:
            return parts[0]
        paths = StringColumn.joined([part.paths for part in parts])
        sizes = [part.sizes for part in parts if part.sizes is not None]
        versions = [part.versions for part in parts if part.versions is not None]
        labels = [part.labels for part in parts if part.labels is not None]
        return cls(
            paths,
            np.concatenate(sizes) if sizes else None,
            StringColumn.joined(versions) if versions else None,
            np.concatenate(labels) if labels else None,
        )

    def cut(self, first: int, last: int) -> FileTable:
        """Return the files in [first, last)."""
        return self._each(lambda column: _cut(column, first, last))

    def take(self, order: np.ndarray) -> FileTable:
        """Select rows in this order, each at most once."""
        return self._each(lambda column: _take(column, order))

    def _each(self, change: Callable[[Any], Any]) -> FileTable:
        others = (self.sizes, self.versions, self.labels)
        changed = (None if column is None else change(column) for column in others)
        return FileTable(change(self.paths), *changed)

    def in_order(self) -> FileTable:
        """Sort as a walk from folder to folder does: a/ before a-b/, unlike text order."""
        keys = [path.replace(b"/", b"\0") for path in unpacked(self.paths)]
        return self.take(np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64))


def in_pieces(parts: Iterable[FileTable], rows: int = ROWS) -> Iterator[FileTable]:
    """Yield the files in pieces of `rows`; the last has fewer."""
    waiting: list[FileTable] = []
    count = 0
    for part in parts:
        waiting.append(part)
        count += len(part)
        if count >= rows:
            table = FileTable.joined(waiting)
            for first in range(0, count - rows + 1, rows):
                yield table.cut(first, first + rows)
            waiting = [table.cut(count - count % rows, count)]
            count = count % rows
    if count:
        yield FileTable.joined(waiting)


def unpacked(texts: StringColumn) -> Iterator[bytes]:
    """Iterate the texts as bytes, without holding all of them as Python objects."""
    for first in range(0, len(texts), ROWS):
        part = _cut(texts, first, min(first + ROWS, len(texts)))
        blob = part.blob.tobytes()
        start = 0
        for end in part.ends.tolist():
            yield blob[start:end]
            start = end


def _cut(column: Any, first: int, last: int) -> Any:
    if isinstance(column, np.ndarray):
        return column[first:last]
    start = int(column.ends[first - 1]) if first else 0
    stop = int(column.ends[last - 1]) if last else 0
    return StringColumn(column.blob[start:stop], column.ends[first:last] - start)


def _take(column: Any, order: np.ndarray) -> Any:
    if isinstance(column, np.ndarray):
        return column[order]
    lengths = column.lengths()
    starts = column.ends - lengths
    blob = column.blob
    blob_bytes = bytearray()
    for first in range(0, len(order), ROWS):
        rows = order[first : first + ROWS]
        spans = zip(starts[rows].tolist(), column.ends[rows].tolist(), strict=True)
        blob_bytes += b"".join([blob[start:end].tobytes() for start, end in spans])
    return StringColumn(
        np.frombuffer(blob_bytes, np.uint8), np.cumsum(lengths[order], dtype=np.int64)
    )
