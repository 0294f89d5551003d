"""Location of columns in a Parquet file, from its footer, and memory of pages, from their headers.

PyArrow knows the locations too, but ends the process if a footer is damaged or a column encrypted.
A footer also announces sizes, but nothing keeps it to the truth, and a dictionary makes a million
values of one. Formats: Apache Parquet's parquet.thrift (FileMetaData, PageHeader), Encodings.md, and
the compact protocol of Apache Thrift.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_BYTE = 3
_DOUBLE = 7
_BINARY = 8
_LIST = 9
_SET = 10
STRUCT = 12
_DEEPEST = 32  # values inside values


@dataclass(slots=True)
class ColumnChunk:
    """A column in a row group."""

    path: str = ""  # `label`, `image.bytes`, `box.list.element`
    values: int = 0  # with those of null
    size: int = 0  # bytes in the file
    unpacked: int = 0
    data: int = 0  # where its pages begin
    dictionary: int = 0  # where the dictionary before them begins, if there is one

    @property
    def start(self) -> int:
        """Position of the first byte in the file."""
        return min(self.data, self.dictionary) if self.dictionary > 0 else self.data

    @property
    def stop(self) -> int:
        """Position after the last byte in the file."""
        return self.start + self.size


@dataclass(slots=True)
class RowGroup:
    """Rows stored together, column by column."""

    rows: int = 0
    chunks: list[ColumnChunk] = field(default_factory=list)

    def chunks_of(self, name: str) -> list[ColumnChunk]:
        """Chunks of a column, or of a field of one."""
        return [c for c in self.chunks if c.path == name or c.path.startswith(name + ".")]

    def span(self, name: str) -> tuple[int, int, int]:
        """Bytes [start, stop) of a column, or a field of one, and how many they are unpacked.

        ValueError.
        """
        own = self.chunks_of(name)
        if not own:
            raise ValueError(f"a row group without column {name!r}")
        return min(c.start for c in own), max(c.stop for c in own), sum(c.unpacked for c in own)


def row_groups(footer: bytes, size: int) -> list[RowGroup]:
    """Return the row groups of a file of `size` bytes; bytes after the footer are ignored.

    ValueError if damaged.
    """
    thrift, groups = Thrift(footer), []
    try:
        for number, kind in thrift.fields():
            if (number, kind) == (4, _LIST):
                groups = [_row_group(thrift) for _ in thrift.items(STRUCT)]
            else:
                thrift.skip(kind)
    except IndexError:
        raise ValueError("its footer is cut off") from None
    for group in groups:
        for chunk in group.chunks:
            if not (group.rows >= 0 <= chunk.start <= chunk.stop <= size and chunk.unpacked >= 0):
                raise ValueError(
                    f"column {chunk.path!r} in bytes {chunk.start} to {chunk.stop} of a file of"
                    f" {size}"
                )
    return groups


def _row_group(thrift: Thrift) -> RowGroup:
    group = RowGroup()
    for number, kind in thrift.fields():
        if (number, kind) == (1, _LIST):
            group.chunks = [_chunk(thrift) for _ in thrift.items(STRUCT)]
        elif number == 3:
            group.rows = thrift.integer()
        else:
            thrift.skip(kind)
    return group


def _chunk(thrift: Thrift) -> ColumnChunk:
    chunk = ColumnChunk()
    for number, kind in thrift.fields():
        if (number, kind) == (3, STRUCT):
            _describe(chunk, thrift)
        else:
            thrift.skip(kind)
    return chunk


def _describe(chunk: ColumnChunk, thrift: Thrift) -> None:
    for number, kind in thrift.fields():
        if (number, kind) == (3, _LIST):
            chunk.path = ".".join([thrift.binary().decode() for _ in thrift.items(_BINARY)])
        elif number == 5:
            chunk.values = thrift.integer()
        elif number == 6:
            chunk.unpacked = thrift.integer()
        elif number == 7:
            chunk.size = thrift.integer()
        elif number == 9:
            chunk.data = thrift.integer()
        elif number == 11:
            chunk.dictionary = thrift.integer()
        else:
            thrift.skip(kind)


class Thrift:
    """A walk through a struct.

    IndexError if it is cut off, ValueError if it cannot be one.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self.at = at
        self._depth = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and kind of each field; who takes one must read or skip it."""
        number = 0
        while byte := self._byte():
            number = number + (byte >> 4) if byte >> 4 else self.integer()
            yield number, byte & 15

    def items(self, kind: int) -> range:
        """Range over the items of a list."""
        byte = self._byte()
        count = byte >> 4 if byte >> 4 < 15 else self._varint()
        if (count and byte & 15 != kind) or count > len(self._data):
            raise ValueError("a list of something else in its footer")
        return range(count)

    def integer(self) -> int:
        """Read an integer of 16, 32 or 64 bits."""
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        """Bytes or a text."""
        length = self._varint()
        self.at += length
        if self.at > len(self._data):
            raise IndexError
        return self._data[self.at - length : self.at]

    def skip(self, kind: int) -> None:
        """A value of any kind."""
        if kind in (1, 2):  # a bool is its kind
            return
        if kind == _BYTE:
            self.at += 1
        elif 4 <= kind <= 6:
            self._varint()
        elif kind == _DOUBLE:
            self.at += 8
        elif kind == _BINARY:
            self.binary()
        elif kind in (_LIST, _SET, STRUCT) and self._depth < _DEEPEST:
            self._depth += 1
            if kind == STRUCT:
                for _, inner in self.fields():
                    self.skip(inner)
            else:
                self._skip_items()
            self._depth -= 1
        else:  # maps are nowhere in Parquet
            raise ValueError(f"a value of kind {kind} in its footer")

    def _skip_items(self) -> None:
        byte = self._byte()
        kind, count = byte & 15, byte >> 4 if byte >> 4 < 15 else self._varint()
        for _ in range(count):
            if self.at >= len(self._data):
                raise IndexError
            self.skip(_BYTE if kind in (1, 2) else kind)

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number without an end in its footer")


_DICTIONARY = (2, 8)  # encodings whose values are numbers of values in a dictionary


_SHARED = 7  # DELTA_BYTE_ARRAY: a value begins as the one before it


@dataclass(slots=True)
class Pages:
    """The pages of some columns, together."""

    unpacked: int = 0  # bytes
    values: int = 0
    repeated: int = 0  # of them, those that may be longer than their share of the page
    longest: int = 0  # bytes of one, at most

    @property
    def least(self) -> int:
        """Bytes that they take in any case."""
        return self.unpacked + 8 * self.values

    @property
    def most(self) -> int:
        """Bytes that they may take."""
        return self.least + self.repeated * self.longest

    def add(self, more: Pages) -> None:
        """Count those of another column as well."""
        self.unpacked += more.unpacked
        self.values += more.values
        self.repeated += more.repeated
        self.longest = max(self.longest, more.longest)


def pages_of(chunk: Any, count: int) -> Pages:
    """Pages of one column chunk (its bytes) with `count` values. ValueError.

    ValueError if it is damaged.

    Pages after these values are not read, so they do not count.
    """
    pages, dictionary, at = Pages(), 0, 0
    while at < len(chunk) and pages.values < count:
        thrift = Thrift(chunk, at)
        unpacked, packed, values, encoding, is_dictionary = _header(thrift)
        at = thrift.at + packed
        if packed < 0 or unpacked < 0 or values < 0:
            raise ValueError(f"a page of {packed} bytes")
        pages.unpacked += unpacked
        if is_dictionary:
            dictionary = max(dictionary, unpacked)
            continue
        pages.values += values
        if encoding in _DICTIONARY or encoding == _SHARED:
            pages.repeated += values
            pages.longest = max(pages.longest, unpacked if encoding == _SHARED else dictionary)
    return pages


def _header(thrift: Thrift) -> tuple[int, int, int, int, bool]:
    """Unpacked and packed bytes, values, encoding, and True for a dictionary page."""
    unpacked = packed = values = 0
    encoding, is_dictionary = -1, False
    try:
        for number, kind in thrift.fields():
            if number == 2:
                unpacked = thrift.integer()
            elif number == 3:
                packed = thrift.integer()
            elif number in (5, 7, 8) and kind == STRUCT:
                is_dictionary = number == 7
                values, encoding = _data_header(thrift, 4 if number == 8 else 2)
            else:
                thrift.skip(kind)
    except IndexError:
        raise ValueError("a page's header is cut off") from None
    return unpacked, packed, values, encoding, is_dictionary


def _data_header(thrift: Thrift, encoding_field: int) -> tuple[int, int]:
    values, encoding = 0, -1
    for number, kind in thrift.fields():
        if number == 1:
            values = thrift.integer()
        elif number == encoding_field:
            encoding = thrift.integer()
        else:
            thrift.skip(kind)
    return values, encoding
