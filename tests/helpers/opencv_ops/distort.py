"""Warps by a field of displacements in NumPy: sums of integers, levels in 1/256 of a pixel."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.ops.base import shade
from fastfeed.ops.distort import DISPLACEMENT, ElasticTransform, GridDistortion
from fastfeed.ops.noise_table import read_wrapped, steps


def elastic_places(
    op: ElasticTransform, values: dict[str, Any], row: int, shape: tuple[int, ...]
) -> list[np.ndarray]:
    """x and y in 1/256 of a pixel that each pixel shows: two int64 (height, width)."""
    height, width = shape[:2]
    weights, places = op.weights, []
    half = len(weights) // 2
    tall, wide = height + 2 * half, width + 2 * half
    for offset in values["offsets"][row].tolist():
        noise = read_wrapped(steps(), offset, tall * wide).reshape(tall, wide).astype(np.int64)
        down = sum(w * noise[k : k + height] for k, w in enumerate(weights))
        down = (down + (1 << 13)) >> 14
        across = sum(w * down[:, k : k + width] for k, w in enumerate(weights))
        moved = across.astype(np.float32) * np.float32(values["alpha"][row] * DISPLACEMENT)
        places.append(np.rint(moved).astype(np.int64))
    return [places[0] + 256 * np.arange(width), places[1] + 256 * np.arange(height)[:, None]]


def grid_places(
    op: GridDistortion, values: dict[str, Any], row: int, shape: tuple[int, ...]
) -> list[np.ndarray]:
    along = []
    for lines, count in zip(values["lines"][row], shape[1::-1], strict=True):
        at = (np.arange(count) + 0.5) * op.steps / count
        strip = np.minimum(at.astype(np.int64), op.steps - 1)
        places = lines[strip] + (lines[strip + 1] - lines[strip]) * (at - strip) - 0.5
        along.append(np.rint(places * 256).astype(np.int64))
    return [np.broadcast_to(along[0], shape[:2]), np.broadcast_to(along[1][:, None], shape[:2])]


PLACES: dict[type, Any] = {ElasticTransform: elastic_places, GridDistortion: grid_places}


def seen(image: np.ndarray, y: np.ndarray, x: np.ndarray, op: Any) -> np.ndarray:
    """Pixels at any integer places: int64 (height, width, channels)."""
    inside = np.ones(y.shape, bool)
    places = []
    for at, length in ((y, image.shape[0]), (x, image.shape[1])):
        inside &= (at >= 0) & (at < length)
        if op.border in ("constant", "edge"):
            places.append(np.clip(at, 0, length - 1))
            continue
        turn = int(op.border == "symmetric")
        period = max(2 * (length - 1 + turn), 1)
        places.append(np.minimum(at % period, period - turn - at % period))
    pixels = image[places[0], places[1]].astype(np.int64)
    if op.border == "constant":
        pixels[~inside] = shade(op.fill, image.shape[2])
    return pixels


def distorted(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    x, y = PLACES[type(op)](op, values, row, image.shape)
    if op.filter == "nearest":
        return seen(image, (y + 128) >> 8, (x + 128) >> 8, op).astype(np.uint8)
    left, top, across, down = x >> 8, y >> 8, (x & 255)[..., None], (y & 255)[..., None]
    a, b = seen(image, top, left, op), seen(image, top, left + 1, op)
    c, d = seen(image, top + 1, left, op), seen(image, top + 1, left + 1, op)
    above, below = a * (256 - across) + b * across, c * (256 - across) + d * across
    return ((above * (256 - down) + below * down + (1 << 15)) >> 16).astype(np.uint8)


KERNELS = {ElasticTransform: distorted, GridDistortion: distorted}
