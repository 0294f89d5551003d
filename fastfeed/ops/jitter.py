"""Brightness, contrast, saturation and hue, in random order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np

from fastfeed.ops.base import ByteOp
from fastfeed.ops.color import Brightness, Contrast, Hue, Saturation
from fastfeed.ops.program.layers import Choices, Layer
from fastfeed.ops.ranges import factor_range, shift_range

__all__ = ["ColorJitter"]

SHOWCASE = ("ColorJitter(0.4, 0.4, 0.4, 0.1)",)  # examples that `fastfeed show --ops` draws


@dataclass(frozen=True, slots=True)
class ColorJitter(ByteOp):
    """Change brightness, contrast, saturation and hue, in an order drawn per sample.

    torchvision's `ColorJitter`. Adjustments that cannot change anything, such as 0, are left out;
    all orders of the rest are equally likely.

    Args:
        brightness (float | tuple[float, float]): As `Brightness`: b draws factors from max(0, 1 -
            b) to 1 + b, a pair is the range itself; in [0, 100]. Default: 0.
        contrast (float | tuple[float, float]): Factors, as `Contrast`. Default: 0.
        saturation (float | tuple[float, float]): Factors, as `Saturation`. Default: 0.
        hue (float | tuple[float, float]): Turns, as `Hue`: h draws shifts from -h to h; in [-0.5,
            0.5]. Default: 0.

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> ff.ColorJitter(0.4, hue=0.1).ops
        (Brightness(amount=0.4), Hue(amount=0.1))
    """

    brightness: float | tuple[float, float] = 0
    contrast: float | tuple[float, float] = 0
    saturation: float | tuple[float, float] = 0
    hue: float | tuple[float, float] = 0

    def _check(self) -> None:
        hint = "write ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)"
        for name in ("brightness", "contrast", "saturation", "hue"):
            (shift_range if name == "hue" else factor_range)(
                f"ColorJitter {name}", getattr(self, name), hint
            )

    @property
    def ops(self) -> tuple[Any, ...]:
        """The ops that can change something, in the order of the fields."""
        return _ops(self)[0]

    @property
    def draws(self) -> int:
        ops, draws = _ops(self)
        return (len(ops) > 1) + sum(draws)

    @property
    def layers(self) -> tuple[Layer, ...]:
        ops = self.ops
        return (Layer(ops),) * len(ops)

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
        (ops, draws), n = _ops(self), len(sizes)
        orders = _orders(len(ops))
        first = len(ops) > 1  # the draw that chooses the order
        order = orders[(u[:, 0] * len(orders)).astype(np.int64) if first else np.zeros(n, np.int64)]
        values, at = [], int(first)
        for op, count in zip(ops, draws, strict=True):
            values.append(op.params(u[:, at : at + count], sizes))
            at += count
        return [Choices(order[:, place], tuple(values)) for place in range(len(ops))]


@lru_cache(maxsize=64)
def _ops(op: ColorJitter) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Ops that can change something, and the numbers that each draws."""
    every = (
        Brightness(op.brightness),
        Contrast(op.contrast),
        Saturation(op.saturation),
        Hue(op.hue),
    )
    idle = ((1, 1), (1, 1), (1, 1), (0, 0))
    ops = [each for each, none in zip(every, idle, strict=True) if each.bounds() != none]
    return tuple(ops), tuple(each.draws for each in ops)


@lru_cache(maxsize=8)
def _orders(count: int) -> np.ndarray:
    """All orders of `count` ops: int64 (orders, count)."""
    return np.array(list(permutations(range(count))), np.int64)
