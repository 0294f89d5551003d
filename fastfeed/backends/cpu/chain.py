"""Runs a program's chain image by image on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastfeed.backends.cpu.kernels import ALONE, KERNELS, MEASURED, NARROW, NESTED, TABLES, lookup
from fastfeed.ops.program.layers import Choices, Layer

__all__ = ["change", "run"]


def run(
    layers: Sequence[Layer],
    choices: Sequence[Choices],
    row: int,
    image: np.ndarray,
    leave: bool = True,
) -> tuple[np.ndarray, np.ndarray | None]:
    """The image after all layers, and the lookup table still to be applied to it; neighboring
    tables are merged.

    image: uint8 (height, width, channels), which may be overwritten. leave: False if no lookup
    follows that could absorb a table; the returned table is None then.
    """
    table: np.ndarray | None = None
    chosen = [
        (layer, layer_choices, int(layer_choices.choice[row]))
        for layer, layer_choices in zip(layers, choices, strict=True)
    ]
    todo = [(layer.ops[k], layer_choices.values[k]) for layer, layer_choices, k in chosen if k >= 0]
    for i, (op, values) in enumerate(todo):
        kind = type(op)
        shared = type(todo[i + 1][0]) in TABLES if i + 1 < len(todo) else leave
        alone = None if shared else (ALONE if lookup.WIDE else ALONE | NARROW).get(kind)
        if kind in TABLES and not (alone and table is None):
            table = _after(table, TABLES[kind](op, values, row))
            continue
        if table is not None:
            image, table = lookup.look_up(image, table), None
        if alone:
            image = alone(op, values, row, image)
        elif kind in MEASURED:
            table = MEASURED[kind](op, values, row, image)
        elif kind in NESTED:
            image = NESTED[kind](op, values, row, image, run)
        else:
            image = KERNELS[kind](op, values, row, image)
    if table is not None and not leave:
        image, table = lookup.look_up(image, table), None
    return image, table


def change(
    layers: Sequence[Layer],
    choices: Sequence[Choices],
    bad: Sequence[object],
    pixels: np.ndarray,
    out: np.ndarray,
) -> None:
    """All images after all layers, as bytes; pixels may be overwritten, bad samples are skipped."""
    for row, why in enumerate(bad):
        if why is None:
            out[row] = run(layers, choices, row, pixels[row], leave=False)[0]


def _after(first: np.ndarray | None, then: np.ndarray) -> np.ndarray:
    """Compose two tables into one."""
    if first is None:
        return then
    if then.ndim == 1:
        return then[first]
    return np.take_along_axis(
        then, first if first.ndim == 2 else first[:, None].repeat(then.shape[1], 1), axis=0
    )
