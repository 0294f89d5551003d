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
    channels = image.shape[2]
    lines = image.reshape(len(image), -1)  # whole lines of bytes: NumPy is ten times slower with pixels of three
    part = lines[top : top + height, left * channels : (left + width) * channels]
    if op.fill == "noise":
        line = lines.shape[1]
        grain = wrapped(gray(), int(values["offset"][row]) + top * line, height * line)
        part[:] = grain.reshape(height, line)[:, left * channels : (left + width) * channels]
    else:
        part[:] = _line(op.fill, channels, width)
    return image


def grid(op: GridMask, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Bytes are hidden by AND and, unless they become black, OR: all units that are whole at once."""
    height, width, channels = image.shape
    unit, top, left = (int(values[name][row]) for name in ("unit", "top", "left"))
    side = round(float(values["share"][row]) * unit)
    hidden = ((np.arange(width) - left) % unit < side).repeat(channels)
    keep = np.where(hidden, np.uint8(0), np.uint8(255))
    fill = np.where(hidden, _line(op.fill, channels, width), np.uint8(0)) if any(op.fill) else None
    lines = image.reshape(height, -1)
    whole = max(height - top, 0) // unit
    last = top + whole * unit
    for part in (
        lines[: max(top - unit + side, 0)],
        lines[top:last].reshape(whole, unit, -1)[:, :side] if whole else lines[:0],
        lines[last : last + side],
    ):
        np.bitwise_and(part, keep, out=part)
        if fill is not None:
            np.bitwise_or(part, fill, out=part)
    return image


def _line(fill: tuple[int, int, int], channels: int, width: int) -> Any:
    """A line of pixels of this color, or the one byte they are made of."""
    red, green, blue = fill
    if red == green == blue:
        return red
    color = fill_bytes(fill, channels)
    return np.tile(color, width)


KERNELS = {RandomErasing: erase, CutOut: erase, GridMask: grid}
