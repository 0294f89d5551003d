"""User functions wrapped as pixel ops."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.base import FrozenOp, Kind, check_integer, need_bytes
from fastfeed.printable import function_name
from fastfeed.spec import Spec

__all__ = ["Function"]

MOST_DRAWS = 65_536  # random numbers of one op per sample
ANNOTATIONS = ("boxes", "box_labels", "keypoints", "instance_masks", "polygons", "masks")


@dataclass(frozen=True, slots=True)
class Function(FrozenOp):
    """Your own function as an op: it changes the pixels of one image, on the CPU.

    It is called from many threads. Take all randomness from the numbers it gets: they are a pure
    function of seed, epoch and sample; one of them can seed a generator. A bare function in a list
    of ops is wrapped in a Function with eight numbers.

    If it raises, or returns anything but an image of the stated shape, the feed raises SampleError
    with that error as its cause; under `Feed(on_error="bad")` the sample counts as bad, with the
    reason `op_failed`. A MemoryError is always raised.

    A function that takes boxes or masks returns a mapping of "image" and each of them, moved as it
    moved the pixels, and must be the last op on pixels. Boxes beyond the room of the batch are left
    out, the smallest first.

    Args:
        function (Callable): Takes the image, uint8 (height, width, channels), the numbers, float64
            (draws,) in [0, 1), and the `fields` as keywords; returns the image. It may change the
            image in place; it must copy it to keep it, since the memory is reused.
        draws (int): Random numbers per sample, in [0, 65536]. Default: 8.
        fields (Sequence[str]): Values of the sample that it gets: "label" as the source has it,
            names of columns, "boxes" (float32 (n, 4): left, top, right, bottom in pixels of this
            image) together with "box_labels" (int64 (n,)) and, if there are any, "keypoints"
            (float32 (n, k, 3): x, y, visibility), "instance_masks" (uint8 (n, height, width)) and
            "polygons" (of each box a list of rings, float32 (k, 2)); "masks" (uint8 (height,
            width)). Default: ().
        returns (Spec | None): Spec of the images that it returns. uint8 "HWC" of another size may
            be followed by other ops, anything else by none on pixels. Default: None, that of its
            input.

    Raises:
        ConfigError: If `function` is not callable or is a class, `draws` is out of range, or a
            field or spec is not one.

    Example:
        >>> def darker(image, numbers):
        ...     return image // 2
        >>> feed = ff.Feed(ff.Arrays(np.full((1, 1, 1, 3), 100, np.uint8)), [ff.Function(darker, draws=0)], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([50, 50, 50], dtype=uint8)
    """

    function: Callable[..., Any]
    draws: int = 8
    fields: Sequence[str] = ()
    returns: Spec | None = None

    kind: ClassVar[Kind] = "change"

    def _check(self) -> None:
        if not callable(self.function) or isinstance(self.function, type):
            raise ConfigError(
                f"Function needs a function (image, numbers) -> image, got {self.function!r}",
                field="function",
            )
        check_integer("Function draws", self.draws, 0, MOST_DRAWS)
        self._check_fields()
        self._check_signature()
        if self.returns is not None and not (
            isinstance(self.returns, Spec) and self.returns.fixed and 0 not in self.returns.shape
        ):
            raise ConfigError.of(
                "Function returns",
                'a Spec of one size, such as Spec((224, 224, 3), "uint8", "HWC")',
                self.returns,
            )

    def _check_signature(self) -> None:
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # of a function in C
            return
        try:
            signature.bind(None, None, **dict.fromkeys(self.fields))
        except TypeError as error:
            fields = "".join(f", {name}=" for name in self.fields)
            raise ConfigError(
                f"Function calls function(image, numbers{fields}), got one with {signature}:"
                f" {error}; give it these parameters",
                field="function",
            ) from error

    def _check_fields(self) -> None:
        fields = self.fields
        if not isinstance(fields, tuple) or not all(isinstance(name, str) for name in fields):
            raise ConfigError.of("Function fields", 'names such as ("label", "masks")', fields)
        if ("boxes" in fields) != ("box_labels" in fields):
            raise ConfigError(
                "Function fields must have boxes together with box_labels, so that a box that is"
                f" left out takes its label along, got {fields!r}"
            )
        for name in ("keypoints", "instance_masks", "polygons"):
            if name in fields and "boxes" not in fields:
                raise ConfigError(
                    f"Function fields must have {name} together with boxes and box_labels, so that"
                    f" a box that is left out takes its {name} along, got {fields!r}"
                )

    @property
    def annotations(self) -> tuple[str, ...]:
        """Boxes and masks among the fields, which it also returns."""
        return tuple(name for name in self.fields if name in ANNOTATIONS)

    def out(self, spec: Spec) -> Spec:
        before = need_bytes(self, spec)
        return self.returns or before

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        return {"u": u if self.draws else np.empty((len(sizes), 0))}

    def __repr__(self) -> str:
        name = function_name(self.function)
        draws = "" if self.draws == 8 else f", draws={self.draws}"
        fields = f", fields={self.fields}" if self.fields else ""
        returns = f", returns={self.returns}" if self.returns else ""
        return f"Function({name}{draws}{fields}{returns})"


def as_op(op: Any) -> Any:
    """An op; a bare function becomes one."""
    if callable(op) and not isinstance(op, type) and not hasattr(op, "kind"):
        function: Any = op
        return Function(function)
    return op


def check_op(where: str, op: Any, such: str) -> None:
    """Refuse what is no op; `such` is an example of one."""
    if isinstance(op, type) or not (hasattr(op, "kind") and hasattr(op, "out")):
        got = repr(op)
        if isinstance(op, type):
            got = f"the class {op.__name__}; write {op.__name__}(...)"
        raise ConfigError(f"{where} must be an op such as {such}, got {got}", field="ops")
