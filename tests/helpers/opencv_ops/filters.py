"""Sharpness, blur and JPEG's artifacts."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np

from fastfeed.ops.filters import GaussianBlur, JPEGCompression, MedianBlur, MotionBlur, Sharpness
from helpers.opencv_ops.scratch import planes

# Pillow's ImageFilter.SMOOTH
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13


def sharpness(op: Sharpness, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """A blend with what is smooth, fractions cut off as Pillow does; the outermost pixels stay.

    13 smooth = 9 mean + 4 center, and the mean of 3 x 3 is what CPUs are quickest at; that it is
    rounded is a third of a level at most, times what the factor is away from 1.
    """
    if min(image.shape[:2]) < 3:
        return image
    factor = float(values["factor"][row])
    smooth = planes(*image.shape)
    if factor <= 2:
        share = (1 - factor) * 9 / 13
        cv2.blur(image, (3, 3), dst=smooth)
    else:
        share = 1 - factor
        cv2.filter2D(image, -1, _SMOOTH, dst=smooth)
    inner = image[1:-1, 1:-1]
    cv2.addWeighted(inner, 1 - share, smooth[1:-1, 1:-1], share, -0.499, dst=inner)
    return image


def blur(op: GaussianBlur, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """Two passes. Weights beyond four sigma are nothing to a byte, and left out.

    OpenCV's own GaussianBlur of bytes has weights of 8 bits, and so has sepFilter2D where they sum
    up to 1, on machines without IPP. Twice and half the weights are computed in float, which is
    quicker, too.
    """
    sigma = float(values["sigma"][row])
    half = min(op.taps // 2, math.ceil(4 * sigma))
    weights = np.exp(-0.5 * (np.arange(-half, half + 1) / sigma) ** 2).astype(np.float32)
    weights /= weights.sum()
    source = planes(*image.shape)
    np.copyto(source, image)
    cv2.sepFilter2D(
        source, -1, weights * 2, weights / 2, dst=image, borderType=cv2.BORDER_REFLECT_101
    )
    return image


def motion(op: MotionBlur, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """A filter with one weight for each pixel of the line; of an odd number, so without ties."""
    length = int(values["length"][row])
    half = length // 2
    weights = np.zeros((length, length), np.float32)
    for k in range(-half, half + 1):
        x, y = np.rint(k * values["direction"][row] * (1 - 1e-9)).astype(int)
        weights[half + y, half + x] += 1
    kernel = weights / np.float32(length)
    blurred = cv2.filter2D(image, -1, kernel, borderType=cv2.BORDER_REFLECT_101)
    return blurred.reshape(image.shape)


def median(op: MedianBlur, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    return cv2.medianBlur(image, int(values["kernel"][row])).reshape(image.shape)


def jpeg(op: JPEGCompression, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    """There and back in memory."""
    quality = [cv2.IMWRITE_JPEG_QUALITY, int(values["quality"][row])]
    if image.shape[2] == 1:
        _, file = cv2.imencode(".jpg", image, quality)
        return cv2.imdecode(file, cv2.IMREAD_GRAYSCALE)[:, :, None]
    _, file = cv2.imencode(
        ".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR, dst=planes(*image.shape)), quality
    )
    return cv2.imdecode(file, cv2.IMREAD_COLOR_RGB)


KERNELS = {
    Sharpness: sharpness,
    GaussianBlur: blur,
    MotionBlur: motion,
    MedianBlur: median,
    JPEGCompression: jpeg,
}
