"""Ops that change pixels as layers; at each layer a sample takes one op or none.

A policy that chooses an op per sample is data: the index of a layer's op, and the parameters of
each op. Backends see only simple ops, and look up in one table by type which they can run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.ops.program.window import Window

__all__ = ["Choices", "Layer", "choose", "layers", "simple"]


@dataclass(frozen=True, slots=True)
class Layer:
    """One point of the chain: simple ops, of which a sample takes at most one."""

    ops: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The ops that n samples take at a layer, with parameters."""

    choice: np.ndarray  # int64 (n,): index into the layer's ops; -1 for none
    # per op of the layer its params: arrays (n, ...), or tuples and Choices of such
    values: tuple[dict[str, Any], ...]

    def __getitem__(self, rows: Any) -> Choices:
        return Choices(self.choice[rows], _rows(self.values, rows))


def simple(op: Any) -> bool:
    """True if an op is not a composite."""
    return not hasattr(op, "choose")


def layers(op: Any) -> tuple[Layer, ...]:
    """The layers of any op that changes or moves pixels."""
    if not simple(op):
        return op.layers
    return (Layer((Window.of(op) if op.kind == "geometry" else op,)),)


def choose(op: Any, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
    """Choices of an op, one per layer.

    u: its draws, float64 (n, draws). sizes: (height, width) of the input, int64 (n, 2).
    """
    if not simple(op):
        return op.choose(u, sizes)
    values = op.params(u, sizes)
    if op.kind == "geometry":
        values = values | {
            "limit": np.concatenate([np.zeros_like(sizes), sizes], axis=1).astype(np.float64)
        }
    return [Choices(np.zeros(len(sizes), np.int64), (values,))]


def _rows(value: Any, rows: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rows(item, rows) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_rows(item, rows) for item in value)
    return value[rows]
