"""Moves masks with nearest-neighbor sampling, as their images' pixels move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastfeed.ops.move_boxes import Stage
from helpers.opencv_ops.warps import warp


def mask_after(
    stages: Sequence[Stage], row: int, mask: np.ndarray, ignore: int = 255
) -> np.ndarray:
    """A mask uint8 (height, width) of the displayed image after all stages: the nearest value
    everywhere.

    Pixels outside the image (borders of any mode, corners after a rotation) become `ignore`.
    """
    for stage in stages:
        back, size = stage.back[row], tuple(stage.sizes[row].tolist())
        straight = back[0, 1] == back[1, 0] == back[2, 0] == back[2, 1] == 0
        if (
            straight
            and size == mask.shape
            and np.array_equal(back, np.eye(3))
            and _is_uncropped(stage.limits[row], size)
        ):
            continue
        if straight:
            mask = _looked_up(mask, back, size, stage.limits[row], ignore)
        else:
            mask = warp(mask, back, "nearest", (ignore,), shape=size)
    return mask


def _is_uncropped(limit: np.ndarray, size: tuple[int, ...]) -> bool:
    """Whether all of the image exists: an earlier crop may have cut off what a border lies over
    now.
    """
    return bool((limit[:2] <= 0).all() and (limit[:2] + limit[2:] >= size).all())


def _looked_up(
    mask: np.ndarray, back: np.ndarray, size: tuple[int, ...], limit: np.ndarray, ignore: int
) -> np.ndarray:
    """Through a matrix that only scales, mirrors and moves: rows, then columns."""
    outside = []
    for axis, k in ((0, 1), (1, 0)):
        pixels, at = _nearest(back[k, k], back[k, 2], size[axis])
        low, high = (
            max(float(limit[axis]), 0.0),
            min(float(limit[axis] + limit[2 + axis]), mask.shape[axis]),
        )
        outside.append((at < low) | (at >= high))
        mask = mask.take(np.clip(pixels, 0, mask.shape[axis] - 1), axis=axis)
    mask[outside[0]] = ignore
    mask[:, outside[1]] = ignore
    return mask


def _nearest(scale: float, shift: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The pixels that Pillow's nearest filter takes, and the places in them; both (count,)."""
    length = abs(scale) * count
    if abs(length - round(length)) < 1e-6:  # of a window of whole pixels
        length = round(length)
    start = shift - length if scale < 0 else shift
    whole = np.floor(start)
    steps = np.full(count, length / count)
    steps[0] = start - whole + steps[0] / 2
    at = np.cumsum(steps)[:: -1 if scale < 0 else 1]
    return (whole + np.floor(at)).astype(np.int64), whole + at
