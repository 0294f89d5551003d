"""Ops after decoding on pixels that native code has no kernel for: more than bytes, and alpha."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastfeed.decode.base import Header, Request, Stop
from fastfeed.decode.padding import decode_with_border
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.ops.program.layers import Choices
from fastfeed.ops.program.program import Program
from fastfeed.ops.program.window import Window, Windows

_PIXELS = PixelsEngine()


def without_kernel(
    program: Program, image: np.ndarray, choices: Sequence[Choices], stop: Stop
) -> np.ndarray:
    """One decoded image (height, width, channels) as in the batch.

    choices: of this image, one per layer; all of their ops are windows.
    """
    for layer, own in zip(program.layers, choices, strict=True):
        if own.choice >= 0:
            chosen = int(own.choice)
            image = _cut(layer.ops[chosen], own.values[chosen], image, stop)
    values = program.convert.on_device(np, image, "float64")
    return values.transpose(2, 0, 1) if program.convert.layout == "CHW" else values


def _cut(
    window: Window, values: dict[str, np.ndarray], image: np.ndarray, stop: Stop
) -> np.ndarray:
    height, width, channels = image.shape
    names = ("box", "flip", "size", "limit")
    windows = Windows(*(values[name][None] for name in names))
    request = Request([image], [Header(height, width, "array")], windows, window.filter)
    out = np.empty((1, *(window.size or (height, width)), channels), image.dtype)
    decode_with_border(_PIXELS, request, window.border, out, stop)
    return out[0]
