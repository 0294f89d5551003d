"""What a chain is to do to a sample, as one row of numbers: the form in which it enters a DALI graph.

A program's layers, their ops and the names of their values never change, so every number has a fixed place in the row.
One input carries all of them, and a conditional split takes it along with the images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.backends.dali.arithmetic import At
from fastfeed.backends.dali.imports import fn
from fastfeed.ops.program.layers import Layer, Taken

__all__ = ["Feeds", "Place", "Places", "fed", "numbers"]

# by type of op: (op, its params of n samples, At) -> what its lowering gets instead, arrays (n, ...)
Feeds = dict[type, Callable[[Any, Any, At], dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lies in the row."""

    start: int
    shape: tuple[int, ...]

    def of(self, row: Any) -> Any:
        """That part of the graph's row; a number where the value is one."""
        if not self.shape:
            return row[self.start]
        part = row[self.start : self.start + math.prod(self.shape)]
        return part if len(self.shape) == 1 else fn.reshape(part, shape=list(self.shape))


class Places:
    """Hands out places in a row, in the order in which `numbers` fills it."""

    def __init__(self) -> None:
        self._next = 0

    def of(self, layer: Layer, one: Taken, at: At, feeds: Feeds) -> tuple[Place, tuple[Any, ...]]:
        """Those of one layer: of the choice, and of each op's values. `one` may be of any samples."""
        choice, *values = self._places(fed(layer, one, at, feeds))
        return choice, tuple(values)

    def _places(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._places(one) for name, one in value.items()}
        if isinstance(value, tuple):
            return tuple(self._places(one) for one in value)
        found = Place(self._next, np.shape(value)[1:])
        self._next += math.prod(found.shape)
        return found


def numbers(layers: list[tuple[Layer, At]], taken: list[Taken], feeds: Feeds) -> np.ndarray:
    """One row per sample, float32 (n, numbers); integers are exact up to 2 ** 24."""
    n = len(taken[0].choice)
    parts: list[Any] = []
    for (layer, at), one in zip(layers, taken, strict=True):
        parts += _leaves(fed(layer, one, at, feeds))
    return np.concatenate([np.asarray(part, np.float32).reshape(n, -1) for part in parts], axis=1)


def fed(layer: Layer, one: Taken, at: At, feeds: Feeds) -> tuple[Any, ...]:
    """The choice, where none is the number of ops, and each op's values."""
    found: list[Any] = [np.where(one.choice < 0, len(layer.ops), one.choice)]
    for op, values in zip(layer.ops, one.values, strict=True):
        found.append(feeds[type(op)](op, values, at) if type(op) in feeds else values)
    return tuple(found)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _leaves(one)
    else:
        yield value
