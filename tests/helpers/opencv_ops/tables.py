"""Color ops that replace each byte by another."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from fastfeed.ops.color import Brightness, Contrast
from fastfeed.ops.levels import (
    LUT,
    AutoContrast,
    Equalize,
    Gamma,
    Invert,
    Posterize,
    Solarize,
    SolarizeAdd,
)
from helpers.opencv_ops.lookup import count
from helpers.opencv_ops.scratch import split

_BYTES = np.arange(256)
_SAME = np.arange(256, dtype=np.uint8)
_PRODUCTS = _BYTES.astype(np.uint16) * 255
_SHARES = _BYTES / 255.0
_NEGATIVE = _SAME[::-1].copy()
_MASKS = np.array([0xFF00 >> bits & 0xFF for bits in range(9)], np.uint8)
# Pillow cuts off where OpenCV rounds: half a level less, but whole numbers must stay what they are,
# so by more than float32's errors in a product and a sum.
_CUT = 0.5 - 2**-14


def line(image: np.ndarray, slope: float, shift: float) -> np.ndarray:
    """slope * byte + shift, cut and clipped; slope >= 0. In place."""
    if shift < 0:  # the faster one would take the absolute value
        return cv2.addWeighted(image, slope, image, 0, shift - _CUT, dst=image)
    return cv2.convertScaleAbs(image, dst=image, alpha=slope, beta=shift - _CUT)


def brightness_table(op: Brightness, values: dict[str, Any], row: int) -> np.ndarray:
    return line(_SAME[None].copy(), float(values["factor"][row]), 0)[0]


def _toward(values: dict[str, Any], row: int, image: np.ndarray) -> tuple[float, float]:
    """Slope and shift of Contrast.

    The mean of the grays is that of Pillow but for not rounding each of them.
    """
    means = cv2.mean(image)
    gray = (
        means[0]
        if image.shape[2] == 1
        else (19595 * means[0] + 38470 * means[1] + 7471 * means[2]) / 65536
    )
    factor = float(values["factor"][row])
    return factor, int(gray + 0.5) * (1 - factor)


def contrast_table(op: Contrast, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    return line(_SAME[None].copy(), *_toward(values, row, image))[0]


def solarize_table(op: Solarize, values: dict[str, Any], row: int) -> np.ndarray:
    return np.where(values["threshold"][row] > _BYTES, _SAME, _NEGATIVE)


def solarize_add_table(op: SolarizeAdd, values: dict[str, Any], row: int) -> np.ndarray:
    more = np.minimum(_BYTES + values["amount"][row], 255).astype(np.uint8)
    return np.where(op.threshold > _BYTES, more, _SAME)


def posterize_table(op: Posterize, values: dict[str, Any], row: int) -> np.ndarray:
    return _SAME & _MASKS[values["bits"][row]]


def invert_table(op: Invert, values: dict[str, Any], row: int) -> np.ndarray:
    return _NEGATIVE


def gamma_table(op: Gamma, values: dict[str, Any], row: int) -> np.ndarray:
    """As torchvision: 255.999 times the power, cut."""
    return ((255 + 1 - 1e-3) * _SHARES ** values["gamma"][row]).astype(np.uint8)


def own_table(op: LUT, values: dict[str, Any], row: int) -> np.ndarray:
    if op.per_channel:
        return np.frombuffer(b"".join(map(bytes, op.table)), np.uint8).reshape(3, 256).T.copy()
    return np.frombuffer(bytes(op.table), np.uint8)


def equalize_table(op: Equalize, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Tables of ImageOps.equalize.

    Counts are whole numbers in float64, whose division is quicker.
    """
    counts = count(image).astype(np.float64)
    pixels = image.shape[0] * image.shape[1]
    steps = np.array(
        [[(pixels - int(histogram[histogram.nonzero()[0][-1]])) // 255] for histogram in counts]
    )
    before = counts.cumsum(axis=1)
    before -= counts
    before += steps // 2
    before /= np.maximum(steps, 1)
    equal = np.minimum(before, 255, out=before).astype(np.uint8)
    equal[steps[:, 0] == 0] = _SAME
    return np.ascontiguousarray(equal.T)


def _stretch(low: int, high: int) -> np.ndarray:
    """The table of ImageOps.autocontrast for one channel, in integers, where Pillow's floats
    sometimes miss one.
    """
    if high <= low:
        return _SAME
    table = np.zeros(256, np.uint8)
    table[low : high + 1] = _PRODUCTS[: high - low + 1] // np.uint16(high - low)
    table[high:] = 255
    return table


def autocontrast_table(
    op: AutoContrast, values: dict[str, Any], row: int, image: np.ndarray
) -> np.ndarray:
    ends = [cv2.minMaxLoc(plane)[:2] for plane in split(image)]
    return np.stack([_stretch(int(low), int(high)) for low, high in ends], axis=1)


TABLES = {
    Brightness: brightness_table,
    Solarize: solarize_table,
    SolarizeAdd: solarize_add_table,
    Posterize: posterize_table,
    Invert: invert_table,
    Gamma: gamma_table,
    LUT: own_table,
}
MEASURED = {Contrast: contrast_table, Equalize: equalize_table, AutoContrast: autocontrast_table}
