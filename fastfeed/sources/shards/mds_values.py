"""Values of MDS columns, by their encoding: streaming/base/format/mds/encodings.py.

Pickles are never loaded.
"""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from fastfeed.printable import printable

__all__ = [
    "IMAGES",
    "LABELS",
    "VALUES",
    "image_file",
    "is_image",
    "is_label",
    "is_value",
    "value_of",
]

_INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
_NUMBERS = {
    kind: np.dtype(kind).newbyteorder("<") for kind in (*_INTEGERS, "float16", "float32", "float64")
}
_NUMBERS["int"] = np.dtype("<i8")
_ARRAY_TYPES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
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
LABELS = (*_TEXTS, *_NUMBERS, "bytes")
VALUES = (*_TEXTS, *_NUMBERS, "ndarray", *IMAGES)


def is_image(encoding: str) -> bool:
    """An image column can have this encoding."""
    return _kind(encoding) in IMAGES


def is_label(encoding: str) -> bool:
    """A label column can have this encoding."""
    return encoding in LABELS


def is_value(encoding: str) -> bool:
    """A column that is carried to the batch can have this encoding."""
    if _kind(encoding) != "ndarray":
        return _kind(encoding) in VALUES
    try:
        kind, _ = _array_type(encoding)
    except ValueError:
        return False
    return not kind or kind in _ARRAY_TYPES.values()


def value_of(encoding: str, data: bytes) -> Any:
    """A number, a text, bytes, an array, what JSON holds. ValueError."""
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
    mode, pixels = data[12 : 12 + count].decode("ascii", "backslashreplace"), data[12 + count :]
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
    """Without parameters: `jpeg` of `jpeg:90`."""
    return encoding.partition(":")[0]


def _array_type(encoding: str) -> tuple[str, tuple[int, ...] | None]:
    """Type and shape of `ndarray:float32:4,64`; "" and None where each value has its own.

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
        kind, at = _ARRAY_TYPES.get(data[0] if data else 0, ""), 1
    if not kind or at >= len(data):
        raise ValueError("no array: its type is not known")
    if shape is None:
        sides, width = data[at] >> 2, 1 << (data[at] & 3)
        at += 1
        if at + sides * width > len(data):
            raise ValueError(f"no array: {len(data)} bytes")
        shape = tuple(np.frombuffer(data, f"<u{width}", sides, at).tolist())
        at += sides * width
    dtype = _NUMBERS[kind]
    if math.prod(shape) * dtype.itemsize != len(data) - at:
        raise ValueError(f"{len(data) - at} bytes for an array {kind} {shape}")
    return np.frombuffer(data, dtype, offset=at).reshape(shape).copy()
