"""Decides which files can be passed through unchanged: those that every reader decodes as it would
a new file.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from PIL import JpegImagePlugin, PngImagePlugin

from fastfeed.preprocess.pixels.image_info import ImageInfo

__all__ = ["can_pass_through", "decodes_alike"]

_PNG_END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
_ANIMATED_WEBP = 0x02  # flag in VP8X
_ROUNDING = 3  # levels of 255
_STRIP = 256  # rows compared at once
_HEAD = 1 << 16  # bytes of a JPEG to search for a multi-picture index; no segment is longer


def can_pass_through(blob: bytes, info: ImageInfo, image: str) -> bool:
    """Whether the headers allow passing a file through as `image` (of recipe.IMAGES); pixels are
    checked separately.

    It must be upright, 8-bit RGB without transparency, in sRGB or without a profile, a single
    image, and end there.
    """
    kind = _KINDS.get(info.format)
    if kind is None or kind[0] != image:
        return False
    upright = (
        info.orientation == 1
        and info.mode == "RGB"
        and not info.alpha
        and info.icc in ("none", "sRGB")
    )
    return upright and kind[1](blob, info)


def decodes_alike(blob: bytes, pixels: np.ndarray) -> bool:
    """Whether Pillow decodes a JPEG to the kernel's pixels, uint8 (height, width, 3).

    It does not if a progressive file lacks scans, which some readers smooth over, or if Pillow
    fails on segments that the kernel skips.
    """
    height, width = pixels.shape[:2]
    try:
        image = JpegImagePlugin.JpegImageFile(io.BytesIO(blob), "")  # as other programs open it
        if image.mode != "RGB" or image.size != (width, height):
            return False
        return all(
            _is_close(
                np.asarray(image.crop((0, top, width, min(top + _STRIP, height)))),
                pixels[top : top + _STRIP],
            )
            for top in range(0, height, _STRIP)
        )
    except Exception:  # hostile bytes make plugins raise anything
        return False


def _is_close(left: np.ndarray, right: np.ndarray) -> bool:
    return int((np.maximum(left, right) - np.minimum(left, right)).max()) <= _ROUNDING


def _jpeg(blob: bytes, info: ImageInfo) -> bool:
    """Baseline or progressive Huffman coding, which the kernel decodes; it detects more damage than
    Pillow.
    """
    return (
        info.path == "kernel" and blob[-2:] == b"\xff\xd9" and b"MPF\x00" not in bytes(blob[:_HEAD])
    )


def _png(blob: bytes, info: ImageInfo) -> bool:
    """Other readers may fail on texts and profiles that are skipped here."""
    if blob[-12:] != _PNG_END or b"acTL" in bytes(blob[: blob.find(b"IDAT")]):
        return False
    try:
        PngImagePlugin.PngImageFile(io.BytesIO(blob)).load()
    except Exception:  # hostile bytes make plugins raise anything
        return False
    return True


def _webp(blob: bytes, info: ImageInfo) -> bool:
    animated = blob[12:16] == b"VP8X" and blob[20] & _ANIMATED_WEBP
    return not animated and int.from_bytes(blob[4:8], "little") + 8 == len(blob)


_KINDS: dict[str, tuple[str, Callable[[bytes, ImageInfo], bool]]] = {
    "JPEG": ("jpeg", _jpeg),
    "PNG": ("png", _png),
    "WEBP": ("webp", _webp),
}
