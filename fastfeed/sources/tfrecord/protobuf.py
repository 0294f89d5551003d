"""The wire format of Protocol Buffers: messages of which only the parts that are needed are read.

From Protocol Buffers, "Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

_BLOCK = 2048  # bytes read at once
HEAD = 20  # bytes of a field's number and length, at most


class Malformed(ValueError):
    """A message that is malformed or not the one needed; the text says why."""


class LazyMessage:
    """A message read in parts by `read(start, count)`, which returns fewer bytes at the end."""

    __slots__ = ("_read", "data", "first", "stop")

    def __init__(self, read: Callable[[int, int], bytes], stop: int) -> None:
        self._read = read
        self.stop = stop
        self.data = b""
        self.first = 0

    @classmethod
    def of(cls, data: bytes) -> LazyMessage:
        """A message that is in memory."""
        message = cls(lambda start, count: data[start : start + count], len(data))
        message.data = data
        return message

    def at(self, start: int, count: int) -> int:
        """Position of byte `start` in `data`, followed by up to `count` bytes."""
        i = start - self.first
        have = len(self.data) - i
        if i >= 0 and (count <= have or start + have >= self.stop):
            return i
        self.first = start
        self.data = self._read(start, min(max(count, _BLOCK), self.stop - start))
        return 0

    def bytes(self, first: int, last: int) -> bytes:
        """Read bytes [first, last) of the message."""
        i = self.at(first, last - first)
        data = self.data[i : i + last - first]
        if len(data) < last - first:
            raise Malformed("it ends too early")
        return data


def fields(message: LazyMessage, at: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Fields of the message in [at, stop): tag, first and last byte of the content."""
    while at < stop:
        i = begin = message.at(at, HEAD)
        data = message.data
        tag, i = varint(data, i)
        wire = tag & 7
        if wire == 2:
            size, i = varint(data, i)
        elif wire == 0:
            size = varint(data, i)[1] - i
        elif wire == 1 or wire == 5:
            size = 8 if wire == 1 else 4
        else:
            raise Malformed(f"wire type {wire} at {at}")
        if tag < 8:
            raise Malformed(f"field number 0 at {at}")
        first = at + i - begin
        if first + size > stop:
            raise Malformed(f"the field at {at} goes beyond its message")
        yield tag, first, first + size
        at = first + size


def signed(message: LazyMessage, at: int) -> tuple[int, int]:
    """The int64 at `at`, and the position after it."""
    i = message.at(at, HEAD)
    number, end = varint(message.data, i)
    number &= (1 << 64) - 1
    return number - (number >> 63 << 64), at + end - i


def varint(data: bytes, i: int) -> tuple[int, int]:
    """The number at i, and the position after it."""
    try:
        byte = data[i]
        if byte < 0x80:
            return byte, i + 1
        number = byte & 0x7F
        for shift in range(7, 70, 7):
            i += 1
            byte = data[i]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number, i + 1
    except IndexError:
        raise Malformed("it ends too early") from None
    raise Malformed("a number of more than ten bytes")
