"""Columns of Parquet files, by PyArrow. Only what is wanted is read: footers and chunks of columns, many at once."""

from __future__ import annotations

import io
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastfeed.errors import MissingExtra, SourceError
from fastfeed.sources.fetch import Unread
from fastfeed.sources.shards import Shards
from fastfeed.sources.tables.columns import Part
from fastfeed.sources.tables.lines import no_column

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtra.of("Table", "PyArrow", "parquet") from error
from fastfeed.sources.tables.arrow import is_bytes, is_text, part

__all__ = [
    "BadFile",
    "Pieces",
    "chunk",
    "class_names",
    "footer",
    "give_back",
    "image_leaf",
    "images",
    "leaves",
    "metadata",
    "read_parquet",
]

_MAGIC = b"PAR1"
_TAIL = 256 << 10  # bytes read at first for the footer
_AT_ONCE = 128 << 20  # bytes of columns read and decoded together
_IMAGE = "paths, or images as bytes (binary, or a struct with a field 'bytes')"


class BadFile(Exception):
    """What a Parquet file holds is not what PyArrow expects."""


def footer(shards: Shards, file: int) -> bytes:
    """The end of a file, from which `metadata` is made. SourceError where it is not Parquet."""
    size, uri = shards.stats[file].size, shards.uris[file]
    tail = _read(shards, file, max(0, size - _TAIL), size)
    if tail[-4:] != _MAGIC:
        what = "is encrypted" if tail[-4:] == b"PARE" else f"ends with {tail[-4:]!r}: no Parquet file, or cut off"
        raise SourceError(f"Table: {uri} {what}" if tail else f"Table: {uri} is empty")
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > size:
        raise SourceError(f"Table: {uri} is damaged: a footer of {length} bytes in a file of {size}")
    return tail[-length:] if length <= len(tail) else _read(shards, file, size - length, size)


def metadata(tail: bytes, uri: str) -> pq.FileMetaData:
    """Of a file, from its footer."""
    try:
        return pq.read_metadata(pa.BufferReader(tail))
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"Table: {uri} is damaged: {error}") from error


def image_leaf(found: pq.FileMetaData, name: str, uri: str) -> str | None:
    """Where the bytes of the images are, `image` or `image.bytes`; None where the column holds paths."""
    schema = found.schema.to_arrow_schema()
    field = schema.field(_there(schema, name, uri))
    if is_text(field.type):
        return None
    if is_bytes(field.type):
        return name
    if pa.types.is_struct(field.type):
        own = field.type.get_field_index("bytes")
        if own >= 0 and is_bytes(field.type.field(own).type):
            return f"{name}.bytes"
    if pa.types.is_null(field.type):
        raise SourceError(f"Table: column {name!r} of {uri} is empty in every row; it must hold {_IMAGE}")
    raise SourceError(f"Table: column {name!r} of {uri} must hold {_IMAGE}, got {field.type}")


def class_names(found: pq.FileMetaData, name: str) -> tuple[str, ...]:
    """Of a label column that Hugging Face's `datasets` has written."""
    try:
        about = json.loads((found.metadata or {})[b"huggingface"])
        return tuple(map(str, about["info"]["features"][name]["names"]))
    except (ValueError, KeyError, TypeError):
        return ()


def leaves(found: pq.FileMetaData, name: str) -> list[int]:
    """The columns of the file that a column of the table, or a field of one, is kept in."""
    paths = [found.schema.column(i).path for i in range(found.num_columns)]
    return [i for i, path in enumerate(paths) if path == name or path.startswith(name + ".")]


def chunk(found: pq.FileMetaData, group: int, own: Sequence[int]) -> tuple[int, int, int]:
    """Bytes [start, stop) of these columns in a row group, and how many they are unpacked."""
    columns = [found.row_group(group).column(i) for i in own]
    starts = [min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset) for c in columns]
    stops = [start + c.total_compressed_size for start, c in zip(starts, columns, strict=True)]
    return min(starts), max(stops), sum(c.total_uncompressed_size for c in columns)


def read_parquet(
    shards: Shards, file: int, found: pq.FileMetaData, wanted: Mapping[str, bool]
) -> Iterator[tuple[str, Part]]:
    """Parts of columns, each by the name of its column, in the order of the rows."""
    uri, schema = shards.uris[file], found.schema.to_arrow_schema()
    for name in wanted:
        _there(schema, name, uri)
    first = 0
    for groups, spans in _portions(found, list(wanted)):
        pieces = Pieces(shards, file, _fetch(shards, file, spans))
        try:
            table = _open(pieces, found).read_row_groups(groups, columns=list(wanted))
        except (pa.ArrowException, OSError) as error:
            raise SourceError(f"Table: {uri} is damaged: {error}") from error
        for name, coded in wanted.items():
            row = first
            for piece in table.column(name).chunks:
                yield name, part(piece, coded, name, uri, row)
                row += len(piece)
        first += table.num_rows


def images(pieces: Pieces, found: pq.FileMetaData, group: int, leaf: str) -> pa.ChunkedArray:
    """The images' bytes in a row group. BadFile."""
    name = leaf.removesuffix(".bytes") if found.schema.to_arrow_schema().get_field_index(leaf) < 0 else leaf
    try:
        column = _open(pieces, found).read_row_group(group, columns=[leaf], use_threads=False).column(name)
        found_images = column if name == leaf else pc.struct_field(column, "bytes")
    except (pa.ArrowException, OSError) as error:
        raise BadFile(str(error)) from error
    if len(found_images) != found.row_group(group).num_rows:
        raise BadFile(f"{len(found_images)} images in a row group of {found.row_group(group).num_rows}")
    return found_images


def give_back() -> None:
    """Memory that PyArrow holds on to for the next time, which is long after a table was opened."""
    pa.default_memory_pool().release_unused()


class Pieces(io.RawIOBase):
    """A file of which some ranges were read; others are read when PyArrow wants them after all."""

    def __init__(self, shards: Shards, file: int, pieces: Sequence[tuple[int, bytes]]) -> None:
        self._shards, self._file, self._at = shards, file, 0
        self._pieces = sorted(pieces)
        self._starts = [start for start, _ in self._pieces]

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Bytes from the beginning."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """As files do."""
        self._at = offset + (0, self._at, self._shards.stats[self._file].size)[whence]
        return self._at

    def read(self, count: int = -1) -> Any:
        """The next bytes."""
        start, end = self._at, self._shards.stats[self._file].size
        stop = end if count is None or count < 0 else min(start + count, end)
        self._at = max(start, stop)
        held = bisect_right(self._starts, start) - 1
        if held >= 0 and stop <= self._starts[held] + len(self._pieces[held][1]):
            offset, data = self._pieces[held]
            return memoryview(data)[start - offset : stop - offset]
        found = self._shards.read(self._file, start, stop) if stop > start else b""
        if isinstance(found, Unread):
            raise OSError(found.detail or found.reason)
        return found


def _open(pieces: Pieces, found: pq.FileMetaData) -> pq.ParquetFile:
    return pq.ParquetFile(pieces, metadata=found, pre_buffer=False, page_checksum_verification=True)


def _read(shards: Shards, file: int, start: int, stop: int) -> bytes:
    return _fetch(shards, file, [(start, stop)])[0][1]


def _fetch(shards: Shards, file: int, spans: Sequence[tuple[int, int]]) -> list[tuple[int, bytes]]:
    if shards.remote:
        pending = [shards.fetch(file, start, stop) for start, stop in spans]
        found = [p.result() for p in pending]
    else:
        found = [shards.read(file, start, stop) for start, stop in spans]
    pieces = []
    for (start, _), data in zip(spans, found, strict=True):
        if isinstance(data, Unread):
            raise SourceError(f"Table: cannot read {shards.uris[file]}: {data.detail or data.reason}")
        pieces.append((start, data))
    return pieces


def _portions(found: pq.FileMetaData, names: Sequence[str]) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
    """Row groups to be read together, and the bytes to read for them."""
    own = [leaves(found, name) for name in names]
    groups: list[int] = []
    spans: list[tuple[int, int]] = []
    held = 0
    for group in range(found.num_row_groups):
        chunks = [chunk(found, group, columns) for columns in own]
        size = sum(unpacked for *_, unpacked in chunks)
        if groups and held + size > _AT_ONCE:
            yield groups, spans
            groups, spans, held = [], [], 0
        groups.append(group)
        spans += [(start, stop) for start, stop, _ in chunks]
        held += size
    if groups:
        yield groups, spans


def _there(schema: pa.Schema, name: str, uri: str) -> int:
    place = schema.get_field_index(name)
    if place < 0:
        raise no_column(name, uri, schema.names)
    return place
