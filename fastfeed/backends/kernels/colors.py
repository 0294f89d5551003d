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

    A turn by a third moves channels to their neighbors. What is left is at most a sixth either way, see `_turn`.
    """
    if image.shape[2] == 1:
        return image
    turn = 6 * float(values["shift"][row])  # in sixths
    thirds = round(turn / 2)
    share = turn - 2 * thirds  # in [-1, 1]
    order = (0, 1, 2) if share >= 0 else (0, 2, 1)  # backwards is forwards with two channels swapped; its own inverse
    height, width = image.shape[:2]
    step = max(_BLOCK // width, 1)
    for top in range(0, height, step):
        part = image[top : top + step]
        held = planes(18, *part.shape[:2])
        channels = list(held[1:4])
        cv2.split(part, [channels[c] for c in order])
        if share:
            _turn(held, abs(share))
        cv2.merge([channels[order[(c - thirds) % 3]] for c in range(3)], part)
    return image


def _turn(held: np.ndarray, share: float) -> None:
    """Planes 1 to 3 turned forwards by this share of a sixth, in bytes; the others are working memory.

    In an even sixth of the circle the least channel follows the middle one, which follows the greatest, cyclically.
    There the middle one rises by share * (greatest - least). Once it is the greatest, the former greatest falls by what
    is left. Odd sixths are even ones of the negative.
    """
    held[0], held[4] = held[3], held[1]
    here, first, second, third = held[1:4], *held[1:4]
    over, middle, odd, most, least, pace, room = held[5:9], held[9:13], *held[13:18]
    np.greater_equal(held[:4], held[1:5], out=over.view(bool))
    np.bitwise_xor(over[0], over[1], out=odd)
    np.bitwise_xor(odd, over[2], out=odd)
    np.negative(odd, out=odd)
    np.equal(over[1:], over[:3], out=middle[:3].view(bool))
    np.negative(middle[:3], out=middle[:3])
    middle[3] = middle[0]
    np.bitwise_xor(here, odd, out=here)
    np.maximum(first, second, out=most)
    np.minimum(first, second, out=least)
    np.minimum(most, third, out=room)
    np.maximum(room, least, out=room)
    np.maximum(most, third, out=most)
    np.minimum(least, third, out=least)
    np.subtract(most, room, out=room)  # between the middle channel and the greatest
    np.subtract(most, least, out=pace)
    cv2.convertScaleAbs(pace, dst=pace, alpha=share)
    np.minimum(room, pace, out=room)
    np.subtract(pace, room, out=pace)
    np.bitwise_and(middle[1:], pace, out=over[:3])
    np.subtract(here, over[:3], out=here)
    np.bitwise_and(middle[:3], room, out=over[:3])
    np.add(here, over[:3], out=here)
    np.bitwise_xor(here, odd, out=here)


KERNELS = {Grayscale: grayscale, Saturation: saturation, Hue: hue}
