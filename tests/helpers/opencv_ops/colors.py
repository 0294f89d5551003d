"""Color ops that need all channels of a pixel at once."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from PIL import Image

from fastfeed.ops.color import ChannelDropout, ChannelShuffle, Grayscale, Hue, Saturation, ToBGR
from helpers.opencv_ops.scratch import planes

_BLOCK = 1 << 16  # pixels at a time, so that all planes of Hue stay in a core's cache


def grayscale(op: Grayscale, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Pillow's L in all channels."""
    if image.shape[2] == 3:
        image[...] = np.asarray(Image.fromarray(image).convert("L"))[:, :, None]
    return image


def channels(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    if image.shape[2] == 1:
        return image
    source = np.empty_like(image)
    source[:] = getattr(op, "fill", 0)
    shown = [(k, c) for c, k in enumerate(values["channels"][row].tolist()) if k >= 0]
    cv2.mixChannels([image], [source], np.ravel(shown).tolist())
    return source


def saturation(op: Saturation, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """One pass with a matrix in 1/1024, as OpenCV has it for bytes: 1 level off at most up to a
    factor of 2.

    Rows add up to 1024, so grays stay as they are.
    """
    if image.shape[2] == 1:
        return image
    factor = float(values["factor"][row])
    if factor > 2:
        gray = cv2.cvtColor(
            cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB, dst=planes(*image.shape)
        )
        return cv2.addWeighted(image, factor, gray, 1 - factor, 2**-14 - 0.5, dst=image)
    unit = (1 - factor) / 64
    r, g, b = round(19595 * unit), round(38470 * unit), round(7471 * unit)
    own = 1024 - r - g - b
    matrix = np.array(
        ((r + own, g, b, -511), (r, g + own, b, -511), (r, g, b + own, -511)), np.float32
    )
    matrix /= 1024
    return cv2.transform(image, matrix, dst=image)  # 511 / 1024: OpenCV rounds, Pillow cuts off


def hue(op: Hue, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Exact but for the rounding of one product, and without a division: HSV itself is never
    computed.

    A turn by a third moves channels to their neighbors. What is left is at most a sixth either way,
    see `Turn`.
    """
    if image.shape[2] == 1:
        return image
    sixths = 6 * float(values["shift"][row])
    thirds = round(sixths / 2)
    share = sixths - 2 * thirds  # in [-1, 1]
    # backwards is forwards with two channels swapped; its own inverse
    order = (0, 1, 2) if share >= 0 else (0, 2, 1)
    height, width = image.shape[:2]
    step = max(_BLOCK // width, 1)
    for top in range(0, height, step):
        part = image[top : top + step]
        turn = Turn(*part.shape[:2])
        channels = turn.channels
        cv2.split(part, [channels[c] for c in order])
        if share:
            turn(abs(share))
        cv2.merge([channels[order[(c - thirds) % 3]] for c in range(3)], part)
    return image


class Turn:
    """Three planes, and all that it takes to turn their hue forwards by a sixth of the circle or
    less, in bytes.

    In an even sixth of the circle the least channel follows the middle one, which follows the
    greatest, cyclically. There the middle one rises by share * (greatest - least). Once it is the
    greatest, the former greatest falls by what is left. Odd sixths are even ones of the negative.
    """

    __slots__ = ("_memory", "_views", "channels")

    def __init__(self, height: int, width: int) -> None:
        memory = self._memory = planes(14, height, width)
        around, over, middle = memory[:5], memory[5:9], memory[9:13]
        self.channels = list(memory[1:4])
        # views cost as much as a tenth of the work
        self._views = (
            (around[1:4], *around, around[:4].reshape(-1, width), around[1:].reshape(-1, width)),
            (over.reshape(-1, width), over[1:], over[:3], *over[:3]),
            (middle[:3], middle[1:], middle[0], middle[3]),
            memory[13],
        )

    def __call__(self, share: float) -> None:
        around, above, between, odd = self._views
        here, before, first, second, third, after, pairs, others = around
        over, own, previous, over0, over1, over2 = above
        middle, next_middle, middle0, middle3 = between
        before[...] = third
        after[...] = first
        # from here on bytes of 0 and 255 are no and yes
        cv2.compare(pairs, others, cv2.CMP_GE, over)
        np.bitwise_xor(over0, over1, odd)
        np.bitwise_xor(odd, over2, odd)
        np.bitwise_xor(own, previous, middle)  # no where it is the middle one
        middle3[...] = middle0
        np.bitwise_xor(here, odd, here)
        # no more needed as what they were
        room, pace, maximum, minimum = (
            before,
            after,
            over0,
            over1,
        )
        np.maximum(first, second, out=maximum)
        np.minimum(first, second, out=minimum)
        np.minimum(maximum, third, out=room)
        np.maximum(room, minimum, out=room)
        np.maximum(maximum, third, out=maximum)
        np.minimum(minimum, third, out=minimum)
        np.subtract(maximum, room, room)  # from the middle one up to the greatest
        np.subtract(maximum, minimum, pace)
        cv2.convertScaleAbs(pace, pace, share)
        np.minimum(room, pace, out=room)  # how far the middle one rises
        np.subtract(pace, room, pace)  # how far the greatest falls
        np.invert(pace, pace)
        np.invert(room, room)
        np.bitwise_or(next_middle, pace, previous)  # -1 - x where it applies, else -1, modulo 256
        np.add(here, previous, here)
        np.bitwise_or(middle, room, previous)
        np.subtract(here, previous, here)
        np.bitwise_xor(here, odd, here)


KERNELS = {
    Grayscale: grayscale,
    **dict.fromkeys((ToBGR, ChannelShuffle, ChannelDropout), channels),
    Saturation: saturation,
    Hue: hue,
}
