"""Ops that change how bright and how colorful an image is.

Factors are those of Pillow's ImageEnhance: 0 removes the property, 1 changes nothing, above 1
exaggerates it. Images of one channel have no color: Saturation, Hue, Grayscale, ToBGR,
ChannelShuffle and ChannelDropout leave them unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any, ClassVar

import numpy as np

from fastfeed.ops.base import ByteOp, check_fill, check_p
from fastfeed.ops.program.layers import Choices, Layer
from fastfeed.ops.ranges import (
    FactorOp,
    FixedOp,
    RandomAmountOp,
    factor_range,
    integers,
    shift_range,
    value_range,
)

__all__ = [
    "Brightness",
    "ChannelDropout",
    "ChannelShuffle",
    "ColorJitter",
    "Contrast",
    "Grayscale",
    "Hue",
    "RandomGrayscale",
    "Saturation",
    "ToBGR",
]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "Brightness(0.6)",
    "Contrast(0.8)",
    "Saturation(1.0)",
    "Hue(0.5)",
    "Grayscale()",
    "RandomGrayscale(0.5)",
    "ToBGR()",
    "ChannelShuffle()",
    "ChannelDropout((1, 2))",
    "ColorJitter(0.4, 0.4, 0.4, 0.1)",
)

_ORDERS = np.array(list(permutations(range(3))))  # int64 (6, 3)


@dataclass(frozen=True, slots=True)
class Brightness(FactorOp):
    """Darken or brighten: multiply every byte by a factor and clip at 255.

    Pillow's `ImageEnhance.Brightness`; the factor is drawn per sample.

    Args:
        amount (float | tuple[float, float]): A number b draws factors from max(0, 1 - b) to 1 + b,
            as torchvision's `ColorJitter`; a pair is the range itself. In [0, 100].

    Raises:
        ConfigError: If `amount` is out of range.

    Example:
        >>> ff.Brightness(0.5).bounds()
        (0.5, 1.5)
        >>> feed = ff.Feed(ff.Arrays(np.full((1, 1, 1, 3), 100, np.uint8)), [ff.Brightness((1.5, 1.5))], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([150, 150, 150], dtype=uint8)
    """

    amount: float | tuple[float, float]


@dataclass(frozen=True, slots=True)
class Contrast(FactorOp):
    """Reduce or increase contrast around the mean gray of the image.

    Pillow's `ImageEnhance.Contrast`; the factor is drawn per sample.

    Args:
        amount (float | tuple[float, float]): A number c draws factors from max(0, 1 - c) to 1 + c,
            as torchvision's `ColorJitter`; a pair is the range itself. In [0, 100].

    Raises:
        ConfigError: If `amount` is out of range.

    Example:
        >>> ff.Contrast(0.25).bounds()
        (0.75, 1.25)
        >>> image = np.array([50, 150], np.uint8).reshape(1, 1, 2, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.Contrast((0.5, 0.5))], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([ 75, 125], dtype=uint8)
    """

    amount: float | tuple[float, float]


@dataclass(frozen=True, slots=True)
class Saturation(FactorOp):
    """Make colors paler or stronger, relative to each pixel's own gray.

    Pillow's `ImageEnhance.Color`; the factor is drawn per sample. Images of one channel stay as
    they are.

    Args:
        amount (float | tuple[float, float]): A number s draws factors from max(0, 1 - s) to 1 + s,
            as torchvision's `ColorJitter`; a pair is the range itself, and factor 0 is gray. In [0,
            100].

    Raises:
        ConfigError: If `amount` is out of range.

    Example:
        >>> ff.Saturation(0.5).bounds()
        (0.5, 1.5)
        >>> feed = ff.Feed(
        ...     ff.Arrays(np.array([[[[255, 0, 0]]]], np.uint8)), [ff.Saturation((0, 0))], batch=1
        ... )
        >>> next(iter(feed)).images.ravel()
        array([76, 76, 76], dtype=uint8)
    """

    amount: float | tuple[float, float]


@dataclass(frozen=True, slots=True)
class Hue(RandomAmountOp):
    """Rotate the hue on the color wheel; half a turn makes red cyan.

    torchvision's `adjust_hue`, on HSV; the shift is drawn per sample. Images of one channel stay as
    they are.

    Args:
        amount (float | tuple[float, float]): Turns. A number h in [0, 0.5] draws shifts from -h to
            h; a pair in [-0.5, 0.5] is the range itself.

    Raises:
        ConfigError: If `amount` is out of range.

    Example:
        >>> ff.Hue(0.1).bounds()
        (-0.1, 0.1)
        >>> feed = ff.Feed(
        ...     ff.Arrays(np.array([[[[255, 0, 0]]]], np.uint8)), [ff.Hue((0.5, 0.5))], batch=1
        ... )
        >>> next(iter(feed)).images.ravel()
        array([  0, 255, 255], dtype=uint8)
    """

    amount: float | tuple[float, float]

    value: ClassVar[str] = "shift"

    def bounds(self) -> tuple[float, float]:
        return shift_range("Hue amount", self.amount)


@dataclass(frozen=True, slots=True)
class Grayscale(FixedOp):
    """Set every channel to the pixel's gray, 0.299 R + 0.587 G + 0.114 B, keeping all channels.

    Pillow's mode L. Images of one channel stay as they are.

    Example:
        >>> feed = ff.Feed(
        ...     ff.Arrays(np.array([[[[255, 0, 0]]]], np.uint8)), [ff.Grayscale()], batch=1
        ... )
        >>> next(iter(feed)).images.ravel()
        array([76, 76, 76], dtype=uint8)
    """


@dataclass(frozen=True, slots=True)
class ToBGR(FixedOp):
    """Swap red and blue, for models trained on images of OpenCV or Caffe.

    Put it after all ops on colors, which take the first channel for red, and before Normalize,
    whose numbers are then those of blue, green and red. Images of one channel stay as they are.

    Example:
        >>> feed = ff.Feed(
        ...     ff.Arrays(np.array([[[[255, 2, 1]]]], np.uint8)), [ff.ToBGR()], batch=1
        ... )
        >>> next(iter(feed)).images.ravel()
        array([  1,   2, 255], dtype=uint8)
    """

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        return {"channels": np.tile([2, 1, 0], (len(sizes), 1))}


@dataclass(frozen=True, slots=True)
class RandomGrayscale(ByteOp):
    """Set every channel to the pixel's gray, for a share of the samples.

    As torchvision's `RandomGrayscale`, and the same as `Maybe(Grayscale(), p)`.

    Args:
        p (float): Probability that a sample becomes gray, in [0, 1]. Default: 0.1.

    Raises:
        ConfigError: If `p` is out of range.

    Example:
        >>> feed = ff.Feed(
        ...     ff.Arrays(np.array([[[[255, 0, 0]]]], np.uint8)), [ff.RandomGrayscale(1.0)], batch=1
        ... )
        >>> next(iter(feed)).images.ravel()
        array([76, 76, 76], dtype=uint8)
    """

    p: float = 0.1

    draws: ClassVar[int] = 1

    def _check(self) -> None:
        check_p("RandomGrayscale p", self.p)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return (Layer((Grayscale(),)),)

    def choose(self, u: np.ndarray, sizes: np.ndarray) -> list[Choices]:
        return [Choices(np.where(u[:, 0] < self.p, 0, -1), ({},))]


@dataclass(frozen=True, slots=True)
class ChannelShuffle(ByteOp):
    """Put the channels into a random order; each of the six is equally likely.

    As torchvision's `RandomChannelPermutation` and Albumentations' `ChannelShuffle`. Images of one
    channel stay as they are.

    Example:
        >>> image = np.array([[[[1, 2, 3]]]], np.uint8)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.ChannelShuffle()], batch=1)
        >>> sorted(next(iter(feed)).images.ravel().tolist())
        [1, 2, 3]
    """

    draws: ClassVar[int] = 1

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        return {"channels": _ORDERS[(u[:, 0] * 6).astype(np.int64)]}


@dataclass(frozen=True, slots=True)
class ChannelDropout(ByteOp):
    """Fill one or two channels, chosen at random, with a constant.

    As Albumentations' `ChannelDropout`. Images of one channel stay as they are.

    Args:
        count (int | tuple[int, int]): Channels that are filled, or the range that it is drawn from
            per sample, both ends included. In [1, 2]. Default: 1.
        fill (tuple[int, int, int]): Byte of each channel where it is filled, in [0, 255]. Default:
            (0, 0, 0).

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> image = np.array([[[[5, 5, 5]]]], np.uint8)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.ChannelDropout(2)], batch=1)
        >>> sorted(next(iter(feed)).images.ravel().tolist())
        [0, 0, 5]
    """

    count: int | tuple[int, int] = 1
    fill: tuple[int, int, int] = (0, 0, 0)

    draws: ClassVar[int] = 2  # how many, which

    def _check(self) -> None:
        self._counts()
        check_fill("ChannelDropout fill", self.fill)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """Values: of each channel the one that it shows, or -1 for the fill."""
        low, high = self._counts()
        count = integers(u[:, :1], low, high)
        rank = _ORDERS[(u[:, 1] * 6).astype(np.int64)]
        return {"channels": np.where(rank < count, -1, np.arange(3))}

    def _counts(self) -> tuple[int, int]:
        hint = "write ChannelDropout(1) or ChannelDropout((1, 2))"
        return value_range("ChannelDropout count", self.count, 1, 2, hint, integer=True)


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
        (ops, draws) = _ops(self)
        n = len(sizes)
        orders = _orders(len(ops))
        first = len(ops) > 1  # the draw that chooses the order
        order = orders[(u[:, 0] * len(orders)).astype(np.int64) if first else np.zeros(n, np.int64)]
        values = []
        at = int(first)
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
