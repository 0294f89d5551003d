"""What changes of pixels come to: layers, at each of which every sample takes one op or none.

A policy that chooses an op per sample is data like anything else: which of a layer's ops, and the parameters of each.
Backends see simple ops alone; what they can run is one table by type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.ops.program.window import Window

__all__ = ["Choices", "Layer", "choose", "layers", "simple"]


@dataclass(frozen=True, slots=True)
class Layer:
    """What may happen at one point: simple ops, of which a sample takes at most one."""

    ops: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """What does happen there, to n samples."""

    choice: np.ndarray  # int64 (n,): index into the layer's ops; -1 for none
    values: tuple[dict[str, Any], ...]  # per op of the layer its params: arrays (n, ...), or tuples and Choices of such

    def __getitem__(self, rows: Any) -> Choices:
        return Choices(self.choice[rows], _rows(self.values, rows))


def simple(op: Any) -> bool:
    """It is no composite."""
    return not hasattr(op, "choose")


def layers(op: Any) -> tuple[Layer, ...]:
    """Of any op that changes or moves pixels."""
    if not simple(op):
        return op.layers
    return (Layer((Window.of(op) if op.kind == "geometry" else op,)),)


def choose(op: Any, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
    """One per layer, from its draws (float64 (n, draws)) and (height, width) of what arrives (int64 (n, 2))."""
    if not simple(op):
        return op.choose(u, sizes)
    values = op.params(u, sizes)
    if op.kind == "geometry":
        values = values | {"limit": np.concatenate([np.zeros_like(sizes), sizes], axis=1).astype(np.float64)}
    return [Choices(np.zeros(len(sizes), np.int64), (values,))]


def _rows(value: Any, rows: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rows(item, rows) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_rows(item, rows) for item in value)
    return value[rows]
