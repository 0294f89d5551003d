"""Ops that change pixels as layers; at each layer a sample takes one op or none.

A policy that chooses an op per sample is data: the index of a layer's op, and the parameters of
each op. Backends see only simple ops, and look up in one table by type which they can run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.ops.base import full_boxes
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
    if op.kind == "geometry":
        return (Layer((Window.of(op),)),)
    return (Layer((op,)),) if simple(op) else op.layers


def choose(op: Any, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
    """Choices of an op, one per layer.

    u: its draws, float64 (n, draws). sizes: (height, width) of the input, int64 (n, 2).
    """
    if op.kind != "geometry":
        every = np.zeros(len(sizes), np.int64)
        return [Choices(every, (op.params(u, sizes),))] if simple(op) else op.choose(u, sizes)
    values = op.params(u, sizes)
    limit = full_boxes(sizes)
    moves = (
        (values["box"] != limit).any(axis=1)
        | (values["size"] != sizes).any(axis=1)
        | values["flip"].any(axis=1)
    )
    return [Choices(np.where(moves, 0, -1), (values | {"limit": limit},))]


def _rows(value: Any, rows: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rows(item, rows) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_rows(item, rows) for item in value)
    return value[rows]
