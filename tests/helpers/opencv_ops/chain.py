"""A program's layers on one image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastfeed.ops.program.layers import Choices, Layer
from helpers.opencv_ops.kernels import KERNELS, MEASURED, NESTED, TABLES
from helpers.opencv_ops.lookup import look_up


def run(
    layers: Sequence[Layer], choices: Sequence[Choices], row: int, image: np.ndarray
) -> np.ndarray:
    """The image, uint8 (height, width, channels), after all layers; it may be overwritten."""
    for layer, chosen in zip(layers, choices, strict=True):
        k = int(chosen.choice[row])
        if k < 0:
            continue
        op = layer.ops[k]
        values = chosen.values[k]
        kind = type(op)
        if kind in TABLES:
            image = look_up(image, TABLES[kind](op, values, row))
        elif kind in MEASURED:
            image = look_up(image, MEASURED[kind](op, values, row, image))
        elif kind in NESTED:
            image = NESTED[kind](op, values, row, image, run)
        else:
            image = KERNELS[kind](op, values, row, image)
    return image
