"""Pixels with all of their bits: integers of 16 bits, and floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.decode.formats.exr import ExrFile
from fastfeed.decode.formats.npy import NpyFile
from fastfeed.ops.decode import Decode
from fastfeed.runtime.extension import extension

_BITS = 258  # a tag of TIFF
_DEEP = ("PNG", "TIFF")  # formats whose samples of 16 bits are read
_BYTES = ("JPEG", "BMP", "GIF", "WEBP")  # formats of 8 bits alone


def deep_values(image: Any, blob: Any) -> np.ndarray | None:
    """The numbers of an opened image, (height, width, channels) as stored; None if it is of bytes."""
    if isinstance(image, (NpyFile, ExrFile)):
        return image.array
    if _has_bytes(image):
        return None
    if image.format not in _DEEP:
        raise OSError(
            f"unsupported: {image.format} of mode {image.mode}, which may have more than 8 bits; all"
            " bits are read of PNG, TIFF, OpenEXR and .npy alone"
        )
    is_png = image.format == "PNG"
    bits = blob[24] if is_png else np.max(image.tag_v2.get(_BITS, 1))
    if bits <= 8:
        return None
    if image.mode == "F":
        image.load()
        return np.asarray(image)[..., None]
    found = extension().stored_samples(blob)
    if found is None:
        how = "interlaced" if is_png else f"{image.mode}, compression {image.info['compression']}"
        raise OSError(f"unsupported or damaged: {bits} bits, {how}")
    height, width, _, samples = found
    order = ">" if is_png or bytes(blob[:2]) == b"MM" else "<"
    values = np.frombuffer(samples, f"{order}u2").reshape(height, width, -1)
    if "transparency" not in image.info:
        return values
    clear = (values == image.info["transparency"]).all(axis=2, keepdims=True)
    return np.concatenate([values, np.where(clear, 0, _opaque(values))], axis=2)


def _has_bytes(image: Any) -> bool:
    """True if an opened image, of no format in _DEEP, is known to have 8 bits or fewer."""
    if image.format == "PPM":
        return image.mode in ("1", "L") or (image.mode == "RGB" and image.tile[0][0] == "raw")
    if image.format == "JPEG2000":
        return image.mode in ("L", "P")
    return image.format in _BYTES or image.info.get("bit_depth") == 8  # of HEIC


def fitted(values: np.ndarray, op: Decode) -> np.ndarray:
    """Numbers (height, width, channels) as a Decode of uint16 or float32 wants them."""
    if op.dtype == "uint16" and values.dtype.newbyteorder("=") != np.uint16:
        raise OSError(
            f'unsupported: samples of {values.dtype.name}, and Decode(dtype="uint16") takes files of'
            ' 16 bits; dtype="float32" takes any'
        )
    given = values.shape[2]
    wanted = op.channels
    if given != wanted:
        color = values[..., :-1] if given in (2, 4) else values
        if wanted == 4:
            alpha = values[..., -1:] if given == 2 else _opaque(values)
            values = np.concatenate([*[color] * (3 // color.shape[2]), alpha], axis=2)
        elif wanted == 3 and given == 1:
            values = np.repeat(values, 3, axis=2)
        else:
            has = {1: 1, 3: 3}.get(given, 4)
            raise OSError(
                f"unsupported: {given} channels of {values.dtype.name}, and Decode takes {wanted};"
                f" write Decode(channels={has})"
            )
    return np.ascontiguousarray(values, op.dtype)


def _opaque(values: np.ndarray) -> np.ndarray:
    """Alpha of images without it."""
    most = np.iinfo(values.dtype).max if values.dtype.kind == "u" else 1
    return np.full_like(values[..., :1], most)
