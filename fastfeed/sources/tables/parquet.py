"""Columns of Parquet files, by PyArrow.

Only what is wanted is read: footers and chunks of columns, many at once.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastfeed.errors import MissingExtra, SourceError
from fastfeed.sources.tables.columns import ColumnPart
from fastfeed.sources.tables.csv_jsonl import no_column
from fastfeed.sources.tables.parquet_footer import PageTotals, RowGroup, row_groups, scan_pages
from fastfeed.storage.event_loop import results
from fastfeed.storage.reads import Unread, readable
from fastfeed.storage.shard_files import ShardReader

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtra.of("Table", "PyArrow", "parquet") from error
from fastfeed.sources.tables.arrow import column_kind, get_column, image_fields, part

_MAGIC = b"PAR1"
_TAIL = 256 << 10  # bytes read at first for the footer
_GAP = 256 << 10  # bytes that are read in vain rather than to send another request
# times its bytes in the file that something may take, where memory is less
_IMAGE_RATIO = 20
_COLUMN_RATIO = 100
_NO_IMAGES = 256  # bytes that a column has without any value, and a byte for each row
_UNKNOWN = 1 << 62
_STEPS = 8  # in which columns are read that may take too much memory, at least
_AT_ONCE = 128 << 20  # bytes of columns read and decoded together
# what PyArrow raises; names that are no UTF-8, too
_DAMAGE = (pa.ArrowException, OSError, ValueError)


class BadFile(Exception):
    """A Parquet file that PyArrow cannot read."""


class TooLarge(BadFile):
    """Unpacked, it would take more memory than allowed."""


class Budget:
    """Memory that the columns of a table may take, all files together.

    A lock is not needed: it may be a little off.
    """

    def __init__(self, memory: int, file_bytes: int) -> None:
        self.limit = max(memory, _COLUMN_RATIO * file_bytes)
        self._taken = 0

    def take(self, size: int, uri: str) -> None:
        """Count bytes. SourceError if there are too many."""
        self._taken += size
        self.check(0, uri)

    def check(self, size: int, uri: str) -> None:
        """SourceError if bytes would be too many."""
        if self._taken + size > self.limit:
            raise SourceError(
                f"Table: the columns of {uri} take more than {self.limit:,} bytes of memory, far"
                " more than their file; if you trust it, pass"
                f" memory='{-(-(self._taken + size) // 10**9)}GB', or more"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Footer:
    """Footer of a Parquet file."""

    uri: str
    tail: bytes  # as it is written
    about: pq.FileMetaData
    schema: pa.Schema
    groups: list[RowGroup]

    def kind(self, name: str) -> pa.DataType:
        """Type of a column of the table, or of a field `a.b` in a struct. ConfigError."""
        kind = column_kind(self.schema, name)
        if kind is None:
            raise no_column(name, self.uri, self.schema.names)
        return kind

    def span(self, group: int, name: str) -> tuple[int, int, int]:
        """Bytes [start, stop) of a column in a row group, and how many they are unpacked.

        SourceError.
        """
        try:
            return self.groups[group].span(name)
        except ValueError as error:
            raise SourceError(f"Table: {self.uri} is damaged: {error}") from error


def read_footer(shards: ShardReader, file: int) -> Footer:
    """Read a footer; SourceError if the file is damaged or not Parquet."""
    size = shards.stats[file].size
    uri = shards.uris[file]
    tail = _read(shards, file, max(0, size - _TAIL), size)
    if tail[-4:] != _MAGIC:
        if tail[-4:] == b"PARE":
            problem = "is encrypted"
        else:
            problem = f"ends with {tail[-4:]!r}: no Parquet file, or cut off"
        raise SourceError(f"Table: {uri} {problem}" if tail else f"Table: {uri} is empty")
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > size:
        raise SourceError(
            f"Table: {uri} is damaged: a footer of {length} bytes in a file of {size}"
        )
    tail = tail[-length:] if length <= len(tail) else _read(shards, file, size - length, size)
    try:
        about = metadata(tail)
        return Footer(uri, tail, about, about.schema.to_arrow_schema(), row_groups(tail, size))
    except (BadFile, *_DAMAGE) as error:
        raise SourceError(f"Table: {uri} is damaged: {error}") from error


def metadata(tail: bytes) -> pq.FileMetaData:
    """PyArrow's metadata from a footer. BadFile."""
    try:
        return pq.read_metadata(pa.BufferReader(tail))
    except _DAMAGE as error:
        raise BadFile(str(error)) from error


def image_columns(
    shards: ShardReader, file: int, footer: Footer, name: str
) -> tuple[str | None, str]:
    """Column of the images' bytes, `image` or `image.bytes`, or None; that of paths, or "".

    "" where any row has bytes: then paths are read when they are needed.
    """
    content, path = image_fields(footer.kind(name), name, footer.uri)
    if content and not (path and _is_empty(shards, file, footer, content)):
        return content, ""
    return content or None, path


def _is_empty(shards: ShardReader, file: int, footer: Footer, leaf: str) -> bool:
    """Return True if a column is all null, as Hugging Face's `datasets` writes for paths."""
    if any(
        footer.span(k, leaf)[2] > _NO_IMAGES + group.rows for k, group in enumerate(footer.groups)
    ):
        return False
    spans = [footer.span(k, leaf)[:2] for k in range(len(footer.groups))]
    try:
        pieces = PrefetchedFile(shards, file, _fetch(shards, file, spans))
        pages = _pages(pieces, footer, range(len(footer.groups)), [leaf])
        if pages.most > len(footer.groups) * _NO_IMAGES + 9 * pages.values:
            return False
        column = get_column(_open(pieces, footer.about).read(columns=[leaf]), leaf)
    except _DAMAGE as error:
        raise SourceError(f"Table: {footer.uri} is damaged: {error}") from error
    return column.null_count == len(column)


def read_parquet(
    shards: ShardReader,
    file: int,
    footer: Footer,
    requested: Mapping[str, bool],
    budget: Budget,
    paths: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, ColumnPart]]:
    """Parts of columns, each by the name of its column, in the order of the rows.

    `paths`: fields to read instead.

    SourceError before anything is unpacked that `budget` has no room for.
    """
    fields = {name: name for name in requested} | dict(paths or {})
    for name in fields.values():
        footer.kind(name)
    first = 0
    for groups, spans in _portions(footer, list(fields.values())):
        pieces = PrefetchedFile(shards, file, _fetch(shards, file, spans))
        rows = 0
        try:
            for table in _tables(pieces, footer, groups, list(fields.values()), budget):
                for name, coded in requested.items():
                    row = first
                    for piece in get_column(table, fields[name]).chunks:
                        values = part(piece, coded, name, footer.uri, row)
                        budget.take(values.bytes, footer.uri)
                        yield name, values
                        row += len(piece)
                first = first + table.num_rows
                rows = rows + table.num_rows
        except SourceError:  # an OSError, too
            raise
        except _DAMAGE as error:
            raise SourceError(f"Table: {footer.uri} is damaged: {error}") from error
        if rows != (expected := sum(footer.groups[group].rows for group in groups)):
            raise SourceError(
                f"Table: {footer.uri} is damaged: expected {expected} rows, got {rows}; write it"
                " again"
            )


def _tables(
    pieces: PrefetchedFile, footer: Footer, groups: list[int], names: list[str], budget: Budget
) -> Iterator[pa.Table]:
    """Columns of row groups, at once or in batches if memory is short."""
    pages = _pages(pieces, footer, groups, names)
    budget.check(pages.least, footer.uri)
    if pages.most > budget.limit:
        pages.longest = min(pages.longest, _longest(pieces, footer, groups, names))
    if pages.most <= budget.limit:
        yield _open(pieces, footer.about).read_row_groups(groups, columns=names)
        return
    rows = max(1, budget.limit // (_STEPS * pages.longest))
    for batch in _open(pieces, footer.about).iter_batches(rows, row_groups=groups, columns=names):
        yield pa.Table.from_batches([batch])


def _pages(
    pieces: PrefetchedFile, footer: Footer, groups: Iterable[int], names: Sequence[str]
) -> PageTotals:
    """The pages of columns in row groups. ValueError."""
    pages = PageTotals()
    for group in groups:
        chunks = [chunk for name in names for chunk in footer.groups[group].column_chunks(name)]
        for chunk in chunks:
            pieces.seek(chunk.start)
            own = scan_pages(pieces.read(chunk.size), chunk.values)
            own.values = max(own.values, footer.groups[group].rows)
            pages.add(own)
    return pages


def _longest(pieces: PrefetchedFile, footer: Footer, groups: list[int], names: list[str]) -> int:
    """Bytes of the longest value in the dictionaries of these columns."""
    longest = 0
    file = pq.ParquetFile(pieces, metadata=footer.about, pre_buffer=False, read_dictionary=names)
    try:
        for group in groups:
            for name in names:
                batch = next(file.iter_batches(1, row_groups=[group], columns=[name]))
                column = get_column(pa.Table.from_batches([batch]), name).chunk(0)
                if not pa.types.is_dictionary(column.type):
                    return _UNKNOWN
                longest = max(longest, pc.max(pc.binary_length(column.dictionary)).as_py() or 0)
    except (StopIteration, *_DAMAGE):  # texts that share their beginnings have none
        return _UNKNOWN
    return longest


def images(
    pieces: PrefetchedFile,
    about: pq.FileMetaData,
    group: int,
    leaf: str,
    rows: int,
    chunk: bytes,
    memory: int,
) -> pa.ChunkedArray:
    """The images' bytes in a row group, whose bytes in the file are `chunk`. BadFile, TooLarge."""
    try:
        pages = scan_pages(chunk, rows)
        limit = max(memory, _IMAGE_RATIO * len(chunk))
        if pages.least > limit:
            raise TooLarge(
                f"{pages.least:,} bytes unpacked, {len(chunk):,} in the file; the limit is"
                f" {limit:,}, pass memory= to Table for more"
            )
        # values of a dictionary that are repeated stay one
        file = _open(pieces, about, [leaf] if pages.most > limit else None)
        data = get_column(file.read_row_group(group, columns=[leaf], use_threads=False), leaf)
    except _DAMAGE as error:
        raise BadFile(str(error)) from error
    if len(data) != rows:
        raise BadFile(f"expected {rows} images, got {len(data)}")
    return data


def give_back() -> None:
    """Memory that PyArrow holds on to for the next time, which is long after a table was opened."""
    pa.default_memory_pool().release_unused()


class PrefetchedFile(io.RawIOBase):
    """A file of which some ranges were read; others are read when PyArrow wants them after all."""

    def __init__(self, shards: ShardReader, file: int, pieces: Sequence[tuple[int, bytes]]) -> None:
        self._shards = shards
        self._file = file
        self._at = 0
        self._pieces = sorted(pieces)
        self._starts = [start for start, _ in self._pieces]

    def readable(self) -> bool:
        """True: the file supports reading."""
        return True

    def seekable(self) -> bool:
        """True: the file supports seeking."""
        return True

    def tell(self) -> int:
        """Position in bytes from the beginning."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move the position and return it."""
        self._at = offset + (0, self._at, self._shards.stats[self._file].size)[whence]
        return self._at

    def read(self, count: int = -1) -> Any:
        """Read `count` bytes, or all up to the end."""
        start = self._at
        end = self._shards.stats[self._file].size
        stop = end if count is None or count < 0 else min(start + count, end)
        self._at = max(start, stop)
        index = bisect_right(self._starts, start) - 1
        if index >= 0 and stop <= self._starts[index] + len(self._pieces[index][1]):
            offset, data = self._pieces[index]
            return memoryview(data)[start - offset : stop - offset]
        content = self._shards.read(self._file, start, stop) if stop > start else b""
        if isinstance(content, Unread):
            raise OSError(content.detail or content.reason)
        return content


def _open(
    pieces: PrefetchedFile, about: pq.FileMetaData, dictionaries: list[str] | None = None
) -> pq.ParquetFile:
    return pq.ParquetFile(
        pieces,
        metadata=about,
        pre_buffer=False,
        page_checksum_verification=True,
        read_dictionary=dictionaries,
    )


def _read(shards: ShardReader, file: int, start: int, stop: int) -> bytes:
    return _fetch(shards, file, [(start, stop)])[0][1]


def _fetch(
    shards: ShardReader, file: int, spans: Sequence[tuple[int, int]]
) -> list[tuple[int, bytes]]:
    if shards.remote:
        spans = _merged(spans)
        answers = results([shards.fetch(file, start, stop) for start, stop in spans])
    else:
        answers = [shards.read(file, start, stop) for start, stop in spans]
    return [
        (start, readable(data, shards.uris[file], "Table"))
        for (start, _), data in zip(spans, answers, strict=True)
    ]


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge neighboring spans, with small gaps between them."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if merged and start - merged[-1][1] <= _GAP:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    return merged


def _portions(
    footer: Footer, names: Sequence[str]
) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
    """Row groups to be read together, and the bytes to read for them."""
    groups: list[int] = []
    spans: list[tuple[int, int]] = []
    total = 0
    for group in range(len(footer.groups)):
        own = [footer.span(group, name) for name in names]
        size = sum(unpacked for *_, unpacked in own)
        if groups and total + size > _AT_ONCE:
            yield groups, spans
            groups = []
            spans = []
            total = 0
        groups.append(group)
        spans += [(start, stop) for start, stop, _ in own]
        total += size
    if groups:
        yield groups, spans
