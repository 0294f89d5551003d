"""Columns of an MDS shard: its header, the sizes before each sample, and values by encoding.

Encodings: streaming/base/format/mds/encodings.py. Pickles are never loaded.
"""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.errors import SourceError
from fastfeed.printable import printable
from fastfeed.sources.shards.build_index import ForwardReader
from fastfeed.sources.shards.extra_columns import Kind, ValueLocation
from fastfeed.storage.local_file import unread
from fastfeed.storage.reads import ByteRange, Stat, Unread, is_local, readable
from fastfeed.storage.storage import Storage
from fastfeed.system.descriptors import open_regular

_LONGEST_NAME = 255  # bytes
_MAX_CONFIG = 1 << 20  # bytes of a configuration


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """A shard's columns, in the order in which they are written."""

    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int, ...]  # bytes; 0: varies


class DamagedSample(ValueError):
    """A sample that does not fit the shard's header."""


def column_encodings(uri: str, stat: Stat, storage: Storage) -> dict[str, str]:
    """Names of a shard's columns, and how each is encoded. SourceError."""

    def read(start: int, count: int) -> bytes:
        span = ByteRange(uri, start, start + count, stat)
        data = _read_local(start, count) if is_local(uri) else storage.read([span])[0]
        return readable(data, uri, "MDSShards")

    def _read_local(start: int, count: int) -> bytes | Unread:
        try:
            with open(open_regular(uri), "rb") as file:
                file.seek(start)
                return file.read(count)
        except OSError as error:
            return unread(error)

    columns = header(ForwardReader(uri, stat.size, read, 64 << 10))[1]
    return dict(zip(columns.names, columns.encodings, strict=True))


def header(reader: ForwardReader) -> tuple[np.ndarray, ColumnLayout]:
    """Bounds of the samples, int64 (n + 1,), and the columns.

    SourceError.
    """
    try:
        count = int.from_bytes(_bytes(reader, 0, 4), "little")
        table = 4 + 4 * (count + 1)
        if table > reader.size:
            raise ValueError(f"{count} samples in {reader.size} bytes")
        offsets = np.frombuffer(_bytes(reader, 4, table - 4), "<u4").astype(np.int64)
        if not 0 < offsets[0] - table <= _MAX_CONFIG or np.any(np.diff(offsets) < 0):
            raise ValueError(
                f"sample offsets must not decrease, and begin at most {_MAX_CONFIG} bytes after"
                f" {table}, got"
                f" {', '.join(map(str, offsets[:3].tolist()))}{', ...' * (len(offsets) > 3)}"
            )
        config = json.loads(_bytes(reader, table, int(offsets[0]) - table))
        if config["format"] != "mds" or config["version"] != 2:
            raise ValueError(f"format {config['format']!r}, version {config['version']!r}")
        sizes = [size or 0 for size in config["column_sizes"]]
        layout = ColumnLayout(
            tuple(config["column_names"]), tuple(config["column_encodings"]), tuple(sizes)
        )
        if not all(isinstance(text, str) for text in (*layout.names, *layout.encodings)):
            names = printable(repr(layout.names))
            encodings = printable(repr(layout.encodings))
            raise ValueError(f"names and encodings must be strings, got {names}, {encodings}")
        if not len(layout.names) == len(layout.encodings) == len(sizes) or not all(
            isinstance(size, int) and size >= 0 for size in sizes
        ):
            raise ValueError(
                "each column must have one encoding and a size of 0 or more, got"
                f" {len(layout.names)} names, {len(layout.encodings)} encodings, sizes"
                f" {printable(repr(sizes))}"
            )
        return offsets, layout
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = (
            f"{type(error).__name__} {error}"
            if not isinstance(error, DamagedSample)
            else str(error)
        )
        raise SourceError(
            f"MDSShards: {reader.uri} must be an uncompressed MDS shard of version 2: {what};"
            " decompress it, or copy it again if it is damaged"
        ) from error


def column_locations(
    reader: ForwardReader, columns: ColumnLayout, start: int, stop: int
) -> dict[str, ValueLocation]:
    """Locations of a sample's columns."""
    varying = columns.sizes.count(0)
    sizes = iter(struct.unpack(f"<{varying}I", _bytes(reader, start, 4 * varying)))
    at = start + 4 * varying
    locations = {}
    for name, size in zip(columns.names, columns.sizes, strict=True):
        own = size or next(sizes)
        locations[name] = ValueLocation(at, own)
        at += own
    if at != stop:
        raise DamagedSample(f"its columns end at {at}, it ends at {stop}")
    if at > reader.size:
        raise DamagedSample(f"it ends at {at}, the shard at {reader.size}")
    return locations


def short_value(reader: ForwardReader, location: ValueLocation) -> bytes:
    return reader.read(location.offset, location.size) if location.size <= _LONGEST_NAME else b""


def _bytes(reader: ForwardReader, start: int, count: int) -> bytes:
    data = reader.read(start, count)
    if len(data) < count:
        raise DamagedSample(f"cut off at {reader.size}")
    return data


_INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
_NUMBERS = {
    kind: np.dtype(kind).newbyteorder("<") for kind in (*_INTEGERS, "float16", "float32", "float64")
}
_NUMBERS["int"] = np.dtype("<i8")
# by the byte before an array
_ARRAY_TYPES = {
    bits + k: f"{kind}{bits}"
    for bits in (8, 16, 32, 64)
    for k, kind in enumerate(("uint", "int", "float"))
    if bits > 8 or kind != "float"
}
IMAGES = ("bytes", "jpeg", "png", "pil")  # encodings of an image column
# bytes of a pixel; "1": eight pixels in a byte
_PIL_MODES = {"1": 0, "L": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_TEXTS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "str_int": int,
    "str_float": float,
    "str_decimal": str,
    "json": json.loads,
}
KINDS: dict[str, Kind] = {"str": "text", "str_decimal": "text", "json": "json"}
KINDS.update(_NUMBERS)
LABELS = (*_TEXTS, *_NUMBERS, "bytes")
VALUES = (*_TEXTS, *_NUMBERS, "ndarray", *IMAGES)


def is_image(encoding: str) -> bool:
    """An image column can have this encoding."""
    return _kind(encoding) in IMAGES


def is_label(encoding: str) -> bool:
    """True if a label column can have this encoding."""
    return encoding in LABELS


def is_value(encoding: str) -> bool:
    """True if a column with this encoding can be carried to the batch."""
    if _kind(encoding) != "ndarray":
        return _kind(encoding) in VALUES
    try:
        kind, _ = _array_type(encoding)
    except ValueError:
        return False
    return not kind or kind in _ARRAY_TYPES.values()


def decode_value(encoding: str, data: bytes) -> Any:
    """Decode a number, text, bytes, array or JSON value; ValueError if the data does not fit."""
    if encoding in _TEXTS:
        return _TEXTS[encoding](data.decode())
    if encoding in _NUMBERS:
        if len(data) != _NUMBERS[encoding].itemsize:
            raise ValueError(
                f"{len(data)} bytes where {encoding} has {_NUMBERS[encoding].itemsize}"
            )
        return np.frombuffer(data, _NUMBERS[encoding])[0]
    return _array(encoding, data) if _kind(encoding) == "ndarray" else image_file(encoding, data)


def image_file(encoding: str, data: bytes) -> bytes:
    """The image as a file: raw pixels of Pillow as a PNG, all else as it is. ValueError."""
    if encoding != "pil":
        return data
    from PIL import Image  # takes longer to import than this package

    if len(data) < 12:
        raise ValueError(f"{len(data)} bytes, too few for an image of Pillow")
    width, height, count = struct.unpack_from("<III", data)
    mode = data[12 : 12 + count].decode("ascii", "backslashreplace")
    pixels = data[12 + count :]
    if count > 8 or mode not in _PIL_MODES:
        raise ValueError(
            f"an image of Pillow's mode {printable(mode, 80)}; {', '.join(_PIL_MODES)} can be read"
        )
    row = -(-width // 8) if mode == "1" else width * _PIL_MODES[mode]
    if not row * height or row * height != len(pixels):
        raise ValueError(
            f"{len(pixels)} bytes for {width} x {height} pixels of Pillow's mode {mode}"
        )
    file = io.BytesIO()
    Image.frombytes(mode, (width, height), pixels).save(file, "PNG", compress_level=0)
    return file.getvalue()


def _kind(encoding: str) -> str:
    """An encoding without parameters: `jpeg` for `jpeg:90`."""
    return encoding.partition(":")[0]


def _array_type(encoding: str) -> tuple[str, tuple[int, ...] | None]:
    """Type and shape of `ndarray:float32:4,64`; "" and None if each value has its own.

    ValueError.
    """
    _, _, parameters = encoding.partition(":")
    kind, _, sides = parameters.partition(":")
    shape = tuple(int(side) for side in sides.split(",")) if sides else None
    if shape is not None and min(shape) < 1:
        raise ValueError(f"the shape {sides}")
    return kind, shape


def _array(encoding: str, data: bytes) -> np.ndarray:
    kind, shape = _array_type(encoding)
    at = 0
    if not kind:
        kind = _ARRAY_TYPES.get(data[0] if data else 0, "")
        at = 1
    if not kind or at >= len(data):
        raise ValueError("no array: its type is not known")
    if shape is None:
        sides = data[at] >> 2
        width = 1 << (data[at] & 3)
        at += 1
        if at + sides * width > len(data):
            raise ValueError(f"no array: {len(data)} bytes")
        shape = tuple(np.frombuffer(data, f"<u{width}", sides, at).tolist())
        at += sides * width
    dtype = _NUMBERS[kind]
    if math.prod(shape) * dtype.itemsize != len(data) - at:
        raise ValueError(f"{len(data) - at} bytes for an array {kind} {shape}")
    return np.frombuffer(data, dtype, offset=at).reshape(shape).copy()
