"""Examples of the ops that hide parts of an image, and their meaning pixel by pixel."""

from typing import Any

import numpy as np

from fastfeed.ops.base import shade
from fastfeed.ops.erasing import CutOut, GridMask, RandomErasing
from fastfeed.ops.noise_table import LENGTH, normal
from helpers.meaning import SAME, Meaning

EXAMPLES = {
    RandomErasing: [
        RandomErasing(),
        RandomErasing(0.9, fill=(124, 116, 104)),
        RandomErasing(0.8, [0.1, 0.9], [0.2, 5.0], "noise"),
        RandomErasing(0.9, fill="color"),
    ],
    CutOut: [CutOut(8), CutOut(13, fill=[10, 200, 30])],
    GridMask: [
        GridMask((10, 20)),
        GridMask([2, 7], 0.3, (255, 1, 2)),
        GridMask(),
        GridMask((5, 5), 0.95),
    ],
}


def erasing(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    top, left, height, width = values["box"][row]
    y, x = np.indices(image.shape[:2])
    hidden = (y >= top) & (y < top + height) & (x >= left) & (x < left + width)
    if op.fill == "noise":
        where = (values["offset"][row] + np.arange(image.size)) % LENGTH
        shown = np.clip(np.rint(127.5 + 57.5 * normal()[where].reshape(image.shape)), 0, 255)
    elif op.fill == "color":
        shown = values["color"][row, : image.shape[2]]
    else:
        shown = np.array(shade(op.fill, image.shape[2]))
    return np.where(hidden[:, :, None], shown, image).astype(np.uint8)


def grid(op: Any, values: dict[str, Any], row: int, image: np.ndarray) -> np.ndarray:
    unit, share, top, left = (values[name][row] for name in ("unit", "share", "top", "left"))
    y, x = np.indices(image.shape[:2])
    hidden = ((y - top) % unit < share * unit - 0.5) & ((x - left) % unit < share * unit - 0.5)
    return np.where(hidden[:, :, None], np.array(shade(op.fill, image.shape[2])), image).astype(
        np.uint8
    )


MEANING = {
    RandomErasing: Meaning(erasing, 0, source="formula"),
    CutOut: Meaning(erasing, 0, source="formula"),
    GridMask: Meaning(grid, 0, source="formula"),
}
ON_DALI = {RandomErasing: SAME, CutOut: SAME, GridMask: SAME}
