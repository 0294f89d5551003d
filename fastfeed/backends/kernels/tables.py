"""Color ops that replace each byte by another: only their tables are computed here."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from fastfeed.ops.color import (
    LUT,
    AutoContrast,
    Brightness,
    Contrast,
    Equalize,
    Gamma,
    Invert,
    Posterize,
    Solarize,
)

__all__ = ["MEASURED", "TABLES"]

_BYTES = np.arange(256)
_SAME = np.arange(256, dtype=np.uint8)
_FLOATS = np.arange(256, dtype=np.float32)
_NEGATIVE = _SAME[::-1].copy()


def blend(start: int, factor: float) -> np.ndarray:
    """From a constant to each byte, and beyond: Pillow's ImagingBlend, to the bit. It computes in float32 and cuts."""
    return np.clip(np.float32(start) + np.float32(factor) * (_FLOATS - np.float32(start)), 0, 255).astype(np.uint8)


def brightness(op: Brightness, values: dict[str, Any], row: int) -> np.ndarray:
    return blend(0, values["factor"][row])


def solarize(op: Solarize, values: dict[str, Any], row: int) -> np.ndarray:
    return np.where(values["threshold"][row] > _BYTES, _SAME, _NEGATIVE)


def posterize(op: Posterize, values: dict[str, Any], row: int) -> np.ndarray:
    return _SAME & np.uint8(0xFF00 >> int(values["bits"][row]) & 0xFF)


def invert(op: Invert, values: dict[str, Any], row: int) -> np.ndarray:
    return _NEGATIVE


def gamma(op: Gamma, values: dict[str, Any], row: int) -> np.ndarray:
    """As torchvision: 255.999 times the power, cut."""
    return ((255 + 1 - 1e-3) * (_BYTES / 255.0) ** values["gamma"][row]).astype(np.uint8)


def look_up_table(op: LUT, values: dict[str, Any], row: int) -> np.ndarray:
    if op.per_channel:
        return np.array([list(row) for row in op.table], np.uint8).T.copy()
    return np.frombuffer(bytes(op.table), np.uint8)


def contrast(op: Contrast, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    gray = image if image.shape[2] == 1 else cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    return blend(int(cv2.mean(gray)[0] + 0.5), values["factor"][row])


def equalize(op: Equalize, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    table = np.empty((256, image.shape[2]), np.uint8)
    for c in range(image.shape[2]):
        table[:, c] = _equal(cv2.calcHist([image], [c], None, [256], [0, 256]).ravel().astype(np.int64))
    return table


def _equal(counts: np.ndarray) -> np.ndarray:
    """ImageOps.equalize on one histogram."""
    used = np.flatnonzero(counts)
    total = int(counts.sum())
    step = (total - int(counts[used[-1]])) // 255
    if not step:
        return _SAME
    before = np.cumsum(counts) - counts
    return np.minimum((step // 2 + before) // step, 255).astype(np.uint8)


def autocontrast(op: AutoContrast, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    table = np.empty((256, image.shape[2]), np.uint8)
    low = cv2.reduce(image, 0, cv2.REDUCE_MIN).min(axis=(0, 1))
    high = cv2.reduce(image, 0, cv2.REDUCE_MAX).max(axis=(0, 1))
    for c, (lo, hi) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        if hi <= lo:
            table[:, c] = _SAME
        else:
            scale = 255.0 / (hi - lo)
            table[:, c] = np.clip(_BYTES * scale + -lo * scale, 0, 255).astype(np.uint8)
    return table


TABLES = {
    Brightness: brightness,
    Solarize: solarize,
    Posterize: posterize,
    Invert: invert,
    Gamma: gamma,
    LUT: look_up_table,
}
MEASURED = {Contrast: contrast, Equalize: equalize, AutoContrast: autocontrast}
