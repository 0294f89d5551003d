"""Label ops: from integers to soft labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.base import FrozenOp, Kind, check_integer, check_number
from fastfeed.spec import CLASS_NUMBER, LabelSpec, Spec

__all__ = ["LabelSmoothing", "OneHot"]

MAX_CLASSES = 2**24  # classes: 64 MiB of labels per sample


@dataclass(frozen=True, slots=True)
class OneHot(FrozenOp):
    """Encode labels one-hot: float32 (n, classes), as categorical cross-entropy expects.

    As Keras's `to_categorical` and PyTorch's `one_hot`. A sample without a label (-1) is a row of
    zeros. It may be anywhere in the list, since it does not touch pixels.

    Args:
        classes (int | None): Number of classes, in [1, 2**24]. Default: None, as many as the source
            has names for.

    Raises:
        ConfigError: If `classes` is out of range.

    Example:
        >>> source = ff.Arrays(np.zeros((2, 1, 1, 3), np.uint8), [2, -1])
        >>> next(iter(ff.Feed(source, [ff.OneHot(3)], batch=2, shuffle=False))).labels
        array([[0., 0., 1.],
               [0., 0., 0.]], dtype=float32)
    """

    classes: int | None = None

    kind: ClassVar[Kind] = "label"
    draws: ClassVar[int] = 0

    def _check(self) -> None:
        _check_classes(self)

    def out(self, spec: Spec) -> Spec:
        return spec


@dataclass(frozen=True, slots=True)
class LabelSmoothing(FrozenOp):
    """Smooth labels: 1 - smoothing for the class, plus smoothing spread evenly over all classes.

    float32 (n, classes). Szegedy et al., "Rethinking the Inception Architecture" (2016); the same
    numbers as `label_smoothing` of Keras's `CategoricalCrossentropy` and of PyTorch's
    `CrossEntropyLoss`, so use one of them, not both. It may be before or after `MixUp`: the result
    is the same.

    Args:
        smoothing (float): Share that is spread, in [0, 1). Default: 0.1.
        classes (int | None): Number of classes, in [1, 2**24]. Default: None, as many as the source
            has names for, or as `OneHot` says.

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> source = ff.Arrays(np.zeros((1, 1, 1, 3), np.uint8), [2])
        >>> next(iter(ff.Feed(source, [ff.LabelSmoothing(0.2, classes=4)], batch=1))).labels
        array([[0.05, 0.05, 0.85, 0.05]], dtype=float32)
    """

    smoothing: float = 0.1
    classes: int | None = None

    kind: ClassVar[Kind] = "label"
    draws: ClassVar[int] = 0

    def _check(self) -> None:
        hint = "0.1 leaves 0.9 to the class and spreads 0.1"
        check_number("LabelSmoothing smoothing", self.smoothing, 0, 1, hint, "[)")
        _check_classes(self)

    def out(self, spec: Spec) -> Spec:
        return spec


@dataclass(frozen=True, slots=True)
class Targets:
    """Soft labels: float32 (n, classes)."""

    classes: int
    smoothing: float = 0.0  # share spread evenly over all classes

    def of(self, labels: np.ndarray) -> np.ndarray:
        """Soft labels of int64 (n,) labels; a row of zeros for an unknown class, such as -1."""
        out = np.full((len(labels), self.classes), self.smoothing / self.classes, np.float32)
        known = (labels >= 0) & (labels < self.classes)
        out[~known] = 0
        rows = np.flatnonzero(known)
        out[rows, labels[rows]] += np.float32(1 - self.smoothing)
        return out


def targets(ops: Sequence[Any], classes: int, spec: LabelSpec = CLASS_NUMBER) -> Targets | None:
    """Soft labels as a list of ops defines them, or None if labels stay as the source has them.

    classes: of the source, 0 if unknown. spec: of its labels; floats are mixed as they are.

    Ops that mix samples make them soft as well. ConfigError where the number of classes is not
    known or not one.
    """
    label = [op for op in ops if op.kind == "label"]
    soft = [*label, *(op for op in ops if op.kind == "mix")]
    if not soft:
        return None
    if label or not spec.dtype.startswith("float"):
        name = type(soft[0]).__name__
        spec.require_class(name, f"leave {name} out, or pass label_kind='name'")
    if spec != CLASS_NUMBER:
        return None
    smoothing = [op for op in label if isinstance(op, LabelSmoothing)]
    if len(smoothing) > 1:
        raise ConfigError(
            f"labels can be smoothed once, got {smoothing[0]} and {smoothing[1]}; leave one out",
            field="ops",
        )
    with_classes = [op for op in label if op.classes is not None]
    for op in with_classes:
        if op.classes != with_classes[0].classes:
            raise ConfigError(
                f"all label ops must have the same number of classes, got {with_classes[0]} and"
                f" {op}",
                field="ops",
            )
        if op.classes < classes:
            raise ConfigError(
                f"{type(op).__name__} classes must be at least the {classes} that the source names,"
                f" got {op.classes}; leave it out, or write {classes}",
                field="classes",
            )
    count = with_classes[0].classes if with_classes else classes
    if not count:
        name = type(soft[-1]).__name__
        raise ConfigError(
            f"{name} makes soft labels and needs the number of classes: put OneHot(1000) before it,"
            " or give the source class names"
            if soft[-1].kind == "mix"
            else (
                f"{name} needs the number of classes: write {name}(classes=1000), or give the"
                " source class names"
            ),
            field="classes",
        )
    return Targets(count, float(smoothing[0].smoothing) if smoothing else 0.0)


def _check_classes(op: Any) -> None:
    if op.classes is not None:
        name = f"{type(op).__name__} classes"
        check_integer(name, op.classes, 1, MAX_CLASSES, more=" or None")
