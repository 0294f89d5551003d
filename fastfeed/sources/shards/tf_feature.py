"""What a feature of a tf.train.Example holds: core/example/feature.proto. Bytes are texts."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

__all__ = ["plain"]

_BYTES, _FLOATS, _INTEGERS = 1, 2, 3  # fields of a Feature: which list it holds


def plain(feature: bytes) -> Any:
    """A text, a number, a list of these; None where it holds nothing. ValueError where it is damaged, or no text."""
    found: list[Any] = []
    kind = 0
    for field, _, content in _fields(feature):
        if field in (_BYTES, _FLOATS, _INTEGERS):
            if kind not in (0, field):
                found = []  # as protobuf's parsers do: the last kind counts
            kind = field
            found += _values(field, content)
    return found[0] if len(found) == 1 else found or None


def _values(kind: int, data: bytes) -> Iterator[Any]:
    for field, wire, content in _fields(data):
        if field != 1:
            continue
        if kind == _BYTES and wire == 2:
            yield content.decode()
        elif kind == _FLOATS and wire in (2, 5) and len(content) % 4 == 0:
            yield from struct.unpack(f"<{len(content) // 4}f", content)
        elif kind == _INTEGERS and wire in (0, 2):
            at = 0
            while at < len(content):
                number, at = _varint(content, at)
                number &= (1 << 64) - 1
                yield number - (number >> 63 << 64)
        else:
            raise ValueError(f"{len(content)} bytes of wire type {wire} in a list of another kind")


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, wire type and content of each field of a message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 2:
            size, at = _varint(data, at)
        elif wire == 0:
            size = _varint(data, at)[1] - at
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("a field goes beyond its message")
        yield tag >> 3, wire, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number there, and what follows it."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        number |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return number, at
    raise ValueError("a number has no end")
