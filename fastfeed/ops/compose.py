"""Ops composed of others: apply with a probability, choose one of several, or apply in sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import Kind, check_p, freeze, need_bytes
from fastfeed.ops.function import as_op
from fastfeed.ops.program.layers import Choices, Layer, choose, layers
from fastfeed.ops.program.window import Step, Window, fold
from fastfeed.spec import Spec

__all__ = ["Maybe", "OneOf", "Sequential"]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "Maybe(GaussianBlur(sigma=(2.0, 4.0)), 0.6)",
    "OneOf([Invert(), Grayscale(), Solarize(100)])",
    "Sequential([RandomFlip(), Brightness(0.5)])",
)


def _child(where: str, op: Any) -> Any:
    op = as_op(op)
    if isinstance(op, type) or not (hasattr(op, "kind") and hasattr(op, "out")):
        what = f"the class {op.__name__}; write {op.__name__}(...)" if isinstance(op, type) else repr(op)
        raise ConfigError(f"{where} must be an op such as RandomFlip() or a function, got {what}")
    if op.kind not in ("geometry", "change"):
        raise ConfigError(
            f"{where} must be an op that moves or changes pixels, such as RandomFlip() or ColorJitter(0.4), "
            f"got {op!r}; write it into the list of ops itself, where all samples take it"
        )
    return op


def _children(name: str, ops: Any) -> tuple[Any, ...]:
    if not isinstance(ops, (list, tuple)) or not ops:
        raise ConfigError(f"{name} ops must be a list of one op or more, such as [RandomFlip()], got {ops!r}")
    return tuple(_child(f"{name} ops[{i}]", op) for i, op in enumerate(ops))


def _kind(ops: Sequence[Any]) -> Kind:
    """Geometry if all ops fold into one window that needs no border."""
    folds = all(op.kind == "geometry" and getattr(op, "border", None) is None for op in ops)
    return "geometry" if folds else "change"


def _filters(ops: Sequence[Any]) -> list[str]:
    return [op.filter for op in ops if hasattr(op, "filter")]


def _filter(name: str, ops: Sequence[Any]) -> str:
    """The last one, as in a list of ops."""
    for filter in reversed(_filters(ops)):
        return filter
    raise AttributeError(f"nothing in this {name} is resampled")  # for hasattr, as with RandomFlip


def _keeps(parent: Any, op: Any, spec: Spec) -> None:
    """Raise if an op would give some samples a different size from the rest."""
    name, after = type(parent).__name__, op.out(spec)
    if after != spec:
        raise SpecError(
            f"{name} needs ops that keep the size, but {op!r} makes {after} of {spec}; "
            f"write it into the list of ops itself, before {name}"
        )


def _split(u: np.ndarray, first: int, ops: Sequence[Any]) -> list[np.ndarray]:
    """Each op's own columns, after the `first` ones."""
    ends = np.cumsum([first, *(op.draws for op in ops)])
    return [u[:, a:b] for a, b in pairwise(ends)]


def _window(op: Any) -> tuple[Layer, ...]:
    return (Layer((Window.of(op),)),)


def _cut(op: Any, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
    """Choices of a composite of geometry on pixels of one size: one window, or none where it changes nothing."""
    values = op.params(u, sizes)
    full_box = np.concatenate([np.zeros_like(sizes), sizes], axis=1).astype(np.float64)
    moves = (values["box"] != full_box).any(axis=1) | (values["size"] != sizes).any(axis=1) | values["flip"].any(axis=1)
    return [Choices(np.where(moves, 0, -1), (values | {"limit": full_box},))]


def _stay(sizes: np.ndarray) -> dict[str, np.ndarray]:
    box = np.concatenate([np.zeros_like(sizes), sizes], axis=1).astype(np.float64)
    return {"box": box, "size": sizes.astype(np.int64), "flip": np.zeros(sizes.shape, bool)}


@dataclass(frozen=True, slots=True)
class Maybe:
    """Apply an op with probability p: `Maybe(GaussianBlur(23), 0.1)`.

    The op may move or change pixels, be composed of others, or be a function. It must keep the size.
    """

    op: Any
    p: float = 0.5

    def __post_init__(self) -> None:
        freeze(self)
        object.__setattr__(self, "op", _child("Maybe op", self.op))
        check_p("Maybe p", self.p)

    @property
    def kind(self) -> Kind:
        return _kind((self.op,))

    @property
    def filter(self) -> str:
        return _filter("Maybe", (self.op,))

    @property
    def draws(self) -> int:
        return 1 + self.op.draws

    @property
    def layers(self) -> tuple[Layer, ...]:
        return _window(self) if self.kind == "geometry" else layers(self.op)

    def out(self, spec: Spec) -> Spec:
        if self.kind != "geometry":
            need_bytes(self, spec)
        _keeps(self, self.op, spec)
        return spec

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """Window parameters, if the op is geometry; other kinds have layers instead."""
        on, stay, move = (u[:, 0] < self.p)[:, None], _stay(sizes), self.op.params(u[:, 1:], sizes)
        return {name: np.where(on, move[name], value) for name, value in stay.items()}

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
        if self.kind == "geometry":
            return _cut(self, u, sizes)
        on = u[:, 0] < self.p
        return [
            Choices(np.where(on, layer_choices.choice, -1), layer_choices.values)
            for layer_choices in choose(self.op, u[:, 1:], sizes)
        ]


@dataclass(frozen=True, slots=True)
class OneOf:
    """Apply one of several ops to each sample, chosen at random.

        OneOf([GaussianBlur(5), JPEGCompression((30, 80))], weights=[3, 1])

    Weights are relative; without them all are equally likely. The ops may move or change pixels, be composed of others,
    or be functions. They must keep the size; ops that only crop or scale may all change it to the same new size.
    """

    ops: Sequence[Any]
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        freeze(self)
        object.__setattr__(self, "ops", _children("OneOf", self.ops))
        if self.weights is not None:
            object.__setattr__(self, "weights", self._checked(self.weights))

    def _checked(self, weights: Any) -> tuple[float, ...]:
        numbers = isinstance(weights, tuple) and all(
            isinstance(w, (int, float)) and not isinstance(w, bool) and w >= 0 for w in weights
        )
        if not numbers or len(weights) != len(self.ops) or not 0 < sum(weights) < math.inf:
            raise ConfigError(
                f"OneOf weights must be {len(self.ops)} numbers >= 0, one per op and not all 0, got {weights!r}"
            )
        return tuple(float(w) for w in weights)

    @property
    def kind(self) -> Kind:
        return _kind(self.ops) if len(set(_filters(self.ops))) <= 1 else "change"  # a window has one filter

    @property
    def filter(self) -> str:
        return _filter("OneOf", self.ops)

    @property
    def draws(self) -> int:
        return 1 + sum(op.draws for op in self.ops)

    @property
    def layers(self) -> tuple[Layer, ...]:
        if self.kind == "geometry":
            return _window(self)
        parts = [layers(op) for op in self.ops]
        depth = max(len(part) for part in parts)
        return tuple(Layer(tuple(op for part in parts if k < len(part) for op in part[k].ops)) for k in range(depth))

    def out(self, spec: Spec) -> Spec:
        if self.kind != "geometry":
            filters = ", ".join(sorted(set(_filters(self.ops))))
            if not spec.fixed and "," in filters and all(op.kind == "geometry" for op in self.ops):
                raise SpecError(
                    f"OneOf needs ops with one filter where images are of many sizes, got {filters}; "
                    "give all its ops the same, or put Resize((height, width)) before it"
                )
            need_bytes(self, spec)
            for op in self.ops:
                _keeps(self, op, spec)
            return spec
        after = [op.out(spec) for op in self.ops]
        for op, result in zip(self.ops, after, strict=True):
            if result != after[0]:
                raise SpecError(
                    f"OneOf needs ops that lead to one size, but {self.ops[0]!r} makes {after[0]} of {spec} and {op!r} "
                    f"makes {result}; give them the same size, or write what changes it into the list of ops itself"
                )
        return after[0]

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """Window parameters, if the op is geometry; other kinds have layers instead."""
        which, rows = self._which(u), np.arange(len(sizes))
        moves = [op.params(own, sizes) for op, own in zip(self.ops, _split(u, 1, self.ops), strict=True)]
        return {name: np.stack([move[name] for move in moves])[which, rows] for name in ("box", "size", "flip")}

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
        if self.kind == "geometry":
            return _cut(self, u, sizes)
        which, depth = self._which(u), len(self.layers)
        choices: list[np.ndarray] = [np.full(len(sizes), -1, np.int64) for _ in range(depth)]
        values: list[tuple[Any, ...]] = [()] * depth
        for i, (op, own) in enumerate(zip(self.ops, _split(u, 1, self.ops), strict=True)):
            for k, layer_choices in enumerate(choose(op, own, sizes)):
                here = (which == i) & (layer_choices.choice >= 0)
                choices[k] = np.where(here, layer_choices.choice + len(values[k]), choices[k])
                values[k] += layer_choices.values
        return [Choices(choice, value) for choice, value in zip(choices, values, strict=True)]

    def _which(self, u: np.ndarray) -> np.ndarray:
        """Index of the op, int64 (n,)."""
        if self.weights is None:
            return (u[:, 0] * len(self.ops)).astype(np.int64)
        ends = np.cumsum(self.weights)
        last = np.flatnonzero(self.weights)[-1]  # rounding may not lead beyond it
        return np.minimum(np.searchsorted(ends, u[:, 0] * ends[-1], side="right"), last)


@dataclass(frozen=True, slots=True)
class Sequential:
    """Apply several ops in order, as one op: `Maybe(Sequential([Grayscale(), GaussianBlur(5)]), 0.2)`.

    The ops may move or change pixels, be composed of others, or be functions. They must keep the size, unless all of
    them only crop, scale and flip.
    """

    ops: Sequence[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", _children("Sequential", self.ops))

    @property
    def kind(self) -> Kind:
        return _kind(self.ops)

    @property
    def filter(self) -> str:
        return _filter("Sequential", self.ops)

    @property
    def draws(self) -> int:
        return sum(op.draws for op in self.ops)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return _window(self) if self.kind == "geometry" else tuple(layer for op in self.ops for layer in layers(op))

    def out(self, spec: Spec) -> Spec:
        if self.kind != "geometry":
            need_bytes(self, spec)
            for op in self.ops:
                _keeps(self, op, spec)
            return spec
        for op in self.ops:
            spec = op.out(spec)
        return spec

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """Window parameters, if the op is geometry; other kinds have layers instead."""
        windows = fold([Step(op, None, 0) for op in self.ops], _split(u, 0, self.ops), sizes)
        return {"box": windows.boxes, "size": windows.sizes, "flip": windows.flips}

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
        if self.kind == "geometry":
            return _cut(self, u, sizes)
        return [
            layer_choices
            for op, own in zip(self.ops, _split(u, 0, self.ops), strict=True)
            for layer_choices in choose(op, own, sizes)
        ]
