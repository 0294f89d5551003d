"""Which files may be passed on as they are: those in which every reader sees what it would see in a new one."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np

from fastfeed.decode.pillow import OPEN
from fastfeed.preprocess.pixels.decode import ImageInfo

__all__ = ["can_pass_through", "decodes_alike"]

_PNG_END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
_ANIMATED_WEBP = 0x02  # in the flags of VP8X
_ROUNDING = 3  # levels of 255
_BAND = 256  # rows compared at a time
_HEAD = 1 << 16  # bytes of a JPEG in which a list of several pictures is looked for; a segment is no longer


def can_pass_through(blob: bytes, seen: ImageInfo, image: str) -> bool:
    """Whether its headers speak for passing a file on as `image` (of recipe.IMAGES). Pixels are another question.

    Upright, 8-bit RGB without transparency, in sRGB or without a profile, one picture, and nothing after its end.
    """
    known = _KINDS.get(seen.format)
    if known is None or known[0] != image:
        return False
    upright = seen.orientation == 1 and seen.mode == "RGB" and not seen.alpha and seen.icc in ("none", "sRGB")
    return upright and known[1](blob, seen)


def decodes_alike(blob: bytes, pixels: np.ndarray) -> bool:
    """Whether Pillow sees in a JPEG what the kernel saw, uint8 (height, width, 3).

    It does not where a progressive file lacks scans, which some readers smooth over, or stumbles on segments that the
    kernel passes over.
    """
    height, width = pixels.shape[:2]
    try:
        image = OPEN["JPEG"](io.BytesIO(blob), "")
        if image.mode != "RGB" or image.size != (width, height):
            return False
        return all(
            _near(np.asarray(image.crop((0, top, width, min(top + _BAND, height)))), pixels[top : top + _BAND])
            for top in range(0, height, _BAND)
        )
    except Exception:  # hostile bytes make plugins raise anything
        return False


def _near(one: np.ndarray, other: np.ndarray) -> bool:
    return int((np.maximum(one, other) - np.minimum(one, other)).max()) <= _ROUNDING


def _jpeg(blob: bytes, seen: ImageInfo) -> bool:
    """Huffman coding, baseline or progressive: what the kernel knows, which sees more faults than Pillow does."""
    return seen.path == "kernel" and blob[-2:] == b"\xff\xd9" and b"MPF\x00" not in bytes(blob[:_HEAD])


def _png(blob: bytes, seen: ImageInfo) -> bool:
    return blob[-12:] == _PNG_END and b"acTL" not in bytes(blob[: blob.find(b"IDAT")])


def _webp(blob: bytes, seen: ImageInfo) -> bool:
    animated = blob[12:16] == b"VP8X" and blob[20] & _ANIMATED_WEBP
    return not animated and int.from_bytes(blob[4:8], "little") + 8 == len(blob)


_KINDS: dict[str, tuple[str, Callable[[bytes, ImageInfo], bool]]] = {
    "JPEG": ("jpeg", _jpeg),
    "PNG": ("png", _png),
    "WEBP": ("webp", _webp),
}
