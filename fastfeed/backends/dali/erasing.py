"""Erasing ops as DALI graphs, exact to the pixel."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.backends.dali.arithmetic import OpContext
from fastfeed.backends.dali.imports import fn, types
from fastfeed.ops.base import shade
from fastfeed.ops.erasing import CutOut, GridMask, RandomErasing
from fastfeed.ops.noise_table import gray, read_wrapped


def erase(op: RandomErasing | CutOut, values: Any, image: Any, context: OpContext) -> Any:
    """One box, of a color or of noise."""
    box = values["box"]
    corner = box[:2]
    size = box[2:]
    if op.fill == "color":
        fill = fn.cast(values["color"], dtype=types.FLOAT)[: context.channels]
        return fn.erase(image, anchor=corner, shape=size, axes=[0, 1], fill_value=fill)
    if op.fill != "noise":
        fill = [float(v) for v in shade(op.fill, context.channels)]
        return fn.erase(image, anchor=corner, shape=size, axes=[0, 1], fill_value=fill)
    grain = fn.cast(values["grain"].gpu() if context.gpu else values["grain"], dtype=types.UINT8)
    start = fn.cast(0 - corner, dtype=types.INT32)
    whole = {"start": start, "shape": list(context.size), "axes": [0, 1]}
    around = fn.slice(grain, **whole, out_of_bounds_policy="pad", fill_values=0)
    return fn.erase(image, anchor=corner, shape=size, axes=[0, 1]) | around


def grain(op: RandomErasing, values: dict[str, Any], row: int, context: OpContext) -> np.ndarray:
    """Noise that fills the box; for an empty box a single black pixel."""
    top, left, height, width = values["box"][row].tolist()
    if not height:
        return np.zeros((1, 1, context.channels), np.int16)
    line = context.size[1] * context.channels
    found = read_wrapped(gray(), int(values["offset"][row]) + top * line, height * line)
    return found.reshape(height, context.size[1], context.channels)[:, left : left + width].astype(
        np.int16
    )


def lines(op: GridMask, values: dict[str, Any], context: OpContext) -> dict[str, Any]:
    """Rows and columns covered by squares, and the color.

    They are float64 (n, height, 1, 1) and (n, 1, width, 1).
    """
    unit = values["unit"][:, None]
    side = np.rint(values["share"][:, None] * unit)
    down = (np.arange(context.size[0]) - values["top"][:, None]) % unit < side
    across = (np.arange(context.size[1]) - values["left"][:, None]) % unit < side
    fill = np.tile(shade(op.fill, context.channels), (len(unit), 1, 1, 1))
    return {
        "down": down[:, :, None, None] * 1.0,
        "across": across[:, None, :, None] * 1.0,
        "fill": fill,
    }


def grid(op: GridMask, values: Any, image: Any, context: OpContext) -> Any:
    lines = [values[name].gpu() if context.gpu else values[name] for name in ("down", "across")]
    hidden = lines[0] * lines[1]
    return fn.cast(image * (1.0 - hidden) + values["fill"] * hidden, dtype=types.UINT8)


FEEDS = {GridMask: lines}
GRAIN = {RandomErasing: grain}
LOWERING = {RandomErasing: erase, CutOut: erase, GridMask: grid}
