"""Ops composed of others: apply with a probability, choose one of several, or apply in sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import FrozenOp, Kind, check_p, full_boxes, need_movable_by
from fastfeed.ops.function import as_op, check_op
from fastfeed.ops.geometry import window_params
from fastfeed.ops.program.layers import Choices, Layer, choose, layers
from fastfeed.ops.program.window import Step, fold
from fastfeed.ops.ranges import check_weights
from fastfeed.spec import Spec

__all__ = ["Maybe", "OneOf", "Sequential"]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "Maybe(GaussianBlur(sigma=(2.0, 4.0)), 0.6)",
    "OneOf([Invert(), Grayscale(), Solarize(100)])",
    "Sequential([RandomFlip(), Brightness(0.5)])",
)


@dataclass(frozen=True, slots=True)
class Maybe(FrozenOp):
    """Apply an op to a share of the samples.

    As torchvision's `RandomApply` of one op. The op must keep the size of images.

    Args:
        op (Op | Callable): An op that moves or changes pixels, one composed of others, or a
            function (see `Function`).
        p (float): Probability that a sample takes it, in [0, 1]. Default: 0.5.

    Raises:
        ConfigError: If `op` is no such op, or `p` is out of range.

    Example:
        >>> ff.Maybe(ff.GaussianBlur(23), p=0.1)
        Maybe(op=GaussianBlur(kernel=23, sigma=(0.1, 2.0)), p=0.1)
    """

    op: Any
    p: float = 0.5

    def _check(self) -> None:
        object.__setattr__(self, "op", _child("Maybe op", self.op))
        check_p("Maybe p", self.p)

    @property
    def kind(self) -> Kind:
        return _combined_kind((self.op,))

    @property
    def filter(self) -> str:
        return _last_filter("Maybe", (self.op,))

    @property
    def draws(self) -> int:
        return 1 + self.op.draws

    @property
    def layers(self) -> tuple[Layer, ...]:
        return layers(self.op)

    def out(self, spec: Spec) -> Spec:
        if self.kind != "geometry":
            need_movable_by(self, (self.op,), spec)
        _check_keeps_size(self, self.op, spec)
        return spec

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """Window parameters, if the op is geometry; other kinds have layers instead."""
        on = (u[:, 0] < self.p)[:, None]
        stay = window_params(full_boxes(sizes), sizes)
        move = self.op.params(u[:, 1:], sizes)
        return {name: np.where(on, move[name], value) for name, value in stay.items()}

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
        on = u[:, 0] < self.p
        return [
            Choices(np.where(on, layer_choices.choice, -1), layer_choices.values)
            for layer_choices in choose(self.op, u[:, 1:], sizes)
        ]


@dataclass(frozen=True, slots=True)
class OneOf(FrozenOp):
    """Apply one of several ops to each sample, chosen at random.

    As torchvision's `RandomChoice`. The ops must keep the size of images; ops that only crop or
    scale may all change it to the same new size.

    Args:
        ops (Sequence[Op | Callable]): At least one op that moves or changes pixels, one composed of
            others, or a function.
        weights (Sequence[float] | None): Relative frequencies, one number >= 0 per op and not all
            0. Default: None, all equally likely.

    Raises:
        ConfigError: If `ops` or `weights` are none of these.

    Example:
        >>> ff.OneOf([ff.GaussianBlur(5), ff.Brightness(0.5)], weights=[3, 1]).weights
        (3.0, 1.0)
    """

    ops: Sequence[Any]
    weights: Sequence[float] | None = None

    def _check(self) -> None:
        object.__setattr__(self, "ops", _children("OneOf", self.ops))
        if self.weights is not None:
            check_weights("OneOf", self.weights, len(self.ops))
            object.__setattr__(self, "weights", tuple(map(float, self.weights)))

    @property
    def kind(self) -> Kind:
        # a window has one filter
        return _combined_kind(self.ops) if len(set(_child_filters(self.ops))) <= 1 else "change"

    @property
    def filter(self) -> str:
        return _last_filter("OneOf", self.ops)

    @property
    def draws(self) -> int:
        return 1 + sum(op.draws for op in self.ops)

    @property
    def layers(self) -> tuple[Layer, ...]:
        parts = [layers(op) for op in self.ops]
        depth = max(len(part) for part in parts)
        return tuple(
            Layer(tuple(op for part in parts if k < len(part) for op in part[k].ops))
            for k in range(depth)
        )

    def out(self, spec: Spec) -> Spec:
        if self.kind != "geometry":
            filters = ", ".join(sorted(set(_child_filters(self.ops))))
            if not spec.fixed and "," in filters and all(op.kind == "geometry" for op in self.ops):
                raise SpecError(
                    "OneOf needs ops with one filter where images are of many sizes, got"
                    f" {filters}; give all its ops the same, or put Resize((height, width))"
                    " before it"
                )
            need_movable_by(self, self.ops, spec)
            for op in self.ops:
                _check_keeps_size(self, op, spec)
            return spec
        after = [op.out(spec) for op in self.ops]
        for op, result in zip(self.ops, after, strict=True):
            if result != after[0]:
                raise SpecError(
                    f"OneOf needs ops that lead to one size, but {self.ops[0]!r} makes {after[0]}"
                    f" of {spec} and {op!r} makes {result}; give them the same size, or put what"
                    " changes it directly into the list of ops"
                )
        return after[0]

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """Window parameters, if the op is geometry; other kinds have layers instead."""
        which = self._op_index(u)
        rows = np.arange(len(sizes))
        moves = [
            op.params(own, sizes)
            for op, own in zip(self.ops, _split_draws(u, 1, self.ops), strict=True)
        ]
        return {
            name: np.stack([move[name] for move in moves])[which, rows]
            for name in ("box", "size", "flip")
        }

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
        which = self._op_index(u)
        depth = len(self.layers)
        choices: list[np.ndarray] = [np.full(len(sizes), -1, np.int64) for _ in range(depth)]
        values: list[tuple[Any, ...]] = [()] * depth
        for i, (op, own) in enumerate(zip(self.ops, _split_draws(u, 1, self.ops), strict=True)):
            for k, layer_choices in enumerate(choose(op, own, sizes)):
                here = (which == i) & (layer_choices.choice >= 0)
                choices[k] = np.where(here, layer_choices.choice + len(values[k]), choices[k])
                values[k] += layer_choices.values
        return [Choices(choice, value) for choice, value in zip(choices, values, strict=True)]

    def _op_index(self, u: np.ndarray) -> np.ndarray:
        """Index of the op, int64 (n,)."""
        if self.weights is None:
            return (u[:, 0] * len(self.ops)).astype(np.int64)
        ends = np.cumsum(self.weights)
        last = np.flatnonzero(self.weights)[-1]  # rounding may not lead beyond it
        return np.minimum(np.searchsorted(ends, u[:, 0] * ends[-1], side="right"), last)


@dataclass(frozen=True, slots=True)
class Sequential:
    """Apply several ops in order, as one op.

    For use inside `Maybe` and `OneOf`; a list of ops is a sequence already.

    Args:
        ops (Sequence[Op | Callable]): At least one op that moves or changes pixels, one composed of
            others, or a function.

    Raises:
        ConfigError: If `ops` is empty or holds anything else.

    Example:
        >>> ff.Maybe(ff.Sequential([ff.Brightness(0.5), ff.Contrast(0.5)]), p=0.2)
        Maybe(op=Sequential(ops=(Brightness(amount=0.5), Contrast(amount=0.5))), p=0.2)
    """

    ops: Sequence[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", _children("Sequential", self.ops))

    @property
    def kind(self) -> Kind:
        return _combined_kind(self.ops)

    @property
    def filter(self) -> str:
        return _last_filter("Sequential", self.ops)

    @property
    def draws(self) -> int:
        return sum(op.draws for op in self.ops)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(layer for op in self.ops for layer in layers(op))

    def out(self, spec: Spec) -> Spec:
        if self.kind != "geometry":
            need_movable_by(self, self.ops, spec)
            for op in self.ops:
                _check_keeps_size(self, op, spec)
            return spec
        for op in self.ops:
            spec = op.out(spec)
        return spec

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """Window parameters, if the op is geometry; other kinds have layers instead."""
        windows = fold([Step(op, None, 0) for op in self.ops], _split_draws(u, 0, self.ops), sizes)
        return {"box": windows.boxes, "size": windows.sizes, "flip": windows.flips}

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
        return [
            layer_choices
            for op, own in zip(self.ops, _split_draws(u, 0, self.ops), strict=True)
            for layer_choices in choose(op, own, sizes)
        ]


def _child(where: str, op: Any) -> Any:
    op = as_op(op)
    check_op(where, op, "RandomFlip() or a function")
    if isinstance(getattr(op, "filter", None), tuple):
        raise ConfigError.of(
            where,
            "an op with one filter",
            op,
            "put it directly into the list of ops, where each image draws its filter",
        )
    if op.kind not in ("geometry", "change") or hasattr(op, "needs_boxes"):
        raise ConfigError.of(
            where,
            "an op that moves or changes pixels, such as RandomFlip() or ColorJitter(0.4)",
            op,
            "put it directly into the list of ops, where all samples take it",
        )
    return op


def _children(name: str, ops: Any) -> tuple[Any, ...]:
    if not isinstance(ops, (list, tuple)) or not ops:
        raise ConfigError.of(f"{name} ops", "a list of one op or more, such as [RandomFlip()]", ops)
    return tuple(_child(f"{name} ops[{i}]", op) for i, op in enumerate(ops))


def _combined_kind(ops: Sequence[Any]) -> Kind:
    """Geometry if all ops fold into one window that needs no border."""
    folds = all(op.kind == "geometry" and getattr(op, "border", None) is None for op in ops)
    return "geometry" if folds else "change"


def _child_filters(ops: Sequence[Any]) -> list[str]:
    return [op.filter for op in ops if hasattr(op, "filter")]


def _last_filter(name: str, ops: Sequence[Any]) -> str:
    """The last filter that one of the ops names, as in a list of ops."""
    for filter in reversed(_child_filters(ops)):
        return filter
    raise AttributeError(f"nothing in this {name} is resampled")  # for hasattr, as with RandomFlip


def _check_keeps_size(parent: Any, op: Any, spec: Spec) -> None:
    """Raise if an op would give some samples a different size from the rest."""
    name = type(parent).__name__
    after = op.out(spec)
    if after != spec:
        raise SpecError(
            f"{name} needs ops that keep the size, but {op!r} makes {after} of {spec}; "
            f"put it directly into the list of ops, before {name}"
        )


def _split_draws(u: np.ndarray, first: int, ops: Sequence[Any]) -> list[np.ndarray]:
    """The columns of each op's random numbers, after the `first` ones."""
    ends = np.cumsum([first, *(op.draws for op in ops)])
    return [u[:, a:b] for a, b in pairwise(ends)]
