"""Applies lookup tables to bytes, and counts histograms: by the kernel where it is quicker, else
OpenCV.
"""

from __future__ import annotations

import importlib
from typing import Any

import cv2
import numpy as np

from fastfeed.decode import is_built

__all__ = ["NATIVE", "WIDE", "convert", "count", "look_up"]

NATIVE: Any = importlib.import_module("fastfeed._native") if is_built() else None
# AVX-512 VBMI looks 64 bytes up in two instructions, which is faster than arithmetic; elsewhere
# OpenCV's will do
WIDE = bool(NATIVE and NATIVE.WIDE_LOOK_UPS)


def look_up(image: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Every byte replaced by what the table holds for it, in place; table uint8 (256,) or (256,
    channels).
    """
    if WIDE:
        NATIVE.look_up(image, table, image)
    else:
        cv2.LUT(image, table if table.ndim == 1 else table[None], dst=image)
    return image


def convert(image: np.ndarray, table: np.ndarray, out: np.ndarray, planar: bool) -> None:
    """Apply tables of float32 or float16 (256, channels), whatever their numbers, into an array of
    their dtype.

    out: contiguous, (height, width, channels), or if planar (channels, height, width).
    """
    if WIDE:
        NATIVE.convert(image, table, out, planar)
        return
    if (
        table.dtype == np.float16
    ):  # of which OpenCV knows nothing; for a look-up they are any 16 bits
        table, out = table.view(np.int16), out.view(np.int16)
    if planar:
        for c, plane in enumerate(out):
            cv2.LUT(np.ascontiguousarray(image[:, :, c]), table[None, :, c], dst=plane)
    else:
        cv2.LUT(image, table[None], dst=out)


def count(image: np.ndarray) -> np.ndarray:
    """How many bytes of each channel have each value: uint32 (channels, 256)."""
    counts = np.empty((image.shape[2], 256), np.uint32)
    if NATIVE:
        NATIVE.count(image, counts)
    else:
        for c in range(len(counts)):
            counts[c] = cv2.calcHist([image], [c], None, [256], [0, 256]).ravel()
    return counts
