"""Geometry on an image that is decoded already: cut, scale, flip, and what lies beyond the edge."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from fastfeed.decode.base import Header, Request
from fastfeed.decode.bordered import decode
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.ops.fold import Window, Windows

__all__ = ["KERNELS"]

_ENGINE, _NEVER = PixelsEngine(), threading.Event()


def cut(op: Window, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """As the decoding engines do it."""
    one = slice(row, row + 1)
    windows = Windows(values["box"][one], values["flip"][one], values["size"][one], values["limit"][one])
    height, width = image.shape[:2] if op.size is None else op.size
    out = np.empty((1, height, width, image.shape[2]), np.uint8)
    header = Header(image.shape[0], image.shape[1], "array")
    decode(_ENGINE, Request([image], [header], windows, op.filter), op.border, out, _NEVER)
    return out[0]


KERNELS = {Window: cut}
