"""Finds record batches in Arrow's files and streams (IPC), and the buffers in them.

PyArrow reads whole batches, images too; this finds where their bytes are. Format:
https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
and, of messages, https://flatbuffers.dev/internals.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_MAGIC = b"ARROW1"
_CONTINUATION = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3  # kinds of messages
_LONGEST = 64 << 20  # bytes of a message without its body
_AHEAD = 64 << 10  # bytes read with the length of a message: most end in them

Read = Callable[[int, int], bytes]  # of bytes [start, stop) of the file


class Damaged(ValueError):
    """Bytes that are not Arrow's format, or a part of it that is not read."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Places of the columns of some rows; buffers are those of all fields, depth first."""

    rows: int
    nodes: Sequence[tuple[int, int]]  # length and number of nulls of each field
    buffers: Sequence[tuple[int, int]]  # bytes [start, stop) in the file of each buffer


class _FlatTable:
    """A table of a FlatBuffer. Damaged, or struct.error, where it leads outside."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._vtable = at - struct.unpack_from("<i", data, at)[0]
        if self._vtable < 0:
            raise Damaged("a message that is no FlatBuffer")
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
            raise Damaged("a message without a header")
        return _FlatTable(self._data, target)

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A vector of structs of two 64-bit integers."""
        target = self._target(field)
        count = struct.unpack_from("<I", self._data, target)[0] if target else 0
        if 16 * count > len(self._data):
            raise Damaged("a vector that is longer than its message")
        values = struct.unpack_from(f"<{2 * count}q", self._data, target + 4) if count else ()
        return list(zip(values[::2], values[1::2], strict=True))


def read_batches(read: Read, size: int) -> tuple[bytes, Iterator[Batch]]:
    """The message of the schema, and the batches after it. Damaged."""
    messages = _messages(read, size)
    schema, kind, *_ = next(messages, (b"", 0, 0, 0))
    if kind != _SCHEMA:
        raise Damaged("it does not begin with a schema")
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
            raise Damaged(f"no message of Arrow at {at}, or one from before version 0.15")
        if not length:
            return
        if length > min(_LONGEST, size - at - 8):
            raise Damaged(f"it is cut off in the message at {at}")
        if 8 + length > len(ahead):
            ahead = read(at, at + 8 + length)
        message = ahead[: 8 + length]
        try:
            table = _FlatTable(message, 8 + struct.unpack_from("<I", message, 8)[0])
            kind, body_length = table.number(1, "<B"), table.number(3, "<q")
        except struct.error as error:
            raise Damaged(f"no message of Arrow at {at}") from error
        body = at + 8 + length
        at = body + body_length
        if body_length < 0 or at > size:
            raise Damaged(f"it is cut off in the message at {body - 8 - length}")
        yield message, kind, body, at
    if at != size:
        raise Damaged(f"{size - at} bytes after its last message")


def _batch(message: bytes, body: int, stop: int) -> Batch:
    try:
        header = _FlatTable(message, 8 + struct.unpack_from("<I", message, 8)[0]).table(2)
        rows, nodes, buffers = header.number(0, "<q"), header.pairs(1), header.pairs(2)
        compressed, views = header.place(3), header.place(4)
    except struct.error as error:
        raise Damaged(f"a record batch at {body} that is no FlatBuffer") from error
    if compressed:
        raise Damaged("its record batches are compressed; write them without compression")
    if views:
        raise Damaged("it has columns of views; write them as binary and string")
    places = [(body + start, body + start + length) for start, length in buffers]
    if rows < 0 or any(not body <= first <= last <= stop for first, last in places):
        raise Damaged(f"a record batch at {body} whose buffers are outside of it")
    return Batch(rows, nodes, places)
