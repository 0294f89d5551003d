"""Scales an image strip by strip, so that it is never in memory as full-size RGB.

Pillow scales horizontally first, then vertically. Here the first pass works on one strip at a time, and the second on
an image of the output's width, with the same result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.decode.pillow import Unsupported
from fastfeed.decode.pixels import resampled
from fastfeed.preprocess.pixels.color import Profile

__all__ = ["STRIP_PIXELS", "color_model", "converts_first", "flattener", "rows_read", "scale_strips"]

STRIP_PIXELS = 1 << 20
_SUPPORT = {"bilinear": 1, "bicubic": 2, "lanczos": 3, "box": 0.5}  # of the filters, in output pixels
_GRAY = ("1", "L", "LA", "La")
Box = tuple[float, float, float, float]


def color_model(mode: str) -> str:
    """Color model of a Pillow mode: "L", "RGB", "CMYK", or "LAB", which needs no profile."""
    if mode in _GRAY or mode.startswith("I"):
        return "L"
    return mode if mode in ("CMYK", "LAB") else "RGB"


def rows_read(top: float, height: float, total: int, out_rows: int, filter: str) -> tuple[int, int]:
    """[first, last) of `total` rows that the filter reads to scale `height` rows from `top` on to `out_rows` rows."""
    support = _SUPPORT[filter] * max(height / out_rows, 1) + 2
    return max(math.floor(top - support), 0), min(math.ceil(top + height + support), total)


def scale_strips(
    rows: Callable[[int, int], Image.Image], shape: tuple[int, int], box: Box, size: tuple[int, int], filter: str
) -> Image.Image:
    """Scale a box (top, left, height, width) of an image of `shape` (height, width) to `size` (height, width).

    rows: (top, count) -> these rows, ready to scale; called from top to bottom.
    """
    top, left, height, width = box
    first, last = rows_read(top, height, shape[0], size[0], filter)
    step = max(STRIP_PIXELS // shape[1], 1)
    narrow: Any = None
    for at in range(first, last, step):
        count = min(step, last - at)
        strip = rows(at, count)
        part = resampled(strip, (0, left, count, width), (count, size[1]), filter)
        if narrow is None:
            # starts at the top row, though it is not read: row fractions then add up as in Pillow
            narrow = Image.new(part.mode, (size[1], last))
        narrow.paste(part, (0, at))
    return resampled(narrow, (top, 0, height, size[1]), size, filter)


def converts_first(alpha: bool, profile: Profile) -> bool:
    """Whether `flattener` converts colors to sRGB; else that is done with scaled pixels, which are fewer."""
    return profile.linear or (alpha and profile.transform is not None)


def flattener(
    alpha: bool, profile: Profile, matte: tuple[int, int, int], bits: int = 16
) -> Callable[[Any], Image.Image]:
    """A function strip -> 8-bit L, RGB or CMYK without transparency, in sRGB if `converts_first`, else as stored.

    Colors are blended with the matte as sRGB levels, as browsers, Pillow and libvips do. Blending comes before scaling,
    which equals scaling premultiplied colors: those of transparent pixels do not count. bits: significant bits of
    16-bit samples.
    """
    first = converts_first(alpha, profile)

    def flat(strip: Any) -> Image.Image:
        if strip.mode == "F":
            raise Unsupported("floating-point samples")
        key = strip.info.get("transparency")
        if strip.mode.startswith("I"):
            strip, alpha_mask = _eight_bits(strip, key, bits)
        else:
            alpha_mask = None
            if alpha or key is not None:
                strip = (strip.convert("LA") if strip.mode == "La" else strip).convert("RGBA")
                alpha_mask = strip.getchannel("A")
        if alpha_mask is None:
            if strip.mode not in ("RGB", "L") and strip.mode != profile.mode:
                strip = strip.convert("L" if strip.mode == "1" else "RGB")
            return profile.converted(strip) if first else strip
        if first:
            strip = profile.converted(strip.getchannel(0) if profile.mode == "L" else strip.convert("RGB"))
        plain = Image.new("RGB", strip.size, matte)
        plain.paste(strip.convert("RGB"), mask=alpha_mask)
        return plain

    return flat


def _eight_bits(strip: Any, key: Any, bits: int) -> tuple[Image.Image, Image.Image | None]:
    """The high byte of `bits` bits (Pillow would clip nearly all to white), and the alpha mask."""
    wide = np.asarray(strip)
    if wide.dtype != np.uint16 and wide.size and (wide.min() < 0 or wide.max() > 65_535):
        raise Unsupported("samples of more than 16 bits")
    alpha_mask = None if key is None else Image.fromarray(np.where(wide == key, 0, 255).astype(np.uint8))
    return Image.fromarray((wide >> (bits - 8)).astype(np.uint8)), alpha_mask
