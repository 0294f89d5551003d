"""EXIF orientation: maps a displayed window to the stored pixels, and back."""

from __future__ import annotations

import numpy as np

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
    bottom = size[0] - top - height
    right = size[1] - left - width
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


def displayed_boxes(orientations: np.ndarray, boxes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Boxes of stored images (left, top, right, bottom) in displayed pixels: float64 (n, 4).

    orientations: of the image of each box, int64 (n,); sizes: int64 (n, 2), its height and width as
    displayed.
    """
    stored = np.where((orientations >= 5)[:, None], sizes[:, ::-1], sizes)
    x = boxes[:, [0, 2]]
    y = boxes[:, [1, 3]]
    x = np.where(np.isin(orientations, (2, 3, 7, 8))[:, None], stored[:, 1:] - x[:, ::-1], x)
    y = np.where(np.isin(orientations, (3, 4, 6, 7))[:, None], stored[:, :1] - y[:, ::-1], y)
    swapped = (orientations >= 5)[:, None]
    x, y = np.where(swapped, y, x), np.where(swapped, x, y)
    return np.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], axis=1)
