"""Geometry on an image that is decoded already: cut, scale, flip, and what lies beyond the edge."""

from __future__ import annotations

import threading
from typing import Any

import cv2
import numpy as np

from fastfeed.decode.base import Header, Request
from fastfeed.decode.bordered import decode
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.ops.fold import Window, Windows

__all__ = ["KERNELS"]

_ENGINE, _NEVER = PixelsEngine(), threading.Event()


def cut(op: Window, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """As the decoding engines do it. Whole pixels are copied; the image itself if nothing changes."""
    size = image.shape[:2] if op.size is None else op.size
    part = _whole_pixels(op, values, row, image, size)
    if part is not None:
        down, across = values["flip"][row].tolist()
        if down or across:
            return cv2.flip(part, -1 if down and across else int(across)).reshape(*size, -1)
        return np.ascontiguousarray(part)
    one = slice(row, row + 1)
    windows = Windows(values["box"][one], values["flip"][one], values["size"][one], values["limit"][one])
    out = np.empty((1, *size, image.shape[2]), np.uint8)
    header = Header(image.shape[0], image.shape[1], "array")
    decode(_ENGINE, Request([image], [header], windows, op.filter), op.border, out, _NEVER)
    return out[0]


def _whole_pixels(
    op: Window, values: dict[str, Any], row: int, image: np.ndarray, size: tuple[int, ...]
) -> np.ndarray | None:
    """A view of what is cut, if there is nothing to scale and no border to see."""
    top, left, height, width = values["box"][row].tolist()
    if (height, width) != size or not (top.is_integer() and left.is_integer()):
        return None
    if op.border is not None:  # what an earlier crop cut away is border, too
        y, x, h, w = values["limit"][row].tolist()
        if top < y or left < x or top + height > y + h or left + width > x + w:
            return None
    return image[int(top) : int(top + height), int(left) : int(left + width)]


KERNELS = {Window: cut}
