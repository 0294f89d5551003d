"""Finds the image and the label in a serialized tf.train.Example.

    Example { Features features = 1 }
    Features { map<string, Feature> feature = 1 }
    Feature { oneof kind { BytesList = 1, FloatList = 2, Int64List = 3 } }
    ...List { repeated value = 1 }

A map is a repeated message { key = 1, value = 2 }. From TensorFlow, core/example/example.proto and
feature.proto, and Protocol Buffers, "Encoding". Of what appears twice the later one counts, and
parts of one list are put together, as protobuf's parsers do. What is skipped is not checked.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from fastfeed.printable import printable
from fastfeed.sources.shards.labels import LARGEST_LABEL, text_label
from fastfeed.sources.tfrecord.protobuf import HEAD, LazyMessage, Malformed, fields, signed, varint

Bounds = tuple[int, int]  # bytes [first, last)

# bytes
LONGEST_NAME = 1000
_LONGEST_TEXT = 1000
_LONGEST_FILE = 255
_SHOWN = 20  # names, bytes of a text
_PARTS = 16  # that one value may come in
# fields 1, 2, 3 with a length
_FIRST = 0x0A
_SECOND = 0x12
_THIRD = 0x1A


class FeatureNames:
    """Names of features, of up to LONGEST_NAME bytes each."""

    __slots__ = ("heads", "names", "reach")

    def __init__(self, *names: bytes) -> None:
        self.names = names
        self.heads = tuple(map(_head, names))
        # bytes from an entry's beginning up to its value, and more
        self.reach = 64 + max(map(len, self.heads))


class Example:
    """The named features of the Example in bytes [start, stop). Malformed, here and below."""

    __slots__ = ("_bounds", "_message", "_parts")

    def __init__(self, message: LazyMessage, start: int, stop: int, features: FeatureNames) -> None:
        self._message = message
        self._bounds = (start, stop)
        by_name = _fast_path(message, start, stop, features)
        if by_name is None:
            by_name = {name: parts for name, parts in self._entries() if name in features.names}
        self._parts: dict[bytes, list[Bounds]] = by_name

    def _entries(self) -> Iterator[tuple[bytes, list[Bounds]]]:
        for tag, *features in fields(self._message, *self._bounds):
            if tag == _FIRST:
                for tag, first, last in fields(self._message, *features):  # noqa: PLW2901
                    if tag == _FIRST:
                        yield _entry(self._message, first, last)

    def names(self) -> list[str]:
        """The names of all features."""
        return [name.decode("utf-8", "replace") for name, _ in self._entries()]

    def feature(self, name: bytes) -> Bounds | None:
        """Bounds of a feature's message, the last part of several; None if it is missing."""
        return self._parts[name][-1] if self._parts.get(name) else None

    def image(self, name: bytes) -> Bounds:
        """Bounds of a feature's bytes."""
        value = self._value(name)
        if isinstance(value, int):
            raise Malformed(f"{printable(name)}: holds an integer, not bytes")
        return value

    def label(self, name: bytes) -> int | str:
        """Label: a number from 0 to 2**31 - 1, also from canonical text, or a string."""
        value = self._value(name)
        if isinstance(value, int):
            text = excerpt = str(value)
        else:
            data = self._message.bytes(value[0], min(value[1], value[0] + _LONGEST_TEXT + 1))
            text = data.decode("utf-8", "replace") if len(data) <= _LONGEST_TEXT else ""
            excerpt = repr(data[:_SHOWN])
        if isinstance(label := text_label(text), int):
            return label
        if isinstance(value, int) or not text or re.search("[\0-\x1f\x7f\ufffd]|^-[0-9]+$", text):
            raise Malformed(
                f"{printable(name)}: got {excerpt}, must be a number from 0 to 2**31 - 1 or a"
                " string"
            )
        return text

    def value(self, name: bytes) -> Any:
        """Value of a feature, as `to_python`; an empty list where it holds nothing."""
        bounds = self.feature(name)
        if bounds is None:
            raise self._lacks(name)
        if bounds[1] - bounds[0] > LARGEST_LABEL:
            raise Malformed(
                f"{printable(name)}: {bounds[1] - bounds[0]} bytes, too long for a label"
            )
        value = to_python(self._message.bytes(*bounds))
        return [] if value is None else value

    def file(self, name: bytes) -> bytes:
        """Name of a file; empty if missing or too long."""
        if name not in self._parts:
            return b""
        value = _value(self._message, self._parts[name])
        if isinstance(value, int) or value[1] - value[0] > _LONGEST_FILE:
            return b""
        return self._message.bytes(*value)

    def _lacks(self, name: bytes) -> Malformed:
        names = sorted(name for name, _ in islice(self._entries(), _SHOWN))
        return Malformed(
            f"no {printable(name)}, only {', '.join(map(printable, names)) or 'nothing'}"
        )

    def _value(self, name: bytes) -> Bounds | int:
        if name not in self._parts:
            raise self._lacks(name)
        try:
            return _value(self._message, self._parts[name])
        except Malformed as error:
            raise Malformed(f"{printable(name)}: {error}") from None


def _fast_path(
    message: LazyMessage, start: int, stop: int, features: FeatureNames
) -> dict[bytes, list[Bounds]] | None:
    """Values of the named features if written in the usual order: keys, then values.

    None: parse it in full.
    """
    values: dict[bytes, list[Bounds]] = {}
    at = _inside(message, start, stop, _FIRST)
    data = message.data
    before = message.first
    try:
        while 0 <= at < stop:
            i = at - before
            if i + features.reach > len(data):
                i = message.at(at, features.reach)
                data = message.data
                before = message.first
            if data[i] != _FIRST:
                return None
            size = data[i + 1]
            if size < 0x80:
                i += 2
            else:
                size, i = varint(data, i + 1)
            at = before + i + size
            if data.startswith(features.heads, i):
                for name, head in zip(features.names, features.heads, strict=True):
                    if data.startswith(head, i):
                        values[name] = [(_inside(message, before + i + len(head), at, _SECOND), at)]
            elif data[i] != _FIRST:
                return None
    except (IndexError, Malformed):
        return None
    good = at == stop and all(parts[0][0] >= 0 for parts in values.values())
    return values if good else None


def _inside(message: LazyMessage, at: int, stop: int, tag: int) -> int:
    """Offset of the content of the field at `at`, if it is `tag` and ends at `stop`; else -1."""
    i = message.at(at, HEAD)
    data = message.data
    if at >= stop or data[i] != tag:
        return -1
    size, end = varint(data, i + 1)
    first = at + end - i
    return first if first + size == stop else -1


def _entry(message: LazyMessage, first: int, last: int) -> tuple[bytes, list[Bounds]]:
    """Name and value of an entry of the map."""
    name = b""
    parts = []
    for tag, begin, end in fields(message, first, last):
        if tag == _FIRST:
            name = message.bytes(begin, min(end, begin + LONGEST_NAME + 1))
        elif tag == _SECOND:
            parts.append((begin, end))
            if len(parts) > _PARTS:
                raise Malformed(f"a value comes in more than {_PARTS} parts")
    return name, parts


def _value(message: LazyMessage, parts: list[Bounds]) -> Bounds | int:
    """The one value of a feature: bounds of its bytes, or its integer."""
    first, last = parts[0] if len(parts) == 1 else (0, 0)
    first = _inside(message, first, last, _FIRST)
    if first >= 0:
        first = _inside(message, first, last, _FIRST)
        if first >= 0:
            return first, last  # one text or image in its list
    kind = 0
    values = []
    for part in parts:
        for tag, first, last in fields(message, *part):
            if tag in (_FIRST, _SECOND, _THIRD):
                if tag != kind:
                    kind = tag
                    values = []
                values = [*values, *_values(message, kind, first, last)][:2]
    if kind == _SECOND:
        raise Malformed("holds floating-point numbers")
    if len(values) != 1:
        raise Malformed("holds more than one value" if values else "holds no value")
    return values[0]


def _values(message: LazyMessage, kind: int, first: int, last: int) -> list[Bounds | int]:
    """The first values of a list, two at most: more is not what is looked for."""
    values: list[Bounds | int] = []
    for tag, begin, end in fields(message, first, last):
        if kind == _FIRST and tag == _FIRST:
            values.append((begin, end))
        elif kind == _THIRD and tag == 0x08:
            values.append(signed(message, begin)[0])
        elif kind == _THIRD and tag == _FIRST:  # packed
            while begin < end and len(values) < 2:
                number, begin = signed(message, begin)  # noqa: PLW2901
                if begin > end:
                    raise Malformed("a number goes beyond its list")
                values.append(number)
        if len(values) > 1:
            break
    return values[:2]


def _head(name: bytes) -> bytes:
    """First bytes of a feature's entry."""
    size = len(name)
    return bytes([_FIRST, size] if size < 0x80 else [_FIRST, size & 0x7F | 0x80, size >> 7]) + name


# fields of a Feature: which list it holds
_BYTES = 1
_FLOATS = 2
_INTEGERS = 3


def to_python(feature: bytes, text: bool = True) -> Any:
    """Text (or bytes unless `text`), number, list of texts or array of numbers.

    None if it holds nothing. ValueError if it is damaged, or its bytes are not text.
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
            values += _decoded_values(message, field, first, last)
    if not values:
        return None
    if kind == _BYTES:
        values = [value.decode() for value in values] if text else values
        return values if len(values) > 1 else values[0]
    numbers = np.array(values, np.float32 if kind == _FLOATS else np.int64)
    return numbers if len(values) > 1 else numbers[0]


def _decoded_values(message: LazyMessage, kind: int, start: int, stop: int) -> Iterator[Any]:
    for tag, first, last in fields(message, start, stop):
        wire = tag & 7
        size = last - first
        if tag >> 3 != 1:
            continue
        if kind == _BYTES and wire == 2:
            yield message.bytes(first, last)
        elif kind == _FLOATS and wire in (2, 5) and size % 4 == 0:
            yield from struct.unpack(f"<{size // 4}f", message.bytes(first, last))
        elif kind == _INTEGERS and wire in (0, 2):
            content = message.bytes(first, last)
            at = 0
            while at < size:
                number, at = varint(content, at)
                number &= (1 << 64) - 1
                yield number - (number >> 63 << 64)
        else:
            raise ValueError(f"{size} bytes of wire type {wire} in a list of another kind")
