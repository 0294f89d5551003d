"""The chain behind decoding in a DALI graph: at each layer every sample takes one op, and pays for no other.

The batch is split by each sample's choice, as a binary tree, and merged again; images stay uint8 HWC between ops. What
an op is in DALI's terms stands in the tables LOWERING of `dali_colors`, `dali_filters`, `dali_warps` and the like.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from fastfeed.backends import dali_colors
from fastfeed.backends.dali_here import fn
from fastfeed.backends.dali_rows import Plan, numbers, plan
from fastfeed.backends.dali_terms import At
from fastfeed.errors import ConfigError
from fastfeed.ops.function import Function
from fastfeed.ops.layers import Taken, simple
from fastfeed.ops.program import Program

__all__ = ["FEEDS", "LOWERING", "change", "check", "rows"]

_MODULES: tuple[Any, ...] = (dali_colors,)
# (op, values as nodes of the graph, image, At) -> image, all uint8 HWC
LOWERING: dict[type, Any] = {kind: made for module in _MODULES for kind, made in module.LOWERING.items()}
# (op, params of n samples) -> what its lowering gets instead of them, arrays (n, ...)
FEEDS: dict[type, Any] = {kind: made for module in _MODULES for kind, made in getattr(module, "FEEDS", {}).items()}


def check(program: Program) -> None:
    """ConfigError where a chain holds what DALI cannot do."""
    for layer in program.layers:
        for op in layer.ops:
            if isinstance(op, Function):
                raise ConfigError(
                    f'backend="dali" cannot run {op!r}, a function of your own that works on one NumPy image; '
                    'use backend="cpu"'
                )
            if type(op) not in LOWERING:
                raise ConfigError(f'backend="dali" cannot run {op!r}: DALI has nothing like it; use backend="cpu"')


def rows(program: Program, taken: Sequence[Taken]) -> np.ndarray:
    """What `change` is fed, float32 (n, numbers)."""
    return numbers(program.layers, taken, FEEDS)


def change(pixels: Any, row: Any, program: Program, gpu: bool) -> Any:
    """The whole chain."""
    plans = iter(_plans(program))
    for link in program.chain:
        height, width = (side or 0 for side in link.given.size)
        op = link.steps[0].op
        every = op.kind == "geometry" or simple(op)
        at = At((height, width), link.given.channels or 3, gpu)
        for _ in link.layers:
            pixels = layer(pixels, row, next(plans), at, every)
    return pixels


def layer(pixels: Any, row: Any, plan: Plan, at: At, every: bool = False) -> Any:
    """One layer; every: there is one op, and all samples take it."""

    def last(k: int, pixels: Any, row: Any) -> Any:
        if k == len(plan.layer.ops):
            return pixels
        op = plan.layer.ops[k]
        return fn.reshape(LOWERING[type(op)](op, _Values(plan.values[k], row), pixels, at), layout="HWC")

    def among(first: int, final: int, pixels: Any, row: Any) -> Any:
        if first == final:
            return last(first, pixels, row)
        middle = (first + final) // 2
        low = plan.choice.of(row) <= float(middle)
        # what DALI's own `if` statements become; its public form rewrites source code and cannot be used from a loop
        parts = [fn._conditional.split(data, predicate=low, _if_stmt=True) for data in (pixels, row)]
        (low_pixels, high_pixels), (low_row, high_row) = parts
        return fn._conditional.merge(
            among(first, middle, low_pixels, low_row), among(middle + 1, final, high_pixels, high_row), predicate=low
        )

    return last(0, pixels, row) if every else among(0, len(plan.layer.ops), pixels, row)


class _Values:
    """An op's values as nodes of the graph, made where they are asked for: inside its branch."""

    __slots__ = ("_places", "row")

    def __init__(self, places: dict[str, Any], row: Any) -> None:
        self._places, self.row = places, row

    def __getitem__(self, name: str) -> Any:
        found = self._places[name]
        return found.of(self.row) if hasattr(found, "of") else found


@cache
def _plans(program: Program) -> tuple[Plan, ...]:
    one = program.work(program.draw(lambda slot, n: np.zeros((1, n))), np.ones((1, 2), np.int64))
    return plan(program.layers, one.taken, FEEDS)
