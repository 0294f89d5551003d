"""The ops after decoding, as a DALI graph: at each layer a sample runs only the op it takes.

The batch is split by each sample's choice, as a binary tree, and merged again; images stay uint8
HWC between ops. The tables of the modules imported below define each op in DALI.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fastfeed.backends.dali import colors, erasing, filters, warps, windows
from fastfeed.backends.dali.arithmetic import OpContext, rounded
from fastfeed.backends.dali.imports import fn, types
from fastfeed.errors import ConfigError
from fastfeed.ops.augmix import AugMix
from fastfeed.ops.function import Function
from fastfeed.ops.program.layers import Choices, Layer, simple
from fastfeed.ops.program.program import Program, Work

_MODULES: tuple[Any, ...] = (colors, erasing, filters, warps, windows)


def _all(name: str) -> dict[type, Any]:
    return {kind: made for module in _MODULES for kind, made in getattr(module, name, {}).items()}


# (op, values as nodes of the graph, image, OpContext) -> image, all uint8 HWC
LOWERING = _all("LOWERING")
# (op, its params of n samples, OpContext) -> arrays (n, ...) that its lowering gets instead
FEEDS = _all("FEEDS")
# (op) -> True if DALI has no equivalent for its arguments
LACKING = _all("LACKING")
# (op, params of n samples, row, OpContext) -> noise, int16 HWC: values["grain"] for the lowering
GRAIN = _all("GRAIN")


def check(program: Program) -> None:
    """Raise ConfigError if a program has an op that DALI cannot run."""
    program.refuse_per_image('backend="dali"')
    for op in [op for layer in program.layers for op in layer.ops]:
        if isinstance(op, Function):
            raise ConfigError(
                f'backend="dali" cannot run {op!r}, your own function on one NumPy image; use'
                ' backend="cpu"',
                field="backend",
            )
        if type(op) not in LOWERING or (type(op) in LACKING and LACKING[type(op)](op)):
            raise ConfigError(
                f'backend="dali" cannot run {op!r}, DALI has no equivalent; use backend="cpu"',
                field="backend",
            )


@dataclass(frozen=True, slots=True)
class _ChainLayer:
    """One layer: its context, and where its parameters are in the inputs."""

    layer: Layer
    context: OpContext
    is_single: bool  # it has one op, which all samples take
    choice: RowSlice
    values: tuple[Any, ...]  # per op, as its params but with a RowSlice for each array
    grain: str  # the input that has its noise; "" for none


class Chain:
    """The chain of a program, for one device."""

    def __init__(self, program: Program, gpu: bool) -> None:
        self._stages = _stages(program, gpu)

    @property
    def inputs(self) -> dict[str, dict[str, Any]]:
        """The external inputs that `feed` fills: name -> declaration."""
        if not self._stages:
            return {}
        grain = {"dtype": types.INT16, "ndim": 3, "layout": "HWC"}
        noisy = {stage.grain: grain for stage in self._stages if stage.grain}
        return {"chain": {"dtype": types.FLOAT, "ndim": 1}} | noisy

    def feed(self, work: Work) -> dict[str, Any]:
        """Values of these inputs for a batch."""
        if not self._stages:
            return {}
        values: dict[str, Any] = {}
        parts: list[Any] = []
        for stage, choices in zip(self._stages, work.choices, strict=True):
            _mapped(feed_values(stage.layer, choices, stage.context), parts.append)
            if stage.grain:
                values[stage.grain] = _grain(stage, choices)
        # one row per sample; integers are exact up to 2 ** 24
        n = len(work.choices[0].choice)
        rows = [np.asarray(part, np.float32).reshape(n, -1) for part in parts]
        return {"chain": np.concatenate(rows, axis=1), **values}

    def change(self, pixels: Any, nodes: dict[str, Any]) -> Any:
        """Images after all layers; nodes: the inputs as graph nodes."""
        for stage in self._stages:
            inputs = {"row": nodes["chain"]} | (
                {"grain": nodes[stage.grain]} if stage.grain else {}
            )
            pixels = _layer(stage, {"pixels": pixels} | inputs)
        return pixels


def _layer(stage: _ChainLayer, data: dict[str, Any]) -> Any:
    """Run one layer on pixels and the data of the same samples."""

    def run_op(k: int, data: dict[str, Any]) -> Any:
        if k == len(stage.layer.ops):
            return data["pixels"]
        op = stage.layer.ops[k]
        values = OpValues(stage.values[k], data["row"], data.get("grain"))
        return fn.reshape(
            LOWERING[type(op)](op, values, data["pixels"], stage.context), layout="HWC"
        )

    def split(first: int, last: int, data: dict[str, Any]) -> Any:
        if first == last:
            return run_op(first, data)
        middle = (first + last) // 2
        low = stage.choice.of(data["row"]) <= float(middle)
        # DALI compiles `if` statements to this; the public form rewrites source code and cannot be
        # built in a loop
        parts = {
            name: fn._conditional.split(node, predicate=low, _if_stmt=True)
            for name, node in data.items()
        }
        yes, no = ({name: pair[side] for name, pair in parts.items()} for side in (0, 1))
        return fn._conditional.merge(
            split(first, middle, yes), split(middle + 1, last, no), predicate=low
        )

    return run_op(0, data) if stage.is_single else split(0, len(stage.layer.ops), data)


class OpValues:
    """An op's values as graph nodes, created on access, inside the op's branch.

    Constants in a branch must be created here, too; otherwise they would have the size of the whole
    batch.
    """

    __slots__ = ("_grain", "row", "slices")

    def __init__(self, slices: dict[str, Any], row: Any, grain: Any = None) -> None:
        self.slices = slices
        self.row = row
        self._grain = grain

    def __getitem__(self, name: str) -> Any:
        return self._grain if name == "grain" else self.slices[name].of(self.row)


def _chains(op: AugMix, values: dict[str, Any], context: OpContext) -> dict[str, Any]:
    """The values of all versions, layer by layer as in `feed_values`."""
    both = [zip(op.chain, chain, strict=True) for chain in values["chains"]]
    versions = (tuple(feed_values(*pair, context) for pair in chain) for chain in both)
    return {"shares": values["shares"], "chains": tuple(versions)}


def _augmix(op: AugMix, values: OpValues, image: Any, context: OpContext) -> Any:
    """Blend the versions, each after its chain, by their shares."""
    shares = values["shares"]
    total = image * shares[0]
    for k, slices in enumerate(values.slices["chains"], 1):
        version = image
        for layer, (choice, *ops) in zip(op.chain, slices, strict=True):
            version = _layer(
                _ChainLayer(layer, context, False, choice, tuple(ops), ""),
                {"pixels": version, "row": values.row},
            )
        total = total + version * shares[k]
    return rounded(total)


LOWERING[AugMix] = _augmix
FEEDS[AugMix] = _chains


def _grainy(op: Any) -> bool:
    return type(op) in GRAIN and getattr(op, "fill", "noise") == "noise"


def _grain(stage: _ChainLayer, choices: Choices) -> list[np.ndarray]:
    """Each sample's noise: samples that take another op have a minimal array."""
    none = np.zeros((1, 1, stage.context.channels), np.int16)
    noise = [none] * len(choices.choice)
    for k, op in enumerate(stage.layer.ops):
        if _grainy(op):
            for row in np.flatnonzero(choices.choice == k).tolist():
                noise[row] = GRAIN[type(op)](op, choices.values[k], row, stage.context)
    return noise


@lru_cache(16)
def _stages(program: Program, gpu: bool) -> tuple[_ChainLayer, ...]:
    """Build the stages from any samples' params: their shapes are always the same."""
    some = program.work(program.draw(lambda slot, n: np.full((1, n), 0.5)), np.array([[64, 64]]))
    stages, taken, choices = [], 0, iter(some.choices)

    def placed(value: np.ndarray) -> RowSlice:
        nonlocal taken
        row_slice = RowSlice(taken, np.shape(value)[1:])
        taken += math.prod(row_slice.shape)
        return row_slice

    for link in program.chain:
        op = link.steps[0].op
        (height, width) = link.input_spec.size
        context = OpContext((height or 0, width or 0), link.input_spec.channels or 3, gpu)
        is_single = op.kind == "geometry" or simple(op)
        for layer in link.layers:
            grain = f"grain {len(stages)}" if any(_grainy(op) for op in layer.ops) else ""
            choice, *values = _mapped(feed_values(layer, next(choices), context), placed)
            stages.append(_ChainLayer(layer, context, is_single, choice, tuple(values), grain))
    return tuple(stages)


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


def feed_values(layer: Layer, choices: Choices, context: OpContext) -> tuple[Any, ...]:
    """The choice, with the number of ops for no op, and each op's values."""
    feeds_of_layer: list[Any] = [np.where(choices.choice < 0, len(layer.ops), choices.choice)]
    for op, values in zip(layer.ops, choices.values, strict=True):
        feeds_of_layer.append(FEEDS[type(op)](op, values, context) if type(op) in FEEDS else values)
    return tuple(feeds_of_layer)


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """Results of a function for every array in dicts and tuples, which keep their shape."""
    if isinstance(value, dict):
        return {name: _mapped(item, function) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_mapped(item, function) for item in value)
    return function(value)
