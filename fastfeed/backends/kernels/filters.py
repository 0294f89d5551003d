"""Sharpness, blur and JPEG's artifacts."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from fastfeed.ops.filters import GaussianBlur, JPEGCompression, Sharpness

__all__ = ["KERNELS"]

_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13  # Pillow's ImageFilter.SMOOTH


def sharpness(op: Sharpness, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """A blend with what is smooth, fractions cut off as Pillow does; the outermost pixels stay."""
    if min(image.shape[:2]) < 3:
        return image
    factor = float(values["factor"][row])
    smooth = cv2.filter2D(image, -1, _SMOOTH).reshape(image.shape)
    inner = (slice(1, -1), slice(1, -1))
    image[inner] = cv2.addWeighted(image, factor, smooth, 1 - factor, -0.499).reshape(image.shape)[inner]
    return image


def blur(op: GaussianBlur, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Two passes in float."""
    half, sigma = op.taps // 2, float(values["sigma"][row])
    weights = np.exp(-0.5 * (np.arange(-half, half + 1) / sigma) ** 2).astype(np.float32)
    weights /= weights.sum()
    blurred = cv2.sepFilter2D(image.astype(np.float32), -1, weights, weights, borderType=cv2.BORDER_REFLECT_101)
    return np.rint(blurred).astype(np.uint8).reshape(image.shape)


def jpeg(op: JPEGCompression, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """There and back in memory."""
    quality = [cv2.IMWRITE_JPEG_QUALITY, int(values["quality"][row])]
    if image.shape[2] == 1:
        _, file = cv2.imencode(".jpg", image, quality)
        return cv2.imdecode(file, cv2.IMREAD_GRAYSCALE)[:, :, None]
    _, file = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), quality)
    return cv2.imdecode(file, cv2.IMREAD_COLOR_RGB)


KERNELS = {Sharpness: sharpness, GaussianBlur: blur, JPEGCompression: jpeg}
