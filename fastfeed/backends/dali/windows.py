"""Windows in DALI's terms: one operator cuts, scales and flips, another one adds the border."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.backends.dali.arithmetic import OpContext
from fastfeed.backends.dali.imports import fn, types
from fastfeed.decode.padding import inner_windows
from fastfeed.ops.base import Border, shade
from fastfeed.ops.program.window import Window, Windows

FILTERS = {  # of pixels that are equally near, DALI takes others than masks do
    "bilinear": types.INTERP_LINEAR,
    "bicubic": types.INTERP_CUBIC,
    "lanczos": types.INTERP_LANCZOS3,
}
_BEYOND = {"edge": "replicate", "reflect": "reflect_101", "symmetric": "reflect_1001"}


def resize_inputs(windows: Windows, corners: np.ndarray | None) -> np.ndarray:
    """Boxes for DALI's resize: float32 (n, 4), top, left, bottom, right.

    A mirrored axis runs backwards, which DALI's resize understands. With a border, (n, 8): height
    and width of the part that is cut, and its position in the result, follow.
    """
    start = windows.boxes[:, :2]
    end = windows.boxes[:, :2] + windows.boxes[:, 2:]
    start, end = np.where(windows.flips, end, start), np.where(windows.flips, start, end)
    more = [] if corners is None else [windows.sizes, corners]
    return np.concatenate([start, end, *more], axis=1).astype(np.float32)


def cut(pixels: Any, row: Any, filter: str, border: Border | None, context: OpContext) -> Any:
    """Cut and scale pixels, and add the border; context.size is the result's size."""
    how = {"interp_type": FILTERS[filter], "antialias": True}
    corners = {"roi_start": row[:2], "roi_end": row[2:4]}
    if border is None:
        return fn.resize(pixels, size=list(context.size), **corners, **how)
    part = fn.resize(pixels, size=row[4:6], **corners, **how)
    if border.mode == "constant":
        fill = [float(v) for v in shade(border.fill, context.channels)]
        whole = {
            "start": fn.cast(0 - row[6:8], dtype=types.INT32),
            "shape": list(context.size),
            "axes": [0, 1],
        }
        return fn.slice(part, **whole, out_of_bounds_policy="pad", fill_values=fill)
    # the image moved by whole pixels only, for the pixels visible beyond its edge
    one = row[4:5] * 0 + 1
    none = row[4:5] * 0
    matrix = fn.reshape(
        fn.cat(one, none, 0 - row[7:8], none, one, 0 - row[6:7], none, none, one), shape=[3, 3]
    )
    moved = {
        "size": list(context.size),
        "interp_type": types.INTERP_NN,
        "border_mode": _BEYOND[border.mode],
    }
    return fn.experimental.warp_perspective(part, matrix=matrix, **moved)


def values(op: Window, values: dict[str, Any], context: OpContext) -> dict[str, Any]:
    """Return the values of a window in the chain."""
    windows = Windows(values["box"], values["flip"], values["size"], values["limit"])
    return {"window": resize_inputs(*inner_windows(windows, op.border, op.size or context.size))}


def window(op: Window, values: Any, image: Any, context: OpContext) -> Any:
    """Apply a window in the chain to pixels, as the first window."""
    return cut(
        image,
        values["window"],
        op.filter,
        op.border,
        OpContext(op.size or context.size, context.channels, context.gpu),
    )


FEEDS = {Window: values}
LOWERING = {Window: window}
