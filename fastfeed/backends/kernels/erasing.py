"""Parts of an image that are hidden."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.ops.base import fill_bytes
from fastfeed.ops.erasing import CutOut, GridMask, RandomErasing
from fastfeed.ops.normal import gray, wrapped

__all__ = ["KERNELS"]


def erase(op: RandomErasing | CutOut, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """One box."""
    top, left, height, width = values["box"][row].tolist()
    if not height:
        return image
    part = image[top : top + height, left : left + width]
    if op.fill != "noise":
        part[:] = fill_bytes(op.fill, image.shape[2])
        return image
    line = image[0].size
    grain = wrapped(gray(), int(values["offset"][row]) + top * line, height * line)
    part[:] = grain.reshape(height, *image.shape[1:])[:, left : left + width]
    return image


def grid(op: GridMask, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Squares, one unit after another."""
    height, width, channels = image.shape
    unit, top, left = (int(values[name][row]) for name in ("unit", "top", "left"))
    side = round(float(values["share"][row]) * unit)
    fill = fill_bytes(op.fill, channels)
    for y in range(top - unit, height, unit):
        for x in range(left - unit, width, unit):
            image[max(y, 0) : max(y + side, 0), max(x, 0) : max(x + side, 0)] = fill
    return image


KERNELS = {RandomErasing: erase, CutOut: erase, GridMask: grid}
