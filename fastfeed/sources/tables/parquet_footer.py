"""Location of columns in a Parquet file, from its footer, and memory of pages, from their headers.

PyArrow knows the locations too, but ends the process if a footer is damaged or a column encrypted.
A footer also announces sizes, but nothing keeps it to the truth, and a dictionary makes a million
values of one. Formats: Apache Parquet's parquet.thrift (FileMetaData, PageHeader), Encodings.md, and
the compact protocol of Apache Thrift.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import index
from typing import Any

_BYTE = 3
_DOUBLE = 7
_BINARY = 8
_LIST = 9
_SET = 10
_STRUCT = 12
_DEEPEST = 32  # values inside values
# fields of ColumnMetaData by their names in `ColumnChunk`
_NUMBERS = {"values": 5, "unpacked": 6, "size": 7, "data": 9, "dictionary": 11}
_DICTIONARY = (2, 8)  # encodings whose values are numbers of values in a dictionary
_SHARED = 7  # DELTA_BYTE_ARRAY: a value begins as the one before it


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

    def column_chunks(self, name: str) -> list[ColumnChunk]:
        """Chunks of a column, or of a field of one."""
        return [c for c in self.chunks if c.path == name or c.path.startswith(name + ".")]

    def span(self, name: str) -> tuple[int, int, int]:
        """Bytes [start, stop) of a column, or a field of one, and how many they are unpacked.

        ValueError.
        """
        own = self.column_chunks(name)
        if not own:
            raise ValueError(f"a row group without column {name!r}")
        return min(c.start for c in own), max(c.stop for c in own), sum(c.unpacked for c in own)


def row_groups(footer: bytes, size: int) -> list[RowGroup]:
    """Return the row groups of a file of `size` bytes; bytes after the footer are ignored.

    ValueError if damaged.
    """
    try:
        fields, _ = _struct(footer, 0)
        groups = [_row_group(group) for group in fields.get(4, ())]
    except IndexError:
        raise ValueError("its footer is cut off") from None
    except (AttributeError, TypeError):
        raise ValueError("a value of another kind in its footer") from None
    for group in groups:
        for chunk in group.chunks:
            if not (group.rows >= 0 <= chunk.start <= chunk.stop <= size and chunk.unpacked >= 0):
                raise ValueError(
                    f"column {chunk.path!r} in bytes {chunk.start} to {chunk.stop} of a file of"
                    f" {size}"
                )
    return groups


def _row_group(group: dict[int, Any]) -> RowGroup:
    chunks = []
    for chunk in group.get(1, ()):
        about = chunk.get(3, {})
        path = ".".join([name.decode() for name in about.get(3, ())])
        numbers = {name: index(about.get(number, 0)) for name, number in _NUMBERS.items()}
        chunks.append(ColumnChunk(path, **numbers))
    return RowGroup(index(group.get(3, 0)), chunks)


def _struct(data: Any, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Values of a struct by the numbers of its fields, and the position after it.

    IndexError if it is cut off, ValueError if it cannot be one.
    """
    fields: dict[int, Any] = {}
    number = 0
    while byte := data[at]:
        at += 1
        if byte >> 4:
            number += byte >> 4
        else:
            number, at = _integer(data, at)
        fields[number], at = _value(data, at, byte & 15, depth)
    return fields, at + 1


def _value(data: Any, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """A value of any kind that Parquet has, and the position after it."""
    if 4 <= kind <= 6:
        return _integer(data, at)
    if kind == _BINARY:
        length, at = _varint(data, at)
        if at + length > len(data):
            raise IndexError
        return bytes(data[at : at + length]), at + length
    if kind in (1, 2):  # a bool is its kind
        return kind == 1, at
    if kind == _BYTE:
        return data[at], at + 1
    if kind == _DOUBLE:
        return None, at + 8
    if kind not in (_LIST, _SET, _STRUCT) or depth == _DEEPEST:  # maps are nowhere in Parquet
        raise ValueError(f"a value of kind {kind} in its footer")
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    count = data[at] >> 4
    inner = data[at] & 15
    at += 1
    if count == 15:
        count, at = _varint(data, at)
    if count > len(data):
        raise IndexError
    items = []
    for _ in range(count):
        item, at = _value(data, at, _BYTE if inner in (1, 2) else inner, depth + 1)
        items.append(item)
    return items, at


def _integer(data: Any, at: int) -> tuple[int, int]:
    """An integer of 16, 32 or 64 bits, and the position after it."""
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: Any, at: int) -> tuple[int, int]:
    value = data[at]
    at += 1
    if value < 128:
        return value, at
    value &= 127
    for shift in range(7, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number without an end in its footer")


@dataclass(slots=True)
class PageTotals:
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

    def add(self, more: PageTotals) -> None:
        """Count those of another column as well."""
        self.unpacked += more.unpacked
        self.values += more.values
        self.repeated += more.repeated
        self.longest = max(self.longest, more.longest)


def scan_pages(chunk: Any, count: int) -> PageTotals:
    """Pages of one column chunk (its bytes) with `count` values.

    ValueError if it is damaged.

    Pages after these values are not read, so they do not count.
    """
    pages = PageTotals()
    dictionary = 0
    at = 0
    while at < len(chunk) and pages.values < count:
        try:
            fields, at = _struct(chunk, at)
            unpacked = index(fields.get(2, 0))
            packed = index(fields.get(3, 0))
            header = fields.get(8) or fields.get(7) or fields.get(5) or {}
            values = index(header.get(1, 0))
            encoding = header.get(4 if 8 in fields else 2, -1)
        except IndexError:
            raise ValueError("a page's header is cut off") from None
        except (AttributeError, TypeError):
            raise ValueError("a value of another kind in a page's header") from None
        at += packed
        if packed < 0 or unpacked < 0 or values < 0:
            raise ValueError(f"a page of {packed} bytes")
        pages.unpacked += unpacked
        if 7 in fields:
            dictionary = max(dictionary, unpacked)
            continue
        pages.values += values
        if encoding in _DICTIONARY or encoding == _SHARED:
            pages.repeated += values
            pages.longest = max(pages.longest, unpacked if encoding == _SHARED else dictionary)
    return pages
