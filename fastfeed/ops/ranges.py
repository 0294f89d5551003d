"""Strength of an op: fixed for all samples, or drawn from a range per sample."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.base import Kind, check_range, freeze, need_bytes
from fastfeed.spec import Spec

__all__ = [
    "FixedOp",
    "RandomAmountOp",
    "check_integer",
    "degree_range",
    "factor_range",
    "odd",
    "odd_range",
    "shift_range",
    "value_range",
]


class FixedOp:
    """Base class of exactly the ops on bytes that do the same to every sample."""

    __slots__ = ()

    kind: ClassVar[Kind] = "change"
    draws: ClassVar[int] = 0

    def out(self, spec: Spec) -> Spec:
        return need_bytes(self, spec)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        return {}


class RandomAmountOp:
    """Base class of exactly the ops on bytes with one number per sample, uniform in a range."""

    __slots__ = ()

    kind: ClassVar[Kind] = "change"
    value: ClassVar[str]  # name of the number in backends

    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest strength that is drawn; equal where it is fixed.

        Returns:
            (low, high), in the op's own unit.

        Raises:
            ConfigError: If the op's fields are out of range.
        """

    def __post_init__(self) -> None:
        freeze(self)
        self.bounds()

    @property
    def draws(self) -> int:
        low, high = self.bounds()
        return int(low < high)

    def out(self, spec: Spec) -> Spec:
        return need_bytes(self, spec)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        low, high = self.bounds()
        if low == high:
            return {self.value: np.full(len(sizes), low, np.float64)}
        return {self.value: low + u[:, 0] * (high - low)}


def value_range(
    name: str, value: Any, minimum: float, maximum: float, hint: str, integer: bool = False
) -> tuple[Any, Any]:
    """(low, high) of a number or a pair with minimum <= low <= high <= maximum.

    integer: of integers.
    """
    pair = value if isinstance(value, tuple) else (value, value)
    kinds = (int,) if integer else (int, float)
    numbers = len(pair) == 2 and all(isinstance(v, kinds) and not isinstance(v, bool) for v in pair)
    if not numbers or not minimum <= pair[0] <= pair[1] <= maximum:
        singular, plural = ("an integer", "integers") if integer else ("a number", "numbers")
        raise ConfigError.of(
            name,
            f"{singular} in [{minimum:g}, {maximum:g}] or a pair (low, high) of such {plural}",
            value,
            hint,
        )
    return pair[0], pair[1]


def check_integer(name: str, value: Any, minimum: int, maximum: int, hint: str) -> None:
    """Raise ConfigError unless `value` is an integer in [minimum, maximum]."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise ConfigError.of(name, f"an integer in [{minimum}, {maximum}]", value, hint)


def factor_range(name: str, amount: Any, hint: str = "") -> tuple[float, float]:
    """(low, high) of a factor: a number b is [max(0, 1 - b), 1 + b], a pair stays as it is.

    As in torchvision's ColorJitter.
    """
    op = name.split()[0]
    hint = hint or f"write {op}(0.4) or {op}((0.6, 1.4)) for factors from 0.6 to 1.4"
    low, high = value_range(name, amount, 0, 100, hint)
    return (low, high) if isinstance(amount, tuple) else (max(0.0, 1.0 - low), 1.0 + low)


def shift_range(name: str, amount: Any, hint: str = "") -> tuple[float, float]:
    """(low, high) of a turn: a number h is [-h, h], a pair stays as it is."""
    hint = hint or "write Hue(0.1) or Hue((-0.1, 0.1)) for up to a tenth of a turn either way"
    low, high = value_range(name, amount, -0.5 if isinstance(amount, tuple) else 0, 0.5, hint)
    return (low, high) if isinstance(amount, tuple) else (-low, low)


def degree_range(name: str, value: Any, limit: float = 360, hint: str = "") -> tuple[float, float]:
    """[-d, d] for a number d, or the pair itself."""
    what = f"{name} degrees" if name != "Affine shear" else name
    hint = hint or f"write {name}(15) or {name}((-10, 10))"
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        if not 0 <= value <= limit:
            raise ConfigError.of(
                what, f"a number in [0, {limit:g}] or a pair (low, high)", value, hint
            )
        return (-float(value), float(value))
    if not isinstance(value, tuple) or len(value) != 2:
        raise ConfigError.of(what, f"a number in [0, {limit:g}] or a pair (low, high)", value, hint)
    return check_range(what, value, -limit, limit, hint)


def odd_range(name: str, value: Any, maximum: int, hint: str) -> tuple[int, int]:
    """(low, high) of an odd number of pixels, or of a pair of such."""
    low, high = value_range(name, value, 1, maximum, hint, integer=True)
    if not low % 2 or not high % 2:
        raise ConfigError.of(name, "odd", value, hint)
    return low, high


def odd(u: np.ndarray, low: int, high: int) -> np.ndarray:
    """Odd numbers from low to high, both included, from uniform numbers: int64, of u's shape."""
    return low + 2 * (u * ((high - low) // 2 + 1)).astype(np.int64)
