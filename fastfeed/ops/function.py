"""User functions as ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.base import Kind, need_bytes
from fastfeed.spec import Spec

__all__ = ["Function"]


@dataclass(frozen=True, slots=True)
class Function:
    """Your own function as an op: it changes the pixels of one image, on the CPU.

    It is called from many threads. Take all randomness from the numbers it gets: they are a pure
    function of seed, epoch and sample. A bare function in a list of ops is wrapped in a Function
    with eight numbers.

    If it raises, or returns anything but an image of the same shape, the feed raises SampleError
    with that error as its cause; under `Feed(on_error="bad")` the sample counts as bad, with the
    reason `op_failed`. A MemoryError is always raised.

    Args:
        function (Callable[[np.ndarray, np.ndarray], np.ndarray]): Takes the image, uint8 (height,
            width, channels), and the numbers, float64 (draws,) in [0, 1); returns an image of the
            same shape and dtype. It may change the image in place; it must copy it to keep it,
            since the memory is reused.
        draws (int): Random numbers per sample, in [0, 65536]. Default: 8.

    Raises:
        ConfigError: If `function` is not callable or is a class, or `draws` is out of range.

    Example:
        >>> def darker(image, numbers):
        ...     return image // 2
        >>> feed = ff.Feed(ff.Arrays(np.full((1, 1, 1, 3), 100, np.uint8)), [ff.Function(darker, draws=0)], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([50, 50, 50], dtype=uint8)
    """

    function: Callable[[np.ndarray, np.ndarray], np.ndarray]
    draws: int = 8

    kind: ClassVar[Kind] = "change"

    def __post_init__(self) -> None:
        if not callable(self.function) or isinstance(self.function, type):
            raise ConfigError(
                f"Function needs a function (image, numbers) -> image, got {self.function!r}"
            )
        if (
            isinstance(self.draws, bool)
            or not isinstance(self.draws, int)
            or not 0 <= self.draws <= 65_536
        ):
            raise ConfigError(
                f"Function draws must be an integer in [0, 65536], got {self.draws!r}"
            )

    def out(self, spec: Spec) -> Spec:
        return need_bytes(self, spec)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        return {"u": u if self.draws else np.empty((len(sizes), 0))}

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"Function({name}{'' if self.draws == 8 else f', draws={self.draws}'})"


def as_op(op: Any) -> Any:
    """An op; a bare function becomes one."""
    if callable(op) and not isinstance(op, type) and not hasattr(op, "kind"):
        function: Any = op
        return Function(function)
    return op
