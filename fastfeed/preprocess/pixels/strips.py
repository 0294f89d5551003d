"""Scaling an image strip by strip, so that it is never whole in memory as plain RGB.

Pillow scales rows first, then columns. Done by hand, the first pass needs a strip at a time, and the second one an
image that is as narrow as the result already: the same pixels.
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

__all__ = ["STRIP_PIXELS", "color_model", "flattener", "rows_read", "scale_strips"]

STRIP_PIXELS = 1 << 20
_REACH = {"bilinear": 1, "bicubic": 2, "lanczos": 3, "box": 0.5}  # of the filters, in pixels of the result
_GRAY = ("1", "L", "LA", "La")
Box = tuple[float, float, float, float]


def color_model(mode: str) -> str:
    """What an image's numbers are: "L", "RGB", "CMYK"; "LAB" needs no profile."""
    if mode in _GRAY or mode.startswith("I"):
        return "L"
    return mode if mode in ("CMYK", "LAB") else "RGB"


def rows_read(top: float, height: float, all: int, wanted: int, filter: str) -> tuple[int, int]:
    """[first, last) of `all` rows that the filter looks at, to make `wanted` rows of `height` from `top` on."""
    reach = _REACH[filter] * max(height / wanted, 1) + 2
    return max(math.floor(top - reach), 0), min(math.ceil(top + height + reach), all)


def scale_strips(
    rows: Callable[[int, int], Image.Image], shape: tuple[int, int], box: Box, size: tuple[int, int], filter: str
) -> Image.Image:
    """A box (top, left, height, width) of an image of this shape, (height, width), as `size`, (height, width).

    rows: (top, count) -> these rows, ready to be scaled; asked for from top to bottom.
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
            # from the very top, though nothing looks at it: fractions of rows then add up as in Pillow
            narrow = Image.new(part.mode, (size[1], last))
        narrow.paste(part, (0, at))
    return resampled(narrow, (top, 0, height, size[1]), size, filter)


def flattener(
    alpha: bool, profile: Profile, matte: tuple[int, int, int], bits: int = 16
) -> Callable[[Any], Image.Image]:
    """strip -> L, RGB or CMYK of 8 bits without transparency, in the profile's colors.

    Transparent pixels show the matte. In sRGB, that is: it is laid under in whatever color becomes it later. bits: that
    samples of 16 use.
    """
    under = profile.source_color(matte)

    def flat(strip: Any) -> Image.Image:
        if strip.mode == "F":
            raise Unsupported("floating-point samples")
        key = strip.info.get("transparency")
        if strip.mode.startswith("I"):
            strip, clear = _eight_bits(strip, key, bits)
        else:
            clear = None
            if alpha or key is not None:
                strip = (strip.convert("LA") if strip.mode == "La" else strip).convert("RGBA")
                clear = strip.getchannel("A")
        if clear is None:
            if strip.mode in ("RGB", "L") or strip.mode == profile.mode:
                return strip
            return strip.convert("L" if strip.mode == "1" else "RGB")
        if profile.mode == "L":  # the matte need not be gray, so what lies on it is converted here already
            strip = profile.converted(strip.getchannel(0))
        plain = Image.new("RGB", strip.size, under)
        plain.paste(strip.convert("RGB"), mask=clear)
        return plain

    return flat


def _eight_bits(strip: Any, key: Any, bits: int) -> tuple[Image.Image, Image.Image | None]:
    """The high byte of so many bits (Pillow's convert would clip nearly all to white), and what is not transparent."""
    wide = np.asarray(strip)
    if wide.dtype != np.uint16 and wide.size and (wide.min() < 0 or wide.max() > 65_535):
        raise Unsupported("samples of more than 16 bits")
    clear = None if key is None else Image.fromarray(np.where(wide == key, 0, 255).astype(np.uint8))
    return Image.fromarray((wide >> (bits - 8)).astype(np.uint8)), clear
