"""Filters, noise and JPEG compression as DALI graphs.

- Noise is read from the cpu backend's table on the CPU: DALI's own draws depend on the batch.
- DALI simulates JPEG compression without writing a file: as libjpeg on the CPU, with its own
  arithmetic on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.backends.dali.arithmetic import OpContext, renamed, rounded, truncated
from fastfeed.backends.dali.imports import fn, types
from fastfeed.ops.filters import GaussianBlur, GaussianNoise, JPEGCompression, MotionBlur, Sharpness
from fastfeed.ops.noise_table import STEPS, read_wrapped, steps

_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13  # Pillow's ImageFilter.SMOOTH


def smoothing(op: Sharpness, values: dict[str, Any], context: OpContext) -> dict[str, Any]:
    return values | {"smooth": np.tile(_SMOOTH, (len(values["factor"]), 1, 1))}


def sharpness(op: Sharpness, values: Any, image: Any, context: OpContext) -> Any:
    """Blend with the smoothed image; the outermost pixels stay as they are."""
    height, width = context.size
    if min(height, width) < 3:
        return image
    weights = values["smooth"].gpu() if context.gpu else values["smooth"]
    smooth = renamed("filter")(image, weights, mode="valid")
    whole = {"start": [-1, -1], "shape": [height, width], "axes": [0, 1]}
    smooth = fn.slice(smooth, **whole, out_of_bounds_policy="pad", fill_values=0)
    rim = fn.erase(image, anchor=[1.0, 1.0], shape=[height - 2.0, width - 2.0], axes=[0, 1])
    smooth = smooth | rim
    return truncated(smooth + (image - fn.cast(smooth, dtype=types.FLOAT)) * values["factor"])


def blur(op: GaussianBlur, values: Any, image: Any, context: OpContext) -> Any:
    return fn.gaussian_blur(image, sigma=values["sigma"], window_size=op.taps)


def lines(op: MotionBlur, values: dict[str, Any], context: OpContext) -> dict[str, Any]:
    """Weights of the pixels along each line: float32 (n, side, side)."""
    n = len(values["length"])
    half = np.max(op.length) // 2
    weights = np.zeros((n, 2 * half + 1, 2 * half + 1), np.float32)
    rows = np.arange(n)
    for k in range(-half, half + 1):
        x, y = np.rint(k * values["direction"].T * (1 - 1e-9)).astype(int) + half
        weights[rows, y, x] += abs(k) <= values["length"] // 2
    return {"weights": weights / values["length"][:, None, None].astype(np.float32)}


def motion(op: MotionBlur, values: Any, image: Any, context: OpContext) -> Any:
    weights = values["weights"].gpu() if context.gpu else values["weights"]
    return rounded(renamed("filter")(image, weights, dtype=types.FLOAT))


def grain(op: GaussianNoise, values: dict[str, Any], row: int, context: OpContext) -> np.ndarray:
    shape = (*context.size, context.channels)
    return read_wrapped(steps(), int(values["offset"][row]), int(np.prod(shape))).reshape(shape)


def noise(op: GaussianNoise, values: Any, image: Any, context: OpContext) -> Any:
    grain = values["grain"].gpu() if context.gpu else values["grain"]
    return rounded(image + grain * (values["sigma"] / STEPS))


def jpeg(op: JPEGCompression, values: Any, image: Any, context: OpContext) -> Any:
    quality = fn.cast(values["quality"], dtype=types.INT32)
    if context.channels == 3:
        return fn.jpeg_compression_distortion(image, quality=quality)
    gray = fn.color_space_conversion(image, image_type=types.GRAY, output_type=types.RGB)
    return fn.jpeg_compression_distortion(gray, quality=quality)[:, :, 0:1]


FEEDS = {Sharpness: smoothing, MotionBlur: lines}
GRAIN = {GaussianNoise: grain}
LOWERING = {
    Sharpness: sharpness,
    GaussianBlur: blur,
    MotionBlur: motion,
    GaussianNoise: noise,
    JPEGCompression: jpeg,
}
