"""Color ops that need all channels of a pixel at once."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from fastfeed.backends.kernels.scratch import planes
from fastfeed.ops.color import Grayscale, Hue, Saturation

__all__ = ["KERNELS"]

_CUT = 0.5 - 2**-14  # see tables.py
_BLOCK = 1 << 16  # pixels at a time, so that all planes of Hue stay in a core's cache


def grayscale(op: Grayscale, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    if image.shape[2] == 1:
        return image
    gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY, dst=planes(1, *image.shape[:2])[0])
    return cv2.cvtColor(gray, cv2.COLOR_GRAY2RGB, dst=image)


def saturation(op: Saturation, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    if image.shape[2] == 1:
        return image
    factor, (height, width) = float(values["factor"][row]), image.shape[:2]
    held = planes(4, height, width)
    gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY, dst=held[0])
    gray = cv2.cvtColor(gray, cv2.COLOR_GRAY2RGB, dst=held[1:].reshape(height, width, 3))
    return cv2.addWeighted(image, factor, gray, 1 - factor, -_CUT, dst=image)


def hue(op: Hue, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Exact but for the rounding of one product, and without a division: HSV itself is never computed.

    A turn by a third moves channels to their neighbors. What is left is at most a sixth either way; over such a turn a
    channel moves only between the pixel's least and greatest, at the pace of share * (greatest - least).
    """
    if image.shape[2] == 1:
        return image
    turn = 6 * float(values["shift"][row])  # in sixths
    thirds = round(turn / 2)
    share = turn - 2 * thirds  # in [-1, 1]
    order = (0, 1, 2) if share >= 0 else (0, 2, 1)  # backwards is forwards with two channels swapped
    height, width = image.shape[:2]
    step = max(_BLOCK // width, 1)
    for top in range(0, height, step):
        part = image[top : top + step]
        held = planes(18, *part.shape[:2])
        moved = held[5:8]
        first = [held[order.index(c)] for c in range(3)]
        cv2.split(part, first)
        if share:
            _turn(held, abs(share))
        else:
            moved = held[:3]
        cv2.merge([moved[order.index((c - thirds) % 3)] for c in range(3)], part)
    return image


def _turn(held: np.ndarray, share: float) -> None:
    """Planes 5 to 7 become 0 to 2, turned forwards by share of a sixth; the rest is working memory.

    With each plane p, the next n and the one before v, M and m the greatest and the least of all three:
    p rises by the least of d - max(n - p, 0), v - m, M - p and falls by the least of d - max(p - n, 0), M - v, p - m;
    where d = share * (M - m), and nothing below 0. Bytes suffice, as no difference here is negative.
    """
    held[3:5] = held[:2]
    here, ahead, behind = held[:3], held[1:4], held[2:5]
    rise, fall, gap = held[5:8], held[8:11], held[11:14]
    most, least, pace = held[14], held[15], held[16]
    np.maximum(held[0], held[1], out=fall[0])
    np.maximum(held[1], held[2], out=fall[1])
    np.maximum(held[2], held[0], out=fall[2])
    np.maximum(fall[0], held[2], out=most)
    np.minimum(held[0], held[1], out=least)
    np.minimum(least, held[2], out=least)
    np.subtract(most, least, out=pace)
    cv2.convertScaleAbs(pace, dst=pace, alpha=share)
    np.subtract(fall, here, out=rise)
    np.minimum(rise, pace, out=rise)
    np.subtract(pace, rise, out=rise)
    np.subtract(behind, least, out=gap)
    np.minimum(rise, gap, out=rise)
    np.subtract(most, here, out=gap)
    np.minimum(rise, gap, out=rise)
    np.subtract(fall, ahead, out=fall)
    np.minimum(fall, pace, out=fall)
    np.subtract(pace, fall, out=fall)
    np.subtract(most, behind, out=gap)
    np.minimum(fall, gap, out=fall)
    np.subtract(here, least, out=gap)
    np.minimum(fall, gap, out=fall)
    np.add(rise, here, out=rise)
    np.subtract(rise, fall, out=rise)


KERNELS = {Grayscale: grayscale, Saturation: saturation, Hue: hue}
