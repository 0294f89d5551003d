"""Strength of an op: fixed for all samples, or drawn from a range per sample."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.base import ByteOp, check_range, is_number

__all__ = [
    "FactorOp",
    "FixedOp",
    "RandomAmountOp",
    "check_weights",
    "count_random",
    "degree_range",
    "factor_range",
    "integers",
    "odd_range",
    "shift_range",
    "spread",
    "value_range",
]


class FixedOp(ByteOp):
    """Base class of exactly the ops on bytes that do the same to every sample."""

    __slots__ = ()

    draws: ClassVar[int] = 0

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        return {}


class RandomAmountOp(ByteOp):
    """Base class of the ops on bytes with one number per sample, uniform in a range."""

    __slots__ = ()

    value: ClassVar[str]  # name of the number in backends
    step: ClassVar[int] = 0  # between the numbers, which are integers; 0: any number

    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest strength that is drawn; equal where it is fixed.

        Returns:
            (low, high), in the op's own unit.

        Raises:
            ConfigError: If the op's fields are out of range.
        """

    def _check(self) -> None:
        self.bounds()

    @property
    def draws(self) -> int:
        return count_random([self.bounds()])

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        low, high = self.bounds()
        if not self.step:
            return {self.value: spread([(low, high)], u, len(sizes))[0]}
        if low == high:
            return {self.value: np.full(len(sizes), low, np.int64)}
        return {self.value: integers(u[:, 0], low, high, self.step)}


class FactorOp(RandomAmountOp):
    """Base class of the ops with a factor around 1 by `amount`."""

    __slots__ = ()

    amount: float | tuple[float, float]

    value: ClassVar[str] = "factor"

    def bounds(self) -> tuple[float, float]:
        return factor_range(f"{type(self).__name__} amount", self.amount)


def count_random(ranges: Sequence[tuple[float, float]]) -> int:
    """Number of ranges that numbers are drawn from; those of no width take no random number."""
    return sum(low < high for low, high in ranges)


def spread(ranges: Sequence[tuple[float, float]], u: np.ndarray, n: int) -> list[np.ndarray]:
    """n numbers in each range, from columns of u; ranges of no width take no column."""
    amounts = []
    at = 0
    for low, high in ranges:
        amounts.append(low + u[:, at] * (high - low) if low < high else np.full(n, float(low)))
        at += low < high
    return amounts


def integers(u: np.ndarray, low: Any, high: Any, step: int = 1) -> np.ndarray:
    """Every step-th integer from low to high, both included: int64, of u's shape."""
    return low + step * (u * ((high - low) // step + 1)).astype(np.int64)


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
    is_single = is_number(value)
    if is_single and 0 <= value <= limit:
        return (-float(value), float(value))
    if is_single or not isinstance(value, tuple) or len(value) != 2:
        raise ConfigError.of(what, f"a number in [0, {limit:g}] or a pair (low, high)", value, hint)
    return check_range(what, value, -limit, limit, hint)


def odd_range(name: str, value: Any, maximum: int, hint: str) -> tuple[int, int]:
    """(low, high) of an odd number of pixels, or of a pair of such."""
    low, high = value_range(name, value, 1, maximum, hint, integer=True)
    if not low % 2 or not high % 2:
        raise ConfigError.of(name, "odd", value, hint)
    return low, high


def check_weights(name: str, weights: Any, count: int) -> None:
    """Raise ConfigError unless `weights` are one number >= 0 per op."""
    numbers = isinstance(weights, tuple) and all(is_number(w) and w >= 0 for w in weights)
    if not numbers or len(weights) != count or not 0 < sum(weights) < math.inf:
        must = f"{count} numbers >= 0, one per op and not all 0"
        raise ConfigError.of(f"{name} weights", must, weights)
