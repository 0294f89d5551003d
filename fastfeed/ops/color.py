"""Ops that change how bright and how colorful an image is.

Factors are those of Pillow's ImageEnhance: 0 removes the property, 1 changes nothing, above 1
exaggerates it. Saturation, Hue, Grayscale and ToBGR leave single-channel images unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fastfeed.ops.ranges import FixedOp, RandomAmountOp, factor_range, shift_range

__all__ = ["Brightness", "Contrast", "Grayscale", "Hue", "Saturation", "ToBGR"]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "Brightness(0.6)",
    "Contrast(0.8)",
    "Saturation(1.0)",
    "Hue(0.5)",
    "Grayscale()",
    "ToBGR()",
)


@dataclass(frozen=True, slots=True)
class Brightness(RandomAmountOp):
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

    value: ClassVar[str] = "factor"

    def bounds(self) -> tuple[float, float]:
        return factor_range("Brightness amount", self.amount)


@dataclass(frozen=True, slots=True)
class Contrast(RandomAmountOp):
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

    value: ClassVar[str] = "factor"

    def bounds(self) -> tuple[float, float]:
        return factor_range("Contrast amount", self.amount)


@dataclass(frozen=True, slots=True)
class Saturation(RandomAmountOp):
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

    value: ClassVar[str] = "factor"

    def bounds(self) -> tuple[float, float]:
        return factor_range("Saturation amount", self.amount)


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
