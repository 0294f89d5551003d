"""The work of a chain on each sample as a row of numbers, the form in which it enters a DALI graph.

A program's layers, their ops and the names of their values never change, so every number has a
fixed place in the row. One input carries all of them, and a conditional split takes it along with
the images.
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

# by type of op: (op, its params of n samples, OpContext) -> arrays (n, ...) that its lowering gets
# instead
Feeds = dict[type, Callable[[Any, Any, OpContext], dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class RowSlice:
    """The place of a value in the row."""

    start: int
    shape: tuple[int, ...]

    def of(self, row: Any) -> Any:
        """This part of the graph's row; a number if the value is one."""
        if not self.shape:
            return row[self.start]
        part = row[self.start : self.start + math.prod(self.shape)]
        return part if len(self.shape) == 1 else fn.reshape(part, shape=list(self.shape))


class RowLayout:
    """Hands out places in a row, in the order in which `numbers` fills it."""

    def __init__(self) -> None:
        self._next = 0

    def of(
        self, layer: Layer, choices: Choices, context: OpContext, feeds: Feeds
    ) -> tuple[RowSlice, tuple[Any, ...]]:
        """Return the slices of one layer: of the choice, and of each op's values.

        `choices` may be of any samples.
        """
        choice, *values = self._slices(feed_values(layer, choices, context, feeds))
        return choice, tuple(values)

    def _slices(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._slices(item) for name, item in value.items()}
        if isinstance(value, tuple):
            return tuple(self._slices(item) for item in value)
        row_slice = RowSlice(self._next, np.shape(value)[1:])
        self._next += math.prod(row_slice.shape)
        return row_slice


def numbers(
    layers: list[tuple[Layer, OpContext]], choices: list[Choices], feeds: Feeds
) -> np.ndarray:
    """One row per sample, float32 (n, numbers); integers are exact up to 2 ** 24."""
    n = len(choices[0].choice)
    parts: list[Any] = []
    for (layer, context), chosen in zip(layers, choices, strict=True):
        parts += _leaves(feed_values(layer, chosen, context, feeds))
    return np.concatenate([np.asarray(part, np.float32).reshape(n, -1) for part in parts], axis=1)


def feed_values(
    layer: Layer, choices: Choices, context: OpContext, feeds: Feeds
) -> tuple[Any, ...]:
    """The choice, with the number of ops for no op, and each op's values."""
    feeds_of_layer: list[Any] = [np.where(choices.choice < 0, len(layer.ops), choices.choice)]
    for op, values in zip(layer.ops, choices.values, strict=True):
        feeds_of_layer.append(feeds[type(op)](op, values, context) if type(op) in feeds else values)
    return tuple(feeds_of_layer)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value
