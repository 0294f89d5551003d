"""Moves masks the way their image's pixels move, without interpolating between values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fastfeed.ops.move_boxes import Stage
from fastfeed.runtime.extension import extension


def mask_after(
    stages: Sequence[Stage],
    row: int,
    mask: np.ndarray,
    ignore: int = 255,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """A mask after all stages, by the value of the nearest pixel, in `out` or new memory.

    mask: uint8 (height, width) of the displayed image.

    Pixels outside the image (borders of any mode, corners after a rotation) become `ignore`.
    """
    back, sizes, limits = stage_arrays(stages, row, "back")
    out = np.empty(sizes[-1], np.uint8) if out is None else out
    extension().move_mask(np.ascontiguousarray(mask), back, sizes, limits, ignore, out)
    return out


def stage_arrays(
    stages: Sequence[Stage], row: int, direction: Literal["forward", "back"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrices (k, 3, 3), sizes (k, 2) and limits (k, 4) of one image."""
    names = (direction, "sizes", "limits")
    matrices, sizes, limits = (
        np.stack([getattr(stage, name)[row] for stage in stages]) for name in names
    )
    return matrices, sizes, limits
