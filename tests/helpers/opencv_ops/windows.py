"""Geometry on an image that is decoded already: cut, scale, flip, and what lies beyond the edge."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from fastfeed.decode.base import Header, Request
from fastfeed.decode.padding import add_border, decode_with_border
from fastfeed.decode.pixels import PixelsEngine
from fastfeed.ops.base import shade
from fastfeed.ops.program.window import Window, Windows

_ENGINE, _NEVER = PixelsEngine(), threading.Event()
_MIRRORS = ("reflect", "symmetric")


def cut(op: Window, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """As the decoding engines do it.

    Whole pixels are copied; the image itself if nothing changes.
    """
    size = image.shape[:2] if op.size is None else op.size
    part = _whole_pixels(op, values, row, image, size)
    if part is not None:
        down, across = values["flip"][row].tolist()
        if not (down or across):
            return np.ascontiguousarray(part)
        return part[:: -1 if down else 1, :: -1 if across else 1].copy()
    rows = slice(row, row + 1)
    windows = Windows(
        values["box"][rows], values["flip"][rows], values["size"][rows], values["limit"][rows]
    )
    out = np.empty((1, *size, image.shape[2]), np.uint8)
    header = Header(image.shape[0], image.shape[1], "array")
    decode_with_border(
        _ENGINE, Request([image], [header], windows, op.filter), op.border, out, _NEVER
    )
    return out[0]


def _whole_pixels(
    op: Window, values: dict[str, Any], row: int, image: np.ndarray, size: tuple[int, ...]
) -> np.ndarray | None:
    """What is cut, a view if no border is seen; None if there is something to scale, or to reflect
    from afar.
    """
    box = values["box"][row].tolist()
    if tuple(box[2:]) != size or not (box[0].is_integer() and box[1].is_integer()):
        return None
    top, left, height, width = map(int, box)
    bottom, right = top + height, left + width
    if op.border is None:
        return image[top:bottom, left:right]
    limit = values["limit"][row].tolist()  # what an earlier crop cut away is border, too
    if not all(side.is_integer() for side in limit):
        return None
    y, x, high, wide = map(int, limit)
    visible = image[
        max(top, y) : max(0, min(bottom, y + high)), max(left, x) : max(0, min(right, x + wide))
    ]
    if visible.shape[:2] == size:
        return visible
    edges = [max(0, y - top), max(0, bottom - y - high), max(0, x - left), max(0, right - x - wide)]
    reach = (max(edges[:2]), max(edges[2:])) if op.border.mode in _MIRRORS else (0, 0)
    if visible.shape[0] <= reach[0] or visible.shape[1] <= reach[1]:
        return None
    out = np.empty((*size, image.shape[2]), np.uint8)
    return add_border(visible, edges, op.border.mode, shade(op.border.fill, image.shape[2]), out)


KERNELS = {Window: cut}
