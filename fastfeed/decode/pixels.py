"""Crops, scales and flips samples that are already pixels.

The resampling here defines what the filters mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from fastfeed.decode.base import DecodeFailure, Header, Request, Stop

_FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
}
# of the filters, in output pixels
_SUPPORT = {"bilinear": 1, "bicubic": 2, "lanczos": 3, "box": 0.5, "linear": 1, "nearest": 0.5}


def rows_read(top: float, height: float, total: int, out_rows: int, filter: str) -> tuple[int, int]:
    """Rows [first, last) of `total` that scaling `height` rows from `top` to `out_rows` reads."""
    support = _SUPPORT[filter] * max(height / out_rows, 1) + 2
    return max(math.floor(top - support), 0), min(math.ceil(top + height + support), total)


def resampled(
    image: Image.Image, box: tuple[float, ...], size: tuple[int, ...], filter: str
) -> Any:
    """Scale a (top, left, height, width) box of an image to size (height, width).

    The box may have fractions.

    Pillow's convolution: the filter's support grows with the reduction, weights are normalised
    inside the box. "nearest" takes the pixel under the center of each pixel of the result, "linear"
    blends the nearest four, at any reduction.
    """
    top, left, height, width = box
    right = min(left + width, image.width)
    bottom = min(top + height, image.height)
    edges = (max(left, 0.0), max(top, 0.0), right, bottom)
    if filter == "nearest":
        rows = _nearest(edges[1], bottom, image.height, size[0])
        columns = _nearest(edges[0], right, image.width, size[1])
        return Image.fromarray(np.asarray(image)[rows[:, None], columns])
    if filter == "linear":
        passes = [
            (0, _nearest_two(edges[1], bottom, image.height, size[0])),
            (1, _nearest_two(edges[0], right, image.width, size[1])),
        ]
        lower = image.height - size[0]
        if lower <= 0 or lower <= 2 * (image.width - size[1]):  # Pillow's rule
            passes.reverse()
        pixels = np.asarray(image)
        for axis, (places, weights) in passes:
            pixels = _blended(pixels, places, weights, axis)
        return Image.fromarray(pixels)
    return image.resize((size[1], size[0]), _FILTERS[filter], box=edges)


def _nearest_two(
    start: float, end: float, inputs: int, outputs: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pixels before and after each of `outputs` centers in [start, end), and their weights.

    Both int64 (2, outputs). Pillow takes the ends in single precision, and weights have 22 bits.
    """
    first = float(np.float32(start))
    last = float(np.float32(end))
    centers = first + (np.arange(outputs) + 0.5) * ((last - first) / outputs)
    places = np.floor(centers - 0.5).astype(np.int64) + np.array([[0], [1]])
    weights = np.maximum(1 - np.abs(places + 0.5 - centers), 0)
    weights[(places < 0) | (places >= inputs)] = 0
    weights /= weights.sum(0)
    return np.clip(places, 0, inputs - 1), np.floor(weights * (1 << 22) + 0.5).astype(np.int64)


def _blended(pixels: np.ndarray, places: np.ndarray, weights: np.ndarray, axis: int) -> np.ndarray:
    """The pixels at these places of an axis, blended; bytes are rounded to bytes."""
    shape = [-1 if k == axis else 1 for k in range(pixels.ndim)]
    before, after = (
        pixels.take(place, axis) * weight.reshape(shape)
        for place, weight in zip(places, weights, strict=True)
    )
    if pixels.dtype != np.uint8:
        return ((before + after) / (1 << 22)).astype(pixels.dtype)
    return ((before + after + (1 << 21)) >> 22).astype(np.uint8)


def _nearest(start: float, end: float, inputs: int, outputs: int) -> np.ndarray:
    """The pixel under each of `outputs` centers in [start, end), int64 (outputs,).

    Pillow, after a crop to these, adds up steps, which decides between pixels equally near.
    """
    whole = math.floor(start)
    steps = np.full(outputs, max(end - start, 0.0) / outputs)
    steps[0] = start - whole + 0.5 * steps[0]
    return np.clip(whole + np.floor(np.cumsum(steps)), 0, inputs - 1).astype(np.int64)


def flipped(pixels: np.ndarray, flip: np.ndarray) -> np.ndarray:
    """A view mirrored top to bottom, left to right, as the two booleans choose."""
    return pixels[:: -1 if flip[0] else 1, :: -1 if flip[1] else 1]


def cut(
    pixels: np.ndarray,
    box: tuple[float, ...],
    filter: str,
    flip: np.ndarray,
    out: np.ndarray,
) -> None:
    """Scale a box of pixels into `out`, (height, width, channels) of one dtype.

    uint8 has 1, 3 or 4 channels; other dtypes are resampled as floats, each channel by itself.
    """
    top, left, height, width = box
    if (
        (height, width) == out.shape[:2] and top.is_integer() and left.is_integer()
    ):  # a cut, nothing to scale
        result = pixels[int(top) : int(top + height), int(left) : int(left + width)]
    elif pixels.dtype == np.uint8:
        result = _scaled(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels, box, filter, out)
    else:
        planes = [_scaled(plane, box, filter, out) for plane in np.moveaxis(pixels, 2, 0)]
        result = np.stack(planes, axis=2)
        if out.dtype.kind == "u":  # bicubic and lanczos overshoot
            result = np.rint(result).clip(0, np.iinfo(out.dtype).max)
    out[:] = flipped(result.reshape(out.shape), flip)


def _scaled(pixels: np.ndarray, box: tuple[float, ...], filter: str, out: np.ndarray) -> np.ndarray:
    dtype = np.uint8 if pixels.dtype == np.uint8 else np.float32
    image = Image.fromarray(np.ascontiguousarray(pixels, dtype))
    return np.asarray(resampled(image, box, out.shape[:2], filter))


class PixelsEngine:
    """For sources that yield arrays (height, width, channels), or the bytes of such arrays."""

    name = "pixels"

    def __init__(self, dtype: str = "uint8") -> None:
        """`dtype`: of arrays that come as bytes."""
        self._dtype = dtype

    def probe(self, blobs: Sequence[Any]) -> list[Header | DecodeFailure]:
        return [Header(blob.shape[0], blob.shape[1], "array") for blob in blobs]

    def decode(self, request: Request, out: np.ndarray, stop: Stop) -> list[DecodeFailure | None]:
        for i, blob in enumerate(request.blobs):
            if stop.is_set():
                break
            pixels = blob
            if isinstance(blob, bytes):
                size = request.headers[i].height, request.headers[i].width
                pixels = np.frombuffer(blob, self._dtype).reshape(*size, -1)
            box = tuple(request.windows.boxes[i].tolist())
            cut(pixels, box, request.filter, request.windows.flips[i], out[i])
        return [None] * len(request)
