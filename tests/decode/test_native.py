"""The JPEG kernel's pixels: every layout, window, filter, orientation and flip against float64."""

from __future__ import annotations

import itertools
import zlib

import jpegs
import numpy as np
import pytest
from jpegs import FILTERS, LAYOUTS, NEVER, STATUS, decode, decode_one, encoded, resized, shown, textured
from PIL import Image

pytestmark = pytest.mark.skipif(jpegs.native is None, reason=jpegs.NO_KERNEL)

ROUNDING = 0.51  # levels: to the nearest integer, and float32 sums
SHAPES = ((1, 1), (1, 17), (17, 1), (7, 9), (15, 17), (16, 16), (17, 33), (40, 83))


def windows(height: int, width: int) -> list[tuple[float, float, float, float]]:
    """The whole, each edge and corner, fractions of pixels, single pixels, lines."""
    h, w = (height + 1) // 2, (width + 1) // 2
    return [
        (0, 0, height, width),
        (0, 0, h, w),
        (height - h, width - w, h, w),
        (0, width - w, h, w),
        (height - h, 0, h, w),
        (height / 4, width / 4, height / 2, width / 2),
        (height * 0.13, width * 0.31, height * 0.77, width * 0.53),
        (0, width - 1, height, 1),
        (height - 1, 0, 1, width),
        (height - 1, width - 1, 1, 1),
        (height // 2, width // 2, 1, 1),
        (height // 3, width // 3, 0.4, 0.3),
    ]


def sizes(box) -> set[tuple[int, int]]:
    """Same size, one pixel, three times as many (centers of outputs then meet centers of pixels), fewer."""
    h, w = max(round(box[2]), 1), max(round(box[3]), 1)
    return {(h, w), (1, 1), (3 * h, 3 * w), (max(h * 2 // 5, 1), max(w * 2 // 5, 1)), (5, 3)}


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pixels_are_those_of_the_filter(layout, filter):
    for seed, (height, width) in enumerate(SHAPES):
        blob = LAYOUTS[layout](height, width, seed)
        pixels = shown(blob)
        assert pixels.shape == (height, width, 3)
        for box in windows(height, width):
            for size in sizes(box):
                got = decode_one(blob, box, size, filter, enlarge=NEVER)
                assert not isinstance(got, str), (height, width, box, got)
                off = np.abs(got - resized(pixels, box, size, filter)).max()
                assert off <= ROUNDING, f"{height}x{width} {box} -> {size}: {off:.2f} levels"
