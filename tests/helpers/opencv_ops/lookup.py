"""Lookup tables and histograms of bytes."""

from __future__ import annotations

import numpy as np


def look_up(image: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Replace every byte in place; table uint8 (256,) or (256, channels)."""
    for c in range(image.shape[2]):
        own = table if table.ndim == 1 else table[:, c % table.shape[1]]
        image[:, :, c] = own[image[:, :, c]]
    return image


def convert(image: np.ndarray, table: np.ndarray, out: np.ndarray, planar: bool) -> None:
    """Apply tables (256, channels) into `out`: (height, width, channels), or channels first."""
    for c in range(image.shape[2]):
        (out[c] if planar else out[:, :, c])[...] = table[:, c][image[:, :, c]]


def count(image: np.ndarray) -> np.ndarray:
    """Histogram of each channel: int64 (channels, 256)."""
    planes = np.moveaxis(image, 2, 0)
    return np.stack([np.bincount(plane.ravel(), minlength=256) for plane in planes])
