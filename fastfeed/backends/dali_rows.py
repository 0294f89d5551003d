"""What a chain is to do to a sample, as one row of numbers: the form in which it enters a DALI graph.

A program's layers, their ops and the names of their values never change, so every number has a fixed place in the row.
One input carries all of them, and a conditional split takes it along with the images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.backends.dali_here import fn
from fastfeed.ops.layers import Layer, Taken

__all__ = ["Place", "Plan", "numbers", "plan"]

Feed = Callable[[Any, dict[str, Any]], dict[str, Any]]  # (op, its params) -> what its lowering is fed


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


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the numbers of one layer lie."""

    layer: Layer
    choice: Place  # index of the op, or their number for none
    values: tuple[Any, ...]  # per op, as its params but with a Place for each array


def plan(layers: Sequence[Layer], sample: Sequence[Taken], feeds: dict[type, Feed]) -> tuple[Plan, ...]:
    """The places, for any samples of these layers; `sample` says of one what there is."""
    counted = _Counter()
    return tuple(_planned(counted, *both, feeds) for both in zip(layers, sample, strict=True))


def numbers(layers: Sequence[Layer], taken: Sequence[Taken], feeds: dict[type, Feed]) -> np.ndarray:
    """One row per sample, float32 (n, numbers); integers are exact up to 2 ** 24."""
    n = len(taken[0].choice)
    columns = [
        part for layer, one in zip(layers, taken, strict=True) for part in _leaves(_fed(layer, one, feeds))
    ]
    return np.concatenate([np.asarray(part, np.float32).reshape(n, -1) for part in columns], axis=1)


class _Counter:
    """Hands out places, in the order of `_leaves`."""

    def __init__(self) -> None:
        self._next = 0

    def place(self, array: np.ndarray) -> Place:
        found = Place(self._next, array.shape[1:])
        self._next += math.prod(found.shape)
        return found

    def places(self, value: Any) -> Any:
        """The same value with a Place for each array."""
        if isinstance(value, dict):
            return {name: self.places(one) for name, one in value.items()}
        if isinstance(value, tuple):
            return tuple(self.places(one) for one in value)
        return self.place(np.asarray(value))


def _planned(counted: _Counter, layer: Layer, one: Taken, feeds: dict[type, Feed]) -> Plan:
    choice, *values = counted.places(_fed(layer, one, feeds))
    return Plan(layer, choice, tuple(values))


def _fed(layer: Layer, one: Taken, feeds: dict[type, Feed]) -> tuple[Any, ...]:
    choice = np.where(one.choice < 0, len(layer.ops), one.choice)
    fed = []
    for op, values in zip(layer.ops, one.values, strict=True):
        feed = feeds.get(type(op))
        fed.append(values if feed is None else feed(op, values))
    return (choice, *fed)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _leaves(one)
    else:
        yield value
