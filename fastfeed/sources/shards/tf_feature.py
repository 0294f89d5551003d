"""Converts a feature of a tf.train.Example (core/example/feature.proto) to texts, bytes, numbers
and arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastfeed.sources.shards.protobuf import LazyMessage, fields, varint

__all__ = ["to_python"]

_BYTES, _FLOATS, _INTEGERS = 1, 2, 3  # fields of a Feature: which list it holds


def to_python(feature: bytes, text: bool = True) -> Any:
    """A text, or bytes unless `text`; a float32 or int64 number; a list of texts, an array of
    numbers.

    None where it holds nothing. ValueError where it is damaged, or its bytes are no text.
    """
    values: list[Any] = []
    kind = 0
    message = LazyMessage.of(feature)
    for tag, first, last in fields(message, 0, len(feature)):
        field = tag >> 3
        if field in (_BYTES, _FLOATS, _INTEGERS):
            if kind not in (0, field):
                values = []  # as protobuf's parsers do: the last kind counts
            kind = field
            values += _values(message, field, first, last)
    if not values:
        return None
    if kind == _BYTES:
        values = [value.decode() for value in values] if text else values
        return values if len(values) > 1 else values[0]
    numbers = np.array(values, np.float32 if kind == _FLOATS else np.int64)
    return numbers if len(values) > 1 else numbers[0]


def _values(message: LazyMessage, kind: int, start: int, stop: int) -> Iterator[Any]:
    for tag, first, last in fields(message, start, stop):
        wire, size = tag & 7, last - first
        if tag >> 3 != 1:
            continue
        if kind == _BYTES and wire == 2:
            yield message.bytes(first, last)
        elif kind == _FLOATS and wire in (2, 5) and size % 4 == 0:
            yield from struct.unpack(f"<{size // 4}f", message.bytes(first, last))
        elif kind == _INTEGERS and wire in (0, 2):
            content, at = message.bytes(first, last), 0
            while at < size:
                number, at = varint(content, at)
                number &= (1 << 64) - 1
                yield number - (number >> 63 << 64)
        else:
            raise ValueError(f"{size} bytes of wire type {wire} in a list of another kind")
