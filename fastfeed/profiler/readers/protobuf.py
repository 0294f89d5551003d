"""Decodes protocol buffers without generated code: one message, or a million at once.

A field is a number, a wire type (VARINT, FIXED64, LEN, FIXED32) and a value. The value of LEN is
where its bytes begin; all of these functions say where a field ends, and none copies what is in it.
Nothing here recurses, and nothing takes memory because a length says so.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

VARINT = 0
FIXED64 = 1
LEN = 2
FIXED32 = 5
# zero bytes behind the content, so that `words` and `FieldIterator` can read whole words near its
# end
PAD = 32
_MAX_FIELDS = 256  # fields of one message that `FieldIterator` reads; real events have twenty
_MAX_MESSAGES = 1 << 26  # messages that `split` finds; and of other fields
_MAX_OTHERS = 1 << 10

Content = bytes | bytearray


class DamagedMessage(ValueError):
    """These bytes are not a valid message."""


class WireField(NamedTuple):
    number: int
    wire: int
    value: int  # of LEN: where its bytes begin; of FIXED64 and FIXED32 the raw bits
    stop: int  # where the field ends


def fields(data: Content, start: int, end: int) -> Iterator[WireField]:
    """Every field of the message in data[start:end].

    DamagedMessage after the valid ones where it is damaged.
    """
    while start < end:
        tag, at = _varint(data, start, end)
        number = tag >> 3
        wire = tag & 7
        if wire == VARINT:
            value, stop = _varint(data, at, end)
        elif wire == LEN:
            size, value = _varint(data, at, end)
            stop = value + size
        elif wire in (FIXED64, FIXED32):
            stop = at + (8 if wire == FIXED64 else 4)
            value = int.from_bytes(data[at:stop], "little")
        else:
            raise DamagedMessage(f"a field of wire type {wire} at byte {start}")
        if not number or stop > end:
            raise DamagedMessage(
                f"field {number} at byte {start} ends at byte {stop}, after its message"
            )
        yield WireField(number, wire, value, stop)
        start = stop


def split(
    data: Content, start: int, end: int, number: int, min_size: int = 0
) -> tuple[list[WireField], np.ndarray, np.ndarray, bool]:
    """A message with very many LEN fields of one number below 16: other fields, begins, ends.

    Those of fewer than `least` bytes are left out. The last value says whether the message is
    complete; fields before the damage are returned in any case. More fields than any real message
    has count as damage.
    """
    tag = number << 3 | LEN
    others: list[WireField] = []
    begins = array("q")
    ends = array("q")
    add_begin = begins.append
    add_end = ends.append
    is_complete = True
    try:
        while start < end:
            if data[start] == tag:
                size = data[start + 1]
                at = start + 2
                if size > 127:
                    size, at = _varint(data, start + 1, end)
                start = at + size
                if start > end:
                    raise DamagedMessage("it ends after its message")
                if size < min_size:
                    continue
                add_begin(at)
                add_end(start)
                if len(begins) > _MAX_MESSAGES:
                    raise DamagedMessage("too many nested messages")
            elif len(others) > _MAX_OTHERS:
                raise DamagedMessage("more fields than such a message has")
            else:
                other = next(fields(data, start, end))
                others.append(other)
                start = other.stop
    except DamagedMessage:
        is_complete = False
    return others, np.frombuffer(begins, np.int64), np.frombuffer(ends, np.int64), is_complete


def text(data: Content, start: int, stop: int) -> str:
    """A text; bytes that are not UTF-8 are replaced."""
    return data[start:stop].decode("utf-8", "replace")


def signed(value: int) -> int:
    """Reinterpret an unsigned varint as int64."""
    return value - (1 << 64) if value >> 63 else value


def double(bits: int) -> float:
    """The value of a FIXED64 that is a double."""
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def words(data: Content) -> np.ndarray:
    """The eight bytes from every position of padded data, as uint64, without a copy."""
    return np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))


_BYTE_ENDS = np.uint64(0x8080808080808080)
_EACH_BYTE = np.uint64(0x0101010101010101)
_UINT_ONE = np.uint64(1)


def varints(words: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The varints at these positions of `words`, as int64, and where each ends."""
    word = words[at]
    last = ~word & _BYTE_ENDS
    last &= ~last + _UINT_ONE  # the top bit of the last byte; 0 if that is not among these eight
    below = last - _UINT_ONE
    size = (((below & _BYTE_ENDS) >> np.uint64(7)) * _EACH_BYTE) >> np.uint64(56)
    word &= below
    value = word & np.uint64(0x7F)
    for byte in range(1, min(8, int(size.max(initial=0)) + 1)):
        value |= (word >> np.uint64(byte)) & np.uint64(0x7F << 7 * byte)
    stop = at + size.astype(np.int64) + 1
    long = np.flatnonzero(last == 0)
    if len(long):
        rest = words[at[long] + 8]
        value[long] |= (rest & np.uint64(0x7F)) << np.uint64(56)
        ten = (rest & np.uint64(0x80)) != 0
        value[long] |= np.where(ten, (rest >> np.uint64(8)) & _UINT_ONE, np.uint64(0)) << np.uint64(
            63
        )
        stop[long] = at[long] + 9 + ten
    return value.view(np.int64), stop


def _varint(data: Content, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise DamagedMessage(f"a number at byte {at} does not end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7


class FieldIterator:
    """Iterates over the fields of many messages at once: the next field of all that have one.

    `begin` and `end` are int64 arrays. Iterating gives (rows, number, wire, value, stop), arrays of
    one length: `rows` are indexes into `begin`. After that, `damaged` counts the messages that were
    read in part.
    """

    def __init__(self, words: np.ndarray, begin: np.ndarray, end: np.ndarray) -> None:
        self._words = words
        self._begin = begin
        self._end = end
        self.damaged = 0

    def __iter__(
        self,
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        rows = np.arange(len(self._begin))
        at = self._begin
        end = self._end
        for _ in range(_MAX_FIELDS):
            if not (at < end).all():
                unfinished = at < end
                rows = rows[unfinished]
                at = at[unfinished]
                end = end[unfinished]
            if not len(rows):
                return
            tag, at = varints(self._words, at)
            number = tag >> 3
            wire = tag & 7
            value, stop = varints(self._words, at)
            length = np.flatnonzero(wire == LEN)
            size = value[length]
            value[length] = stop[length]
            stop[length] = np.where(size < 0, -1, stop[length] + size)
            fixed = np.flatnonzero((wire == FIXED64) | (wire == FIXED32))
            if len(fixed):
                stop[fixed] = at[fixed] + np.where(wire[fixed] == FIXED64, 8, 4)
                value[fixed] = self._words[at[fixed]].view(np.int64)
            # a length near 2^63 wraps around to before its own beginning
            valid = (number > 0) & (stop <= end) & (stop > at) & ((wire <= LEN) | (wire == FIXED32))
            if not valid.all():
                self.damaged += int(len(valid) - np.count_nonzero(valid))
                rows, number, wire, value, stop, end = (
                    column[valid] for column in (rows, number, wire, value, stop, end)
                )
            yield rows, number, wire, value, stop
            at = stop
        self.damaged += int(np.count_nonzero(at < end))
