"""Noise from the table of normal numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.ops.filters import GaussianNoise
from fastfeed.ops.normal import normal, wrapped

__all__ = ["KERNELS"]


def noise(op: GaussianNoise, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Rounded once: the sum is as exact as float32."""
    sigma, offset = np.float32(values["sigma"][row]), int(values["offset"][row])
    sums = wrapped(normal(), offset, image.size).reshape(image.shape) * sigma
    sums += image
    np.rint(sums, out=sums)
    np.clip(sums, 0, 255, out=sums)
    image[:] = sums
    return image


KERNELS = {GaussianNoise: noise}
