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
    """A user function: takes (uint8 HWC image, random numbers), returns an image of the same shape. CPU only.

    It is called from many threads. The numbers are float64 (draws,) in [0, 1), a pure function of seed, epoch and
    sample; take all randomness from them. The image may be changed in place; copy it to keep it, since its memory is
    reused. A bare function in a list is wrapped in a Function with eight numbers. If it raises or returns anything
    else, the sample is bad, with the reason `op_failed`.
    """

    function: Callable[[np.ndarray, np.ndarray], np.ndarray]
    draws: int = 8  # numbers per sample

    kind: ClassVar[Kind] = "change"

    def __post_init__(self) -> None:
        if not callable(self.function) or isinstance(self.function, type):
            raise ConfigError(f"Function needs a function (image, numbers) -> image, got {self.function!r}")
        if isinstance(self.draws, bool) or not isinstance(self.draws, int) or not 0 <= self.draws <= 65_536:
            raise ConfigError(f"Function draws must be an integer in [0, 65536], got {self.draws!r}")

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
