"""Noise from the table of normal numbers."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from fastfeed.ops.filters import GaussianNoise
from fastfeed.ops.noise_table import LENGTH, STEPS, steps
from helpers.opencv_ops.scratch import planes


def noise(op: GaussianNoise, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Noise is rounded to levels before it is added: the image is whole numbers, so the sum is the
    same.
    """
    scale, offset = float(values["sigma"][row]) / STEPS, int(values["offset"][row])
    flat, table, start = image.reshape(1, -1), steps()[None], 0
    levels = planes(1, 1, 2 * min(image.size, LENGTH))[0].view(np.int16)
    while start < image.size:  # once, unless the table ends before the image
        piece = table[:, offset : offset + image.size - start]
        part = flat[:, start : start + piece.size]
        cv2.addWeighted(piece, scale, piece, 0, 0, dst=levels[:, : piece.size])
        cv2.add(part, levels[:, : piece.size], dst=part, dtype=cv2.CV_8U)
        start, offset = start + piece.size, 0
    return image


KERNELS = {GaussianNoise: noise}
