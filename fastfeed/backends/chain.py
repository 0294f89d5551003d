"""The chain of a program on one image after another, on the processor."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from fastfeed.backends.kernels import KERNELS, MEASURED, TABLES
from fastfeed.ops.layers import Layer, Taken

__all__ = ["change", "look_up", "run"]


def run(
    layers: Sequence[Layer], taken: Sequence[Taken], row: int, image: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """The image after all layers, and the table that is left to be applied to it: neighboring tables become one.

    image: uint8 (height, width, channels), which may be overwritten.
    """
    table: np.ndarray | None = None
    for layer, one in zip(layers, taken, strict=True):
        k = int(one.choice[row])
        if k < 0:
            continue
        op, values = layer.ops[k], one.values[k]
        kind = type(op)
        if kind in TABLES:
            table = _after(table, TABLES[kind](op, values, row))
            continue
        if table is not None:
            image, table = look_up(image, table), None
        if kind in MEASURED:
            table = MEASURED[kind](op, values, row, image)
        else:
            image = KERNELS[kind](op, values, row, image)
    return image, table


def look_up(image: np.ndarray, table: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Every byte replaced by what the table holds for it, in place unless `out` is given; table (256,) or (256, c)."""
    target = image if out is None else out
    cv2.LUT(image, table if table.ndim == 1 else table[None], dst=target)
    return target


def change(
    layers: Sequence[Layer], taken: Sequence[Taken], bad: Sequence[object], pixels: np.ndarray, out: np.ndarray
) -> None:
    """All images after all layers, as bytes; pixels may be overwritten, those that are bad are left out."""
    for row, why in enumerate(bad):
        if why is None:
            image, table = run(layers, taken, row, pixels[row])
            out[row] = image if table is None else look_up(image, table)


def _after(first: np.ndarray | None, then: np.ndarray) -> np.ndarray:
    """One table for two."""
    if first is None:
        return then
    if then.ndim == 1:
        return then[first]
    return np.take_along_axis(then, first if first.ndim == 2 else first[:, None].repeat(then.shape[1], 1), axis=0)
