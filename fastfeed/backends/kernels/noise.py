"""Noise from the table of normal numbers."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from fastfeed.backends.kernels.scratch import planes
from fastfeed.ops.filters import GaussianNoise
from fastfeed.ops.normal import STEPS, steps, wrapped

__all__ = ["KERNELS"]


def noise(op: GaussianNoise, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Noise is rounded to levels before it is added: the image is whole numbers, so the sum is the same."""
    sigma, offset = float(values["sigma"][row]), int(values["offset"][row])
    flat = image.reshape(1, -1)
    table = wrapped(steps(), offset, image.size).reshape(1, -1)
    levels = cv2.addWeighted(table, sigma / STEPS, table, 0, 0, dst=planes(1, 1, 2 * image.size)[0].view(np.int16))
    cv2.add(flat, levels, dst=flat, dtype=cv2.CV_8U)
    return image


KERNELS = {GaussianNoise: noise}
