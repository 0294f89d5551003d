"""EXIF orientation: where a displayed window lies in the stored pixels, and back."""

from __future__ import annotations

import numpy as np

__all__ = ["displayed", "displayed_size", "stored_box"]

Box = tuple[float, float, float, float]


def swaps(orientation: int) -> bool:
    """Orientations 5..8 exchange rows and columns."""
    return orientation >= 5


def displayed_size(orientation: int, stored: tuple[int, int]) -> tuple[int, int]:
    """(height, width) as displayed, from (height, width) as stored."""
    return (stored[1], stored[0]) if swaps(orientation) else stored


def stored_box(orientation: int, box: Box, size: tuple[int, int]) -> Box:
    """A (top, left, height, width) box of the displayed image of `size`, in stored pixels."""
    top, left, height, width = box
    bottom, right = size[0] - top - height, size[1] - left - width
    match orientation:
        case 2:
            return top, right, height, width
        case 3:
            return bottom, right, height, width
        case 4:
            return bottom, left, height, width
        case 5:
            return left, top, width, height
        case 6:
            return right, top, width, height
        case 7:
            return right, bottom, width, height
        case 8:
            return left, bottom, width, height
    return box


def displayed(orientation: int, pixels: np.ndarray) -> np.ndarray:
    """A view of stored pixels (height, width, channels) the way they are displayed."""
    match orientation:
        case 2:
            return pixels[:, ::-1]
        case 3:
            return pixels[::-1, ::-1]
        case 4:
            return pixels[::-1]
        case 5:
            return pixels.swapaxes(0, 1)
        case 6:
            return pixels[::-1].swapaxes(0, 1)
        case 7:
            return pixels[::-1, ::-1].swapaxes(0, 1)
        case 8:
            return pixels[:, ::-1].swapaxes(0, 1)
    return pixels
