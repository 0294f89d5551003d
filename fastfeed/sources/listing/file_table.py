"""Paths, sizes and versions of many files as arrays, in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fastfeed.sources.tables.string_column import StringColumn

ROWS = 1 << 16  # of a piece


@dataclass(frozen=True, slots=True, eq=False)
class FileTable:
    """Files in their order."""

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
        sizes = [part.sizes for part in parts if part.sizes is not None]
        versions = [part.versions for part in parts if part.versions is not None]
        labels = [part.labels for part in parts if part.labels is not None]
        return cls(
            joined([part.paths for part in parts]),
            np.concatenate(sizes) if sizes else None,
            joined(versions) if versions else None,
            np.concatenate(labels) if labels else None,
        )

    def cut(self, first: int, last: int) -> FileTable:
        """Return the files in [first, last)."""
        return FileTable(
            _cut(self.paths, first, last),
            None if self.sizes is None else self.sizes[first:last],
            None if self.versions is None else _cut(self.versions, first, last),
            None if self.labels is None else self.labels[first:last],
        )

    def take(self, order: np.ndarray) -> FileTable:
        """Select rows in this order, each at most once."""
        return FileTable(
            _take(self.paths, order),
            None if self.sizes is None else self.sizes[order],
            None if self.versions is None else _take(self.versions, order),
            None if self.labels is None else self.labels[order],
        )

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
            waiting, count = [table.cut(count - count % rows, count)], count % rows
    if count:
        yield FileTable.joined(waiting)


def packed(texts: Sequence[bytes]) -> StringColumn:
    """Pack texts given as bytes, which need not be UTF-8."""
    return StringColumn(
        np.frombuffer(b"".join(texts), np.uint8),
        np.cumsum([len(text) for text in texts], dtype=np.int64),
    )


def unpacked(texts: StringColumn) -> Iterator[bytes]:
    """Iterate the texts as bytes, without holding all of them as Python objects."""
    for first in range(0, len(texts), ROWS):
        part = _cut(texts, first, min(first + ROWS, len(texts)))
        blob, start = part.blob.tobytes(), 0
        for end in part.ends.tolist():
            yield blob[start:end]
            start = end


def joined(parts: Sequence[StringColumn]) -> StringColumn:
    starts = np.cumsum([0] + [len(part.blob) for part in parts], dtype=np.int64)
    ends = [part.ends + start for part, start in zip(parts, starts, strict=False)]
    blobs = [part.blob for part in parts]
    return StringColumn(
        np.concatenate([np.empty(0, np.uint8), *blobs]),
        np.concatenate([np.empty(0, np.int64), *ends]),
    )


def _cut(texts: StringColumn, first: int, last: int) -> StringColumn:
    start = int(texts.ends[first - 1]) if first else 0
    stop = int(texts.ends[last - 1]) if last else 0
    return StringColumn(texts.blob[start:stop], texts.ends[first:last] - start)


def _take(texts: StringColumn, order: np.ndarray) -> StringColumn:
    lengths = texts.lengths()
    starts, blob = texts.ends - lengths, texts.blob
    blob_bytes = bytearray()
    for first in range(0, len(order), ROWS):
        rows = order[first : first + ROWS]
        spans = zip(starts[rows].tolist(), texts.ends[rows].tolist(), strict=True)
        blob_bytes += b"".join([blob[start:end].tobytes() for start, end in spans])
    return StringColumn(
        np.frombuffer(blob_bytes, np.uint8), np.cumsum(lengths[order], dtype=np.int64)
    )
