"""Parts of an image that are hidden.

All of it on lines of bytes: NumPy is ten times slower with pixels of three.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from fastfeed.ops.base import shade
from fastfeed.ops.erasing import CutOut, GridMask, RandomErasing
from fastfeed.ops.noise_table import gray, read_wrapped

_FEW = 8  # squares side by side: so many are quicker one by one


def erase(
    op: RandomErasing | CutOut, values: dict[str, Any], row: int, image: np.ndarray
) -> np.ndarray:
    """One box."""
    top, left, height, width = values["box"][row].tolist()
    if not height:
        return image
    rows, columns, channels = image.shape
    first, last, line = left * channels, (left + width) * channels, columns * channels
    part = image.reshape(rows, line)[top : top + height, first:last]
    if op.fill == "noise":
        grain = read_wrapped(gray(), int(values["offset"][row]) + top * line, height * line)
        part[...] = grain.reshape(height, line)[:, first:last]
    elif op.fill == "color":
        part[...] = np.tile(values["color"][row, :channels], width)
    else:
        part[...] = _line(op.fill, channels, columns)[: last - first]
    return image


def grid(op: GridMask, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Rows of squares above, in, and below the units that are there in full height."""
    height, width, channels = image.shape
    unit, top, left = (int(values[name][row]) for name in ("unit", "top", "left"))
    side = round(float(values["share"][row]) * unit)
    line = _line(op.fill, channels, width)
    lines = image.reshape(height, -1)
    full_units = max(height - top, 0) // unit
    end = top + full_units * unit
    parts = [lines[: max(top - unit + side, 0)], lines[end : end + side]]
    if full_units:
        parts.append(lines[top:end].reshape(full_units, unit, -1)[:, :side])
    if width > _FEW * unit:
        hidden = ((np.arange(width) - left) % unit < side).repeat(channels)
        keep, fill = (
            np.where(hidden, np.uint8(0), np.uint8(255)),
            np.where(hidden, line, np.uint8(0)),
        )
        for part in parts:
            np.bitwise_and(part, keep, out=part)
            np.bitwise_or(part, fill, out=part)
        return image
    for x in range(left - unit, width, unit):
        first, last = max(x, 0) * channels, min(max(x + side, 0), width) * channels
        for part in parts:
            part[..., first:last] = line[: last - first]
    return image


@lru_cache(64)
def _line(fill: tuple[int, int, int], channels: int, width: int) -> np.ndarray:
    """A line of pixels of this color: uint8 (width * channels,), not to be written to."""
    return np.tile(np.array(shade(fill, channels), np.uint8), width)


KERNELS = {RandomErasing: erase, CutOut: erase, GridMask: grid}
