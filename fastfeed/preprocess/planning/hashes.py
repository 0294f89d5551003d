"""Content hash and perceptual hash (dHash) of a photograph."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fastfeed.decode.base import Bad
from fastfeed.preprocess.pixels.cost import cost
from fastfeed.preprocess.pixels.decode import Rasterizer
from fastfeed.preprocess.pixels.image_info import ImageInfo, image_info

__all__ = ["ImageHasher", "dhash", "sha256_prefix"]

# cells that are compared; each is the mean of _CELL x _CELL pixels of the reduced photograph
ROWS, COLUMNS = (
    8,
    9,
)
_CELL = 8
_REDUCED = (ROWS * _CELL, COLUMNS * _CELL)
_LUMA = np.array([299, 587, 114], np.int64)  # BT.601, thousandths
_LEVEL = 1000 * _CELL * _CELL  # a gray level of 255, in sums over a cell
_MIN_STEP, _MIN_STEPS = 2, 20  # 20 of 64 differences must be >= 2 levels: else most bits are noise
_MIN_BORDERS = 16  # of 112 neighboring bits that must differ: else it is a gradient or a vignette


def sha256_prefix(blob: Any) -> np.ndarray:
    """The first 16 bytes of the SHA-256: uint64, shape (2,)."""
    return np.frombuffer(hashlib.sha256(blob).digest(), "<u8", 2)


def dhash(pixels: np.ndarray) -> tuple[int, bool]:
    """64 bits, row by row: is a cell brighter than its left neighbor?

    And whether the photograph is too uniform.

    pixels: uint8 (64, 72, 3), the photograph reduced with antialiasing. After Krawetz, "Kind of
    Like That" (2013).
    """
    gray = pixels.astype(np.int64) @ _LUMA
    cells = gray.reshape(ROWS, _CELL, COLUMNS, _CELL).sum(axis=(1, 3))
    steps = np.diff(cells, axis=1)
    bits = steps > 0
    borders = int((bits[1:] != bits[:-1]).sum() + (bits[:, 1:] != bits[:, :-1]).sum())
    plain = int((abs(steps) >= _MIN_STEP * _LEVEL).sum()) < _MIN_STEPS or borders < _MIN_BORDERS
    return int.from_bytes(np.packbits(bits).tobytes(), "big"), plain


class ImageHasher:
    """Computes dHashes of files: upright, on white, in sRGB, downscaled while decoding."""

    def __init__(self, max_pixels: int) -> None:
        self._rasterizer = Rasterizer(filter="area", max_pixels=max_pixels)
        self._max_pixels = max_pixels

    def inspect(self, blob: bytes) -> ImageInfo | Bad:
        """Information from the file's header."""
        return image_info(blob, self._max_pixels)

    def need(self, blob: bytes, info: ImageInfo) -> int:
        """Peak memory of `dhash` in bytes, in addition to the file."""
        return cost(
            info, len(blob), (0.0, 0.0, float(info.height), float(info.width)), _REDUCED, "area"
        )

    def dhash(self, blob: bytes, info: ImageInfo) -> tuple[int, bool] | Bad:
        """As the function `dhash`."""
        box = (0.0, 0.0, float(info.height), float(info.width))
        pixels = self._rasterizer.pixels(blob, info, box, _REDUCED)
        return pixels if isinstance(pixels, Bad) else dhash(pixels)
