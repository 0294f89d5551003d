"""The children of composite ops: checks, kind, draws, and their window if all are geometry."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import Kind
from fastfeed.ops.function import as_op, check_op
from fastfeed.spec import Spec

__all__ = [
    "check_keeps_size",
    "child",
    "children",
    "filter_of",
    "filters_of",
    "kind_of",
    "split_draws",
]


def child(where: str, op: Any) -> Any:
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


def children(name: str, ops: Any) -> tuple[Any, ...]:
    if not isinstance(ops, (list, tuple)) or not ops:
        raise ConfigError.of(f"{name} ops", "a list of one op or more, such as [RandomFlip()]", ops)
    return tuple(child(f"{name} ops[{i}]", op) for i, op in enumerate(ops))


def kind_of(ops: Sequence[Any]) -> Kind:
    """Geometry if all ops fold into one window that needs no border."""
    folds = all(op.kind == "geometry" and getattr(op, "border", None) is None for op in ops)
    return "geometry" if folds else "change"


def filters_of(ops: Sequence[Any]) -> list[str]:
    return [op.filter for op in ops if hasattr(op, "filter")]


def filter_of(name: str, ops: Sequence[Any]) -> str:
    """The last filter that one of the ops names, as in a list of ops."""
    for filter in reversed(filters_of(ops)):
        return filter
    raise AttributeError(f"nothing in this {name} is resampled")  # for hasattr, as with RandomFlip


def check_keeps_size(parent: Any, op: Any, spec: Spec) -> None:
    """Raise if an op would give some samples a different size from the rest."""
    name, after = type(parent).__name__, op.out(spec)
    if after != spec:
        raise SpecError(
            f"{name} needs ops that keep the size, but {op!r} makes {after} of {spec}; "
            f"put it directly into the list of ops, before {name}"
        )


def split_draws(u: np.ndarray, first: int, ops: Sequence[Any]) -> list[np.ndarray]:
    """The columns of each op's random numbers, after the `first` ones."""
    ends = np.cumsum([first, *(op.draws for op in ops)])
    return [u[:, a:b] for a, b in pairwise(ends)]
