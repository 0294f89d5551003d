"""The items of one call: files in memory, paths, arrays and PIL images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal

import numpy as np
from PIL import Image

from fastfeed.decode.base import DecodeFailure
from fastfeed.decode.deep import fitted
from fastfeed.decode.formats.exif import ORIENTATION
from fastfeed.decode.memory_limit import DECODING
from fastfeed.decode.orientation import displayed
from fastfeed.decode.pillow import failure_from_error, plain, unwarned
from fastfeed.errors import ConfigError
from fastfeed.ops.decode import Decode
from fastfeed.runtime.addresses import WholeFiles
from fastfeed.spec import Spec

Kind = Literal["file", "path", "pixels", "other"]

_PIXEL_BYTES = 8  # of a PIL image: its own, and those of its copy
_FILES = (bytes, bytearray, memoryview)
_BY_TYPE: dict[type, Kind] = {bytes: "file", str: "path"}
_DTYPES = (np.uint8, np.uint16, np.float32)
_KINDS = "bytes of a file, a path, a uint8 array (height, width, 3) or a PIL image"


def as_list(items: Any) -> list[Any]:
    """The items of a call. ConfigError for one item alone, and for what has no length."""
    if type(items) is list:
        return items
    is_image = isinstance(items, np.ndarray) and items.dtype in _DTYPES and items.ndim < 4
    if is_image or isinstance(items, (str, os.PathLike, Image.Image, *_FILES)):
        raise ConfigError(
            f"items must be a list, got one {type(items).__name__}; call transform.one(item), or"
            " pass [item]",
            field="items",
        )
    if isinstance(items, (Mapping, Set)) or not (
        hasattr(items, "__len__") and hasattr(items, "__iter__")
    ):
        raise ConfigError(
            f"items must be a list, got {type(items).__name__}; pass list(items)", field="items"
        )
    return list(items)


def kind(item: Any) -> Kind:
    """The kind of an item, by its type alone."""
    if isinstance(item, np.ndarray):
        return "file" if item.ndim == 1 and item.dtype == np.uint8 else "pixels"
    if isinstance(item, _FILES):
        return "file"
    if isinstance(item, (str, os.PathLike)):
        return "path"
    return "pixels" if isinstance(item, Image.Image) else "other"


def common_kind(items: Sequence[Any]) -> Kind | None:
    """The kind of all items; None if they have several, or there are no items."""
    types = set(map(type, items))
    if len(types) == 1 and (known := _BY_TYPE.get(types.pop())):
        return known
    kinds: set[Kind] = {kind(item) for item in items}
    return kinds.pop() if len(kinds) == 1 else None


def grouped(items: Sequence[Any]) -> dict[Kind, np.ndarray]:
    """Rows by the kind of their item, int64 (k,) ascending."""
    rows: dict[Kind, list[int]] = {}
    for row, item in enumerate(items):
        rows.setdefault(kind(item), []).append(row)
    return {name: np.array(own) for name, own in rows.items()}


def refusal(item: Any, spec: Spec, takes_pixels: bool) -> DecodeFailure:
    """The failure of an item that is not of the kind that is needed: files, pixels of a spec."""
    needed = f"an array or a PIL image, {spec}"
    if spec.encoded:
        needed = _KINDS if takes_pixels else "bytes of a file or a path, with this Decode"
    return DecodeFailure("not_image", f"it must be {needed}, got {type(item).__name__}")


def contiguous(files: Sequence[Any]) -> Sequence[Any]:
    """Files in memory as native code takes them."""
    return files if set(map(type, files)) == {bytes} else list(map(_contiguous, files))


def _contiguous(item: Any) -> Any:
    if isinstance(item, np.ndarray):
        return np.ascontiguousarray(item)
    if isinstance(item, memoryview) and not item.c_contiguous:
        return bytes(item)
    return item


def locations(paths: Sequence[Any]) -> WholeFiles:
    """Paths as native threads read them."""
    try:
        names = os.fsencode("\0".join(map(os.fspath, paths))).split(b"\0")
    except (TypeError, ValueError):  # of bytes, or with surrogates
        names = []
    if len(names) != len(paths):
        names = [_encoded(path) for path in paths]
    ends = np.cumsum(list(map(len, names)), dtype=np.int64)
    blob = np.frombuffer(b"".join(names), np.uint8)
    return WholeFiles(b"", blob, ends, np.arange(len(names)), None)


def _encoded(path: Any) -> bytes:
    """A path's bytes; none for a path that no file can have."""
    try:
        return os.fsencode(path)
    except ValueError:
        return b""


def pixels(item: Any, spec: Spec, decode: Decode) -> np.ndarray | DecodeFailure:
    """An array or a PIL image as (height, width, channels) of a spec, or why it is not."""
    if spec.dtype != "uint8":
        return _deep(item, spec)
    try:
        image = item if isinstance(item, np.ndarray) else _shown(item, decode)
    except Exception as error:  # plugins may raise anything
        return failure_from_error(error, b"", "")
    if isinstance(image, DecodeFailure):
        return image
    if image.dtype != np.uint8:
        return DecodeFailure(
            "not_image",
            f"it is an array of {image.dtype}; convert it with (x * 255).astype('uint8')",
        )
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3, 4)):
        return DecodeFailure(
            "not_image",
            f"it is an array of shape {image.shape}; it must be (height, width), or (height, width,"
            " 1, 3 or 4)",
        )
    if not image.size:
        return DecodeFailure("empty", f"it is an array of shape {image.shape}")
    if image.ndim == 2:
        image = image[..., None]
    if image.shape[2] == 4:
        image = np.asarray(plain(Image.fromarray(np.ascontiguousarray(image)), decode.matte))
    if image.shape[2] == 3 and decode.channels == 1:
        image = np.asarray(Image.fromarray(np.ascontiguousarray(image)).convert("L"))[..., None]
    if image.shape[2] == 1 and spec.channels == 3:
        image = np.repeat(image, 3, axis=2)
    return _of_shape(image, spec)


def _deep(item: Any, spec: Spec) -> np.ndarray | DecodeFailure:
    """An array of more than bytes as a spec of uint16 or float32 has it, or why it is not."""
    if not isinstance(item, np.ndarray):
        return DecodeFailure("not_image", "it must be an array of uint16 or float32, or a file")
    if item.dtype not in _DTYPES[1:] or item.ndim not in (2, 3) or not item.size:
        return DecodeFailure(
            "not_image",
            f"it is an array of {item.dtype}, shape {item.shape}; it must be uint16 or float32"
            " (height, width) or (height, width, channels)",
        )
    try:
        image = item[..., None] if item.ndim == 2 else item
        options: Any = {"channels": spec.channels, "dtype": spec.dtype}
        image = fitted(image, Decode(**options))
    except OSError as error:
        return failure_from_error(error, b"", "")
    return _of_shape(image, spec)


def _of_shape(image: np.ndarray, spec: Spec) -> np.ndarray | DecodeFailure:
    if any(side not in (None, own) for side, own in zip(spec.shape, image.shape, strict=True)):
        return DecodeFailure("corrupt", f"it has shape {image.shape}, expected {spec}")
    return image


def _shown(image: Image.Image, decode: Decode) -> np.ndarray | DecodeFailure:
    """A PIL image as displayed: turned by its EXIF orientation, in 8 bits, without transparency."""
    count = image.width * image.height
    if count > decode.max_pixels:  # it may not have been decoded yet
        return DecodeFailure(
            "bomb",
            f"{image.width}x{image.height} pixels, the limit is {decode.max_pixels}:"
            " Decode(max_pixels=...)",
        )

    def load() -> np.ndarray:
        image.load()
        turn = image.getexif().get(ORIENTATION, 1)
        turn = turn if isinstance(turn, int) and 1 <= turn <= 8 else 1
        return displayed(turn, np.asarray(plain(image, decode.matte)))

    with DECODING.reserve(_PIXEL_BYTES * count):
        return unwarned(load)
