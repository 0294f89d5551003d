"""Scales an image strip by strip, so that it is never in memory as full-size RGB.

RGB and gray are scaled by the native extension, as they arrive. Pillow, which does the rest, scales
strips horizontally, then their result vertically: the same pixels as in one go.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.decode.pillow import Unsupported
from fastfeed.decode.pixels import resampled, rows_read
from fastfeed.ops.base import FILTERS
from fastfeed.preprocess.pixels.color import Profile
from fastfeed.runtime.extension import extension, is_built

STRIP_PIXELS = 1 << 20
_GRAY = ("1", "L", "LA", "La")
Box = tuple[float, float, float, float]


def color_model(mode: str) -> str:
    """Color model of a Pillow mode: "L", "RGB", "CMYK", or "LAB", which needs no profile."""
    if mode in _GRAY or mode.startswith("I"):
        return "L"
    return mode if mode in ("CMYK", "LAB") else "RGB"


def scale_strips(
    rows: Callable[[int, int], Image.Image],
    shape: tuple[int, int],
    box: Box,
    size: tuple[int, int],
    filter: str,
    seconds: dict[str, float] | None = None,
) -> Image.Image:
    """Scale a box (top, left, height, width) of an image of this shape to `size`.

    rows: (top, count) -> these rows, called from top to bottom. seconds: "resize" is increased.
    """
    spent = 0.0
    first, last = rows_read(box[0], box[2], shape[0], size[0], filter)
    step = max(STRIP_PIXELS // shape[1], 1)
    scaler: _Pillow | _Kernel | None = None
    for at in range(first, last, step):
        strip = rows(at, min(step, last - at))
        if scaler is None:
            kind = _Kernel if strip.mode in ("RGB", "L") and is_built() else _Pillow
            scaler = kind(shape, box, size, filter)
        begun = perf_counter()
        scaler.push(at, strip)
        spent += perf_counter() - begun
    assert scaler is not None
    if seconds is not None:
        seconds["resize"] += spent
    return scaler.result()


class _Kernel:
    """Shrinks RGB and L: rows are added up where they belong, in floats."""

    def __init__(
        self, shape: tuple[int, int], box: Box, size: tuple[int, int], filter: str
    ) -> None:
        top = max(box[0], 0.0)
        left = max(box[1], 0.0)
        height, width = (min(box[k] + box[k + 2], shape[k]) - max(box[k], 0.0) for k in (0, 1))
        self._pixels = np.empty((*size, 3), np.uint8)
        self._mode = "RGB"
        self._scaler = extension().Scaler(
            *shape, top, left, height, width, self._pixels, FILTERS.index(filter)
        )

    def push(self, top: int, strip: Image.Image) -> None:
        first = max(self._scaler.first - top, 0)
        last = min(self._scaler.last - top, strip.height)
        if first < last:
            pixels = np.asarray(strip)
            self._scaler.push(pixels.reshape(strip.height, strip.width, -1)[first:last])
        self._mode = strip.mode

    def result(self) -> Image.Image:
        is_rgb = self._mode == "RGB"
        return Image.fromarray(self._pixels if is_rgb else self._pixels[:, :, 0].copy())


class _Pillow:
    """Shrinks images of any mode."""

    def __init__(
        self, shape: tuple[int, int], box: Box, size: tuple[int, int], filter: str
    ) -> None:
        self._last = rows_read(box[0], box[2], shape[0], size[0], filter)[1]
        self._box = box
        self._size = size
        self._filter = filter
        self._narrow: Any = None

    def push(self, top: int, strip: Image.Image) -> None:
        _, left, _, width = self._box
        size = strip.height, self._size[1]
        part = resampled(strip, (0, left, strip.height, width), size, self._filter)
        if self._narrow is None:
            # starts at the top row, though it is not read: row fractions then add up as in Pillow
            self._narrow = Image.new(part.mode, (self._size[1], self._last))
        self._narrow.paste(part, (0, top))

    def result(self) -> Image.Image:
        top, _, height, _ = self._box
        return resampled(self._narrow, (top, 0, height, self._size[1]), self._size, self._filter)


def converts_first(alpha: bool, profile: Profile) -> bool:
    """True if `flattener` converts colors; else scaled pixels are converted."""
    return profile.linear or (alpha and profile.transform is not None)


def flattener(
    alpha: bool, profile: Profile, matte: tuple[int, int, int]
) -> Callable[[Any], Image.Image]:
    """A function strip -> 8-bit L, RGB or CMYK without transparency.

    Colors are blended with the matte as sRGB levels, as browsers, Pillow and libvips do, and before
    scaling, so that colors of transparent pixels do not count.
    """
    first = converts_first(alpha, profile)

    def flat(strip: Any) -> Image.Image:
        if strip.mode == "F":
            raise Unsupported("floating-point samples")
        key = strip.info.get("transparency")
        alpha_mask = None
        if strip.mode.startswith("I"):
            strip = _eight_bits(strip)
        elif alpha or key is not None:
            strip = (strip.convert("LA") if strip.mode == "La" else strip).convert("RGBA")
            alpha_mask = strip.getchannel("A")
        if alpha_mask is None:
            if strip.mode not in ("RGB", "L") and strip.mode != profile.mode:
                strip = strip.convert("L" if strip.mode == "1" else "RGB")
            return profile.converted(strip) if first else strip
        if first:
            is_gray = profile.mode == "L"
            strip = profile.converted(strip.getchannel(0) if is_gray else strip.convert("RGB"))
        plain = Image.new("RGB", strip.size, matte)
        plain.paste(strip.convert("RGB"), mask=alpha_mask)
        return plain

    return flat


def _eight_bits(strip: Any) -> Image.Image:
    """The high byte of 16 bits: Pillow would clip nearly all to white."""
    wide = np.asarray(strip)
    if wide.dtype != np.uint16 and wide.size and (wide.min() < 0 or wide.max() > 65_535):
        raise Unsupported("samples of more than 16 bits")
    return Image.fromarray((wide >> 8).astype(np.uint8))
