"""Mixes finished samples and their labels (MixUp, CutMix, Mosaic) by an `ops.mix.MixPlan`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.ops.mix import BLEND, MOSAIC, PASTE, MixPlan

_AT_ONCE = 32  # rows blended at once: bounds the memory for floats


def mix(
    samples: Any, members: np.ndarray, plan: MixPlan, out: Any, xp: Any = np, layout: str = "HWC"
) -> None:
    """Fill out (n, *shape) from rows of samples (m, *shape).

    The rows are `members` (int64 (n, group)), the sample itself first.

    Both are bytes or floats of one dtype and layout, and arrays of `xp`: NumPy's, or CuPy's on a
    device. They may not overlap. Bytes are rounded to the nearest.
    """
    for row, how in enumerate(plan.how):
        own, *others = members[row]
        if how == BLEND:
            continue
        if how == MOSAIC:
            top, left = (int(v) for v in plan.box[row, :2])
            _mosaic([samples[member] for member in members[row]], top, left, out[row], layout)
            continue
        out[row] = samples[own]
        if how == PASTE:
            top, left, height, width = (int(v) for v in plan.box[row])
            region = _at(layout, slice(top, top + height), slice(left, left + width))
            out[row][region] = samples[others[0]][region]
    rows = np.flatnonzero(plan.how == BLEND)
    for begin in range(0, len(rows), _AT_ONCE):
        chunk = rows[begin : begin + _AT_ONCE]
        out[xp.asarray(chunk)] = _blended(samples, members[chunk], plan.shares[chunk], xp)


def mix_labels(labels: np.ndarray, members: np.ndarray, plan: MixPlan) -> np.ndarray:
    """Labels float32 (n, ...) mixed from the rows of labels (m, ...) in members."""
    shares = plan.shares.astype(np.float32).reshape(*plan.shares.shape, *[1] * (labels.ndim - 1))
    out = labels[members[:, 0]] * shares[:, 0]
    for j in range(1, members.shape[1]):
        rows = np.flatnonzero(plan.shares[:, j])
        out[rows] += labels[members[rows, j]] * shares[rows, j]
    return out


def _blended(samples: Any, members: np.ndarray, shares: np.ndarray, xp: Any) -> Any:
    own = xp.asarray(shares[:, 0].astype(np.float32)).reshape(-1, *[1] * (samples.ndim - 1))
    first, second = (samples[xp.asarray(members[:, j])].astype(np.float32) for j in (0, 1))
    blended = first * own + second * (1 - own)
    return (xp.rint(blended) if samples.dtype == np.uint8 else blended).astype(samples.dtype)


def _mosaic(images: list[Any], top: int, left: int, out: Any, layout: str) -> None:
    """Four unscaled images that meet at (top, left), each cropped to its quarter."""
    height, width = out.shape[:2] if layout == "HWC" else out.shape[1:]
    above = (slice(0, top), slice(height - top, height))
    below = (slice(top, height), slice(0, height - top))
    before = (slice(0, left), slice(width - left, width))
    behind = (slice(left, width), slice(0, width - left))
    quarters = [(y, x) for y in (above, below) for x in (before, behind)]
    for image, ((to_y, from_y), (to_x, from_x)) in zip(images, quarters, strict=True):
        out[_at(layout, to_y, to_x)] = image[_at(layout, from_y, from_x)]


def _at(layout: str, rows: slice, columns: slice) -> tuple[slice, ...]:
    return (rows, columns) if layout == "HWC" else (slice(None), rows, columns)
