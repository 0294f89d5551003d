"""Moves masks the way their image's pixels move, without interpolating between values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastfeed.ops.move_boxes import Stage
from fastfeed.runtime.extension import extension


def mask_after(
    stages: Sequence[Stage], row: int, mask: np.ndarray, ignore: int = 255
) -> np.ndarray:
    """A mask after all stages, by the value of the nearest pixel.

    mask: uint8 (height, width) of the displayed image.

    Pixels outside the image (borders of any mode, corners after a rotation) become `ignore`.
    """
    back, sizes, limits = (
        np.stack([getattr(stage, name)[row] for stage in stages])
        for name in ("back", "sizes", "limits")
    )
    out = np.empty(sizes[-1], np.uint8)
    extension().move_mask(np.ascontiguousarray(mask), back, sizes, limits, ignore, out)
    return out
