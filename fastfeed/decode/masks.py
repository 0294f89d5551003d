"""Segmentation masks from PNG files: raw values, without color."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from fastfeed.decode.base import DecodeFailure
from fastfeed.decode.formats.png import PngFile, png_intact
from fastfeed.decode.pillow import failure_from_error, unwarned
from fastfeed.decode.sniff import sniff
from fastfeed.runtime.placement import lacks_memory

_MODES = ("L", "P", "1")  # numbers, indices of a palette, 0 and 1


def mask_pixels(content: Any, size: tuple[int, int]) -> np.ndarray | DecodeFailure:
    """uint8 (height, width) of a PNG's bytes, or of an array; a failure if the size differs.

    Never raises for the content of a file, and allocates nothing for a wrong size.
    """
    if hasattr(content, "shape"):  # of a map of classes, which is drawn here
        shape = (int(content.shape[0]), int(content.shape[1]))
        return np.asarray(content) if shape == size else _size_mismatch(shape, size)
    try:
        format = sniff(content)
        if format != "PNG":
            return DecodeFailure(
                "not_image" if format is None else "unsupported_format",
                f"its mask is not a PNG but {format}",
            )
        image: Any = unwarned(lambda: PngFile(io.BytesIO(content), ""))
        image.info.pop("transparency", None)  # a number like others
        if (image.height, image.width) != size:
            return _size_mismatch((image.height, image.width), size)
        if image.mode not in _MODES:
            return DecodeFailure(
                "unsupported_format",
                f"its mask has colors ({image.mode}); it must be gray or with a palette",
            )
        if not png_intact(content):
            return DecodeFailure("corrupt", "its mask: a checksum of the pixel data is wrong")
        return unwarned(lambda: np.asarray(image)).astype(np.uint8, copy=False)
    except Exception as error:  # decoders may raise anything for malicious bytes
        if lacks_memory(error):  # says nothing about this mask
            raise MemoryError(f"{error}") from error
        bad = failure_from_error(error, content, "PNG")
        return DecodeFailure(bad.reason, f"its mask: {bad.detail}")


def _size_mismatch(shape: tuple[int, int], size: tuple[int, int]) -> DecodeFailure:
    return DecodeFailure(
        "corrupt",
        f"its mask has {shape[0]}x{shape[1]} pixels (height x width), the image"
        f" {size[0]}x{size[1]}",
    )
