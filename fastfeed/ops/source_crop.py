"""The region of interest of an image, where the source defines one."""

from __future__ import annotations

import numpy as np

__all__ = ["parts"]


def parts(boxes: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
    """Boxes in whole pixels: (top left corners, (height, width), reasons for rows without a box).

    boxes: float64 (n, 4), top, left, height, width; a row with a NaN stands for the whole image.
    sizes: int64 (n, 2). Boxes are clipped to the image; one without a pixel inside is rejected, and
    the whole image is used.
    """
    is_full = np.isnan(boxes).any(axis=1, keepdims=True)
    first = np.where(is_full, 0, np.clip(np.floor(boxes[:, :2]), 0, sizes))
    last = np.where(is_full, sizes, np.clip(np.ceil(boxes[:, :2] + boxes[:, 2:]), 0, sizes))
    outside = {}
    for row in np.flatnonzero((last <= first).any(axis=1)).tolist():
        box = [float(x) for x in boxes[row]]
        (height, width) = sizes[row]
        outside[row] = f"its box {box} is outside of {height}x{width}"
        first[row], last[row] = 0, sizes[row]
    return first, (last - first).astype(np.int64), outside
