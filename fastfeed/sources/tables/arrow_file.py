"""Columns of Arrow's files and streams (IPC), and the places of images in them.

PyArrow reads whole batches, images too; this finds where their bytes are. Format:
https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
and, of messages, https://flatbuffers.dev/internals.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastfeed.errors import SourceError
from fastfeed.sources.tables.arrow import (
    column_kind,
    image_fields,
    is_bytes,
    is_text,
    part,
    path_to,
)
from fastfeed.sources.tables.columns import ColumnPart
from fastfeed.sources.tables.csv_jsonl import no_column
from fastfeed.sources.tables.string_column import StringColumn
from fastfeed.storage.reads import readable
from fastfeed.storage.shard_files import ShardReader

_MAGIC = b"ARROW1"
_CONTINUATION = 0xFFFFFFFF
# kinds of messages
_SCHEMA = 1
_DICTIONARY = 2
_BATCH = 3
_LONGEST = 64 << 20  # bytes of a message without its body
_AHEAD = 64 << 10  # bytes read with the length of a message: most end in them

Read = Callable[[int, int], bytes]  # of bytes [start, stop) of the file
_DAMAGE = (pa.ArrowException, OSError, ValueError, IndexError)  # ValueError: ArrowFormatError, too


class ImageSpans(NamedTuple):
    """Bytes of images in a file: int64 (n,) each; a length of -1 where a row has none."""

    starts: np.ndarray
    lengths: np.ndarray


class ArrowFile:
    """An Arrow file whose schema was read. SourceError if it is damaged or not Arrow's."""

    def __init__(self, shards: ShardReader, file: int) -> None:
        self._shards = shards
        self._file = file
        self.uri = shards.uris[file]
        self.rows = 0  # read so far
        try:
            message, self._batches = read_batches(self._read, shards.stats[file].size)
            self.schema: pa.Schema = pa.ipc.read_schema(pa.BufferReader(message))
            # where the fields of each column begin among the nodes and buffers of a batch
            self._places: dict[str, tuple[int, int]] = {}
            node = 0
            buffer = 0
            for field in self.schema:
                self._places[field.name] = (node, buffer)
                nodes, buffers = _count(field.type)
                node += nodes
                buffer += buffers
        except SourceError:  # an OSError, too
            raise
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> SourceError:
        return SourceError(f"Table: {self.uri} cannot be read as an Arrow file: {error}")

    def _read(self, start: int, stop: int) -> bytes:
        return readable(self._shards.read(self._file, start, stop), self.uri, "Table")

    def read(
        self, image: str | None, other_columns: Mapping[str, bool]
    ) -> tuple[list[tuple[str, ColumnPart]], ImageSpans | None]:
        """Parts of columns, and the places of images; None in place of these if none has bytes.

        The parts of `image` are the paths of rows without bytes.
        """
        columns = ({} if image is None else {image: False}) | dict(other_columns)
        for name in columns:
            if column_kind(self.schema, name) is None:
                raise no_column(name, self.uri, self.schema.names)
        fields = None
        if image is not None:
            fields = image_fields(column_kind(self.schema, image), image, self.uri)
        parts: list[tuple[str, ColumnPart]] = []
        spans: list[ImageSpans] = []
        try:
            for batch in self._batches:
                if not batch.rows:
                    continue
                for name, coded in other_columns.items():
                    array = self._column(batch, name)
                    parts.append((name, part(array, coded, name, self.uri, self.rows)))
                if image is not None and fields is not None:
                    paths, own = self._images(batch, *fields, image, self.rows)
                    parts.append((image, paths))
                    spans.append(own)
                self.rows += batch.rows
        except SourceError:
            raise
        except _DAMAGE as error:
            raise self._damaged(error) from error
        if not any(bool(np.any(each.lengths >= 0)) for each in spans):
            return parts, None
        return parts, ImageSpans(*(np.concatenate(each) for each in zip(*spans, strict=True)))

    def _images(
        self, batch: RecordBatchLayout, content: str, path: str, name: str, row: int
    ) -> tuple[ColumnPart, ImageSpans]:
        """Paths of images without bytes, and where those with bytes have them."""
        starts = np.zeros(batch.rows, np.int64)
        lengths = np.full(batch.rows, -1, np.int64)
        if content:
            starts, lengths = self._spans(batch, content)
        if not path:
            return ColumnPart(StringColumn.of([""] * batch.rows)), ImageSpans(starts, lengths)
        paths = part(self._column(batch, path), False, name, self.uri, row)
        return replace(paths, null=paths.missing() | (lengths >= 0)), ImageSpans(starts, lengths)

    def _spans(self, batch: RecordBatchLayout, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Starts and lengths of the values of a column of bytes, which are not read."""
        (kind, _, buffer), present = self._leaf(batch, name)
        if pa.types.is_binary(kind):
            offset_type = np.dtype(np.int32)
        elif pa.types.is_large_binary(kind):
            offset_type = np.dtype(np.int64)
        else:
            raise ArrowFormatError(f"column {name!r} holds {kind}; write images as binary")
        first, stop = batch.buffers[buffer + 1]
        needed = (batch.rows + 1) * offset_type.itemsize
        if stop - first < needed:
            raise ArrowFormatError(f"column {name!r} has too few offsets")
        offsets = np.frombuffer(self._read(first, first + needed), offset_type).astype(np.int64)
        begin, end = batch.buffers[buffer + 2]
        lengths = np.diff(offsets)
        if offsets[0] < 0 or (lengths < 0).any() or offsets[-1] > end - begin:
            raise ArrowFormatError(f"column {name!r} has offsets outside of its bytes")
        return begin + offsets[:-1], np.where(present, lengths, -1)

    def _column(self, batch: RecordBatchLayout, name: str) -> pa.Array:
        (kind, node, buffer), present = self._leaf(batch, name)
        array, *_ = self._built(batch, kind, node, buffer)
        array.validate(full=True)  # a file may be from elsewhere
        if len(array) != batch.rows:
            raise ArrowFormatError(f"column {name!r} has {len(array)} of {batch.rows} values")
        return (
            array
            if present.all() or pa.types.is_null(kind)
            else pc.if_else(pa.array(present), array, None)
        )

    def _leaf(
        self, batch: RecordBatchLayout, name: str
    ) -> tuple[tuple[pa.DataType, int, int], np.ndarray]:
        """Type, first node and first buffer of a column or a field, and a mask of rows with a value."""
        column, *fields = path_to(self.schema, name)
        kind = self.schema.field(column).type
        node, buffer = self._places[column]
        present = self._present(batch, kind, buffer)
        for field in fields:
            index = kind.get_field_index(field)
            node += 1
            buffer += 1
            for earlier in range(index):
                nodes, buffers = _count(kind.field(earlier).type)
                node += nodes
                buffer += buffers
            kind = kind.field(index).type
            present &= self._present(batch, kind, buffer)
        return (kind, node, buffer), present

    def _present(self, batch: RecordBatchLayout, kind: pa.DataType, buffer: int) -> np.ndarray:
        """Mask of the rows with a value, of a field whose bitmap is this buffer: bool (rows,)."""
        if pa.types.is_null(kind):
            return np.zeros(batch.rows, bool)
        first, stop = batch.buffers[buffer]
        if first == stop:
            return np.ones(batch.rows, bool)
        bits = np.frombuffer(self._read(first, stop), np.uint8)
        return np.unpackbits(bits, count=batch.rows, bitorder="little").astype(bool)

    def _built(
        self, batch: RecordBatchLayout, kind: pa.DataType, node: int, buffer: int
    ) -> tuple[pa.Array, int, int]:
        """An array of these nodes and buffers, and the ones after them."""
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if pa.types.is_dictionary(kind):
            raise ArrowFormatError(f"a column holds {kind}; write its values themselves")
        if pa.types.is_null(kind):
            return pa.nulls(batch.rows), node + 1, buffer
        own, children = _layout(kind)
        spans = batch.buffers[buffer : buffer + own]
        data: list[pa.Buffer | None] = [
            pa.py_buffer(self._read(first, stop) if stop > first else b"") for first, stop in spans
        ]
        if spans[0][0] == spans[0][1]:
            data[0] = None  # no bitmap: all are there
        length, nulls = batch.nodes[node]
        node += 1
        buffer += own
        inner = []
        for child in children:
            array, node, buffer = self._built(batch, child, node, buffer)
            inner.append(array)
        return pa.Array.from_buffers(kind, length, data, nulls, children=inner), node, buffer


def _layout(kind: pa.DataType) -> tuple[int, list[pa.DataType]]:
    """The number of an array's own buffers, and the types of its children."""
    if isinstance(kind, pa.BaseExtensionType):
        return _layout(kind.storage_type)
    if pa.types.is_null(kind):
        return 0, []
    if pa.types.is_struct(kind):
        return 1, [kind.field(k).type for k in range(kind.num_fields)]
    if pa.types.is_fixed_size_list(kind):
        return 1, [kind.value_type]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return 2, [kind.value_type]
    if pa.types.is_map(kind):
        return 2, [pa.struct([kind.key_field, kind.item_field])]
    if is_text(kind) or is_bytes(kind):
        return (2 if pa.types.is_fixed_size_binary(kind) or pa.types.is_dictionary(kind) else 3), []
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_dictionary(kind):
        return 2, []
    raise ArrowFormatError(f"a column holds {kind}, which is not read")


def _count(kind: pa.DataType) -> tuple[int, int]:
    """The number of nodes and buffers that a column takes in a record batch."""
    buffers, children = _layout(kind)
    counts = [_count(child) for child in children]
    return 1 + sum(nodes for nodes, _ in counts), buffers + sum(each for _, each in counts)


class ArrowFormatError(ValueError):
    """Bytes that are not Arrow's format, or a part of it that is not read."""


@dataclass(frozen=True, slots=True)
class RecordBatchLayout:
    """Places of the columns of some rows; buffers are those of all fields, depth first."""

    rows: int
    nodes: Sequence[tuple[int, int]]  # length and number of nulls of each field
    buffers: Sequence[tuple[int, int]]  # bytes [start, stop) in the file of each buffer


class _FlatTable:
    """A table of a FlatBuffer; ArrowFormatError or struct.error where it leads outside."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._vtable = at - struct.unpack_from("<i", data, at)[0]
        if self._vtable < 0:
            raise ArrowFormatError("a message that is no FlatBuffer")
        self._size = struct.unpack_from("<H", data, self._vtable)[0]

    def place(self, field: int) -> int:
        """Position of a field; 0 if it is absent."""
        if 6 + 2 * field > self._size:
            return 0
        offset = struct.unpack_from("<H", self._data, self._vtable + 4 + 2 * field)[0]
        return self._at + offset if offset else 0

    def number(self, field: int, form: str) -> int:
        """An integer; 0 if it is absent."""
        place = self.place(field)
        return struct.unpack_from(form, self._data, place)[0] if place else 0

    def _target(self, field: int) -> int:
        place = self.place(field)
        return place + struct.unpack_from("<I", self._data, place)[0] if place else 0

    def table(self, field: int) -> _FlatTable:
        """A table in this one."""
        target = self._target(field)
        if not target:
            raise ArrowFormatError("a message without a header")
        return _FlatTable(self._data, target)

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A vector of structs of two 64-bit integers."""
        target = self._target(field)
        count = struct.unpack_from("<I", self._data, target)[0] if target else 0
        if 16 * count > len(self._data):
            raise ArrowFormatError("a vector that is longer than its message")
        values = struct.unpack_from(f"<{2 * count}q", self._data, target + 4) if count else ()
        return list(zip(values[::2], values[1::2], strict=True))


def read_batches(read: Read, size: int) -> tuple[bytes, Iterator[RecordBatchLayout]]:
    """The message of the schema, and the batches after it. ArrowFormatError."""
    messages = _messages(read, size)
    schema, kind, *_ = next(messages, (b"", 0, 0, 0))
    if kind != _SCHEMA:
        raise ArrowFormatError("it does not begin with a schema")
    return schema, (
        _batch(message, body, stop) for message, kind, body, stop in messages if kind == _BATCH
    )


def _messages(read: Read, size: int) -> Iterator[tuple[bytes, int, int, int]]:
    """Messages with their kind, and bytes [start, stop) of their bodies in the file."""
    at = 8 if read(0, min(6, size)) == _MAGIC else 0
    while at + 8 <= size:
        ahead = read(at, min(at + _AHEAD, size))
        mark, length = struct.unpack_from("<II", ahead)
        if mark != _CONTINUATION:
            raise ArrowFormatError(f"no message of Arrow at {at}, or one from before version 0.15")
        if not length:
            return
        if length > min(_LONGEST, size - at - 8):
            raise ArrowFormatError(f"it is cut off in the message at {at}")
        if 8 + length > len(ahead):
            ahead = read(at, at + 8 + length)
        message = ahead[: 8 + length]
        try:
            table = _FlatTable(message, 8 + struct.unpack_from("<I", message, 8)[0])
            kind = table.number(1, "<B")
            body_length = table.number(3, "<q")
        except struct.error as error:
            raise ArrowFormatError(f"no message of Arrow at {at}") from error
        body = at + 8 + length
        at = body + body_length
        if body_length < 0 or at > size:
            raise ArrowFormatError(f"it is cut off in the message at {body - 8 - length}")
        yield message, kind, body, at
    if at != size:
        raise ArrowFormatError(f"{size - at} bytes after its last message")


def _batch(message: bytes, body: int, stop: int) -> RecordBatchLayout:
    try:
        header = _FlatTable(message, 8 + struct.unpack_from("<I", message, 8)[0]).table(2)
        rows = header.number(0, "<q")
        nodes = header.pairs(1)
        buffers = header.pairs(2)
        compressed = header.place(3)
        views = header.place(4)
    except struct.error as error:
        raise ArrowFormatError(f"a record batch at {body} that is no FlatBuffer") from error
    if compressed:
        raise ArrowFormatError("its record batches are compressed; write them without compression")
    if views:
        raise ArrowFormatError("it has columns of views; write them as binary and string")
    places = [(body + start, body + start + length) for start, length in buffers]
    if rows < 0 or any(not body <= first <= last <= stop for first, last in places):
        raise ArrowFormatError(f"a record batch at {body} whose buffers are outside of it")
    return RecordBatchLayout(rows, nodes, places)
