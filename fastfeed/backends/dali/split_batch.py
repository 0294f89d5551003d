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

from fastfeed.backends.dali.arithmetic import OpContext
from fastfeed.backends.dali.imports import fn
from fastfeed.ops.program.layers import Choices, Layer

__all__ = ["Feeds", "RowLayout", "RowSlice", "feed_values", "numbers"]

# by type of op: (op, its params of n samples, OpContext) -> what its lowering gets instead, arrays (n, ...)
Feeds = dict[type, Callable[[Any, Any, OpContext], dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class RowSlice:
    """Where a value lies in the row."""

    start: int
    shape: tuple[int, ...]

    def of(self, row: Any) -> Any:
        """That part of the graph's row; a number where the value is one."""
        if not self.shape:
            return row[self.start]
        part = row[self.start : self.start + math.prod(self.shape)]
        return part if len(self.shape) == 1 else fn.reshape(part, shape=list(self.shape))


class RowLayout:
    """Hands out places in a row, in the order in which `numbers` fills it."""

    def __init__(self) -> None:
        self._next = 0

    def of(self, layer: Layer, one: Choices, context: OpContext, feeds: Feeds) -> tuple[RowSlice, tuple[Any, ...]]:
        """Those of one layer: of the choice, and of each op's values. `one` may be of any samples."""
        choice, *values = self._slices(feed_values(layer, one, context, feeds))
        return choice, tuple(values)

    def _slices(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._slices(one) for name, one in value.items()}
        if isinstance(value, tuple):
            return tuple(self._slices(one) for one in value)
        found = RowSlice(self._next, np.shape(value)[1:])
        self._next += math.prod(found.shape)
        return found


def numbers(layers: list[tuple[Layer, OpContext]], choices: list[Choices], feeds: Feeds) -> np.ndarray:
    """One row per sample, float32 (n, numbers); integers are exact up to 2 ** 24."""
    n = len(choices[0].choice)
    parts: list[Any] = []
    for (layer, context), one in zip(layers, choices, strict=True):
        parts += _leaves(feed_values(layer, one, context, feeds))
    return np.concatenate([np.asarray(part, np.float32).reshape(n, -1) for part in parts], axis=1)


def feed_values(layer: Layer, one: Choices, context: OpContext, feeds: Feeds) -> tuple[Any, ...]:
    """The choice, where none is the number of ops, and each op's values."""
    found: list[Any] = [np.where(one.choice < 0, len(layer.ops), one.choice)]
    for op, values in zip(layer.ops, one.values, strict=True):
        found.append(feeds[type(op)](op, values, context) if type(op) in feeds else values)
    return tuple(found)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _leaves(one)
    else:
        yield value
