"""Sharpness, blurs, noise and JPEG compression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import ByteOp, need_bytes
from fastfeed.ops.noise_table import LENGTH
from fastfeed.ops.ranges import (
    FactorOp,
    RandomAmountOp,
    count_random,
    degree_range,
    integers,
    odd_range,
    spread,
    value_range,
)
from fastfeed.spec import Spec

__all__ = [
    "GaussianBlur",
    "GaussianNoise",
    "JPEGCompression",
    "MedianBlur",
    "MotionBlur",
    "Sharpness",
]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "Sharpness((0, 8))",
    "GaussianBlur(sigma=(0.1, 4.0))",
    "MotionBlur((9, 21))",
    "MedianBlur((5, 9))",
    "GaussianNoise((0, 50))",
    "JPEGCompression((3, 60))",
)

_MAX_SIDE = 65_500  # pixels a side of a JPEG, by libjpeg


@dataclass(frozen=True, slots=True)
class Sharpness(FactorOp):
    """Make the image softer or sharper, by blending it with a smoothed one.

    Pillow's `ImageEnhance.Sharpness`, whose smoothed image is `ImageFilter.SMOOTH`; the outermost
    pixels stay as they are. The factor is drawn per sample.

    Args:
        amount (float | tuple[float, float]): A number s draws factors from max(0, 1 - s) to 1 + s;
            a pair is the range itself. 0 is the smoothed image, 1 the image, above 1 is sharper. In
            [0, 100].

    Raises:
        ConfigError: If `amount` is out of range.

    Example:
        >>> ff.Sharpness(0.5).bounds()
        (0.5, 1.5)
    """

    amount: float | tuple[float, float]


@dataclass(frozen=True, slots=True)
class GaussianBlur(RandomAmountOp):
    """Blur with a Gaussian, of one width for all images or of one drawn per sample.

    torchvision's `gaussian_blur`. Beyond the edge the image is mirrored, the edge itself once;
    images smaller than the kernel are mirrored as often as it takes.

    Args:
        kernel (int | None): Width of the filter, odd, in [1, 999] pixels. Default: None, as wide as
            the largest sigma needs, 2 * ceil(3 * sigma) + 1.
        sigma (float | tuple[float, float]): Standard deviation, or the range that it is drawn from
            per sample, in [0.01, 100] pixels. Default: (0.1, 2.0).

    Raises:
        ConfigError: If a field is out of range, or `kernel` is even.

    Example:
        >>> blur = ff.GaussianBlur(sigma=(0.1, 2.0))
        >>> blur.bounds(), blur.taps
        ((0.1, 2.0), 13)
        >>> image = np.array([0, 0, 90, 0, 0], np.uint8).reshape(1, 1, 5, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.GaussianBlur(3, sigma=100.0)], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([ 0, 30, 30, 30,  0], dtype=uint8)
    """

    kernel: int | None = None
    sigma: float | tuple[float, float] = (0.1, 2.0)

    value: ClassVar[str] = "sigma"

    def bounds(self) -> tuple[float, float]:
        kernel: Any = self.kernel
        is_integer = isinstance(kernel, int) and not isinstance(kernel, bool)
        if kernel is not None and not (is_integer and 1 <= kernel <= 999 and kernel % 2):
            raise ConfigError.of(
                "GaussianBlur kernel",
                "an odd integer in [1, 999] pixels or None",
                kernel,
                "write GaussianBlur(23) or leave it out",
            )
        hint = (
            "write GaussianBlur(sigma=(0.1, 2.0)), and Maybe(GaussianBlur(), 0.5) to blur every"
            " other image"
        )
        return value_range("GaussianBlur sigma", self.sigma, 0.01, 100, hint)

    @property
    def taps(self) -> int:
        """Width of the filter, pixels."""
        return 2 * math.ceil(3 * self.bounds()[1]) + 1 if self.kernel is None else self.kernel


@dataclass(frozen=True, slots=True)
class MotionBlur(ByteOp):
    """Blur along a line, as if the camera had moved: the mean of `length` pixels a pixel apart.

    The line is centered at each pixel, and its points are rounded to the nearest pixel. Beyond the
    edge the image is mirrored, the edge itself once.

    Args:
        length (int | tuple[int, int]): Pixels of the line, or the range that it is drawn from per
            sample, both ends included. Odd, in [1, 99]. Default: (3, 15).
        degrees (float | tuple[float, float]): Angle of the line against the horizontal. A number d
            draws angles from -d to d; a pair is the range itself, both in [-360, 360]. Above 0 is
            counterclockwise. Default: 90.0.

    Raises:
        ConfigError: If a field is out of range, or `length` is even.

    Example:
        >>> image = np.array([0, 0, 90, 0, 0], np.uint8).reshape(1, 1, 5, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.MotionBlur(3, (0, 0))], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([ 0, 30, 30, 30,  0], dtype=uint8)
    """

    length: int | tuple[int, int] = (3, 15)
    degrees: float | tuple[float, float] = 90.0

    def _check(self) -> None:
        self._ranges()

    @property
    def draws(self) -> int:
        """Random numbers per sample: one for the length and one for the angle, unless fixed."""
        return count_random(self._ranges())

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """Values: the length, and a unit vector (x, y) along the line, y downward."""
        lengths, angles = self._ranges()
        first = u[:, 0] if lengths[0] < lengths[1] else np.zeros(len(sizes))
        (degrees,) = spread([angles], u[:, -1:], len(sizes))
        angle = np.radians(degrees)
        direction = np.stack([np.cos(angle), -np.sin(angle)], axis=1)
        return {"length": integers(first, *lengths, step=2), "direction": direction}

    def _ranges(self) -> tuple[tuple[int, int], tuple[float, float]]:
        hint = "write MotionBlur(9) or MotionBlur((3, 15))"
        lengths = odd_range("MotionBlur length", self.length, 99, hint)
        return lengths, degree_range("MotionBlur", self.degrees)


@dataclass(frozen=True, slots=True)
class MedianBlur(RandomAmountOp):
    """Replace each byte by the median of a square around it, per channel.

    OpenCV's `medianBlur`. Beyond the edge the outermost pixels are repeated.

    Args:
        kernel (int | tuple[int, int]): Side of the square, or the range that it is drawn from per
            sample, both ends included. Odd, in [1, 15] pixels. Default: (3, 7).

    Raises:
        ConfigError: If `kernel` is out of range or even.

    Example:
        >>> ff.MedianBlur(3).bounds()
        (3, 3)
        >>> image = np.array([9, 9, 200, 7, 9], np.uint8).reshape(1, 1, 5, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.MedianBlur(3)], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([9, 9, 9, 9, 9], dtype=uint8)
    """

    kernel: int | tuple[int, int] = (3, 7)

    value: ClassVar[str] = "kernel"
    step: ClassVar[int] = 2

    def bounds(self) -> tuple[int, int]:
        hint = "write MedianBlur(5) or MedianBlur((3, 7))"
        return odd_range("MedianBlur kernel", self.kernel, 15, hint)


@dataclass(frozen=True, slots=True)
class GaussianNoise(ByteOp):
    """Add Gaussian noise, independent for every pixel and channel.

    Byte i of the image becomes byte + sigma * table[(offset + i) % len(table)], rounded and
    clipped: the noise is read from a fixed table at a random offset. `fastfeed/ops/noise_table.py`
    describes its statistics.

    Args:
        sigma (float | tuple[float, float]): Standard deviation, or the range that it is drawn from
            per sample, in [0, 255] levels; torchvision's 0.1 is 25.5. Default: (0.0, 25.0).

    Raises:
        ConfigError: If `sigma` is out of range.

    Example:
        >>> feed = ff.Feed(
        ...     ff.Arrays(np.full((1, 64, 64, 3), 128, np.uint8)), [ff.GaussianNoise(10.0)], batch=1
        ... )
        >>> round(float(next(iter(feed)).images.std()))
        10
    """

    sigma: float | tuple[float, float] = (0.0, 25.0)

    draws: ClassVar[int] = 2

    def _check(self) -> None:
        self._bounds()

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        low, high = self._bounds()
        return {
            "sigma": low + u[:, 0] * (high - low),
            "offset": (u[:, 1] * LENGTH).astype(np.int64),
        }

    def _bounds(self) -> tuple[float, float]:
        hint = "it is in levels: torchvision's 0.1 is GaussianNoise(25.5)"
        return value_range("GaussianNoise sigma", self.sigma, 0, 255, hint)


@dataclass(frozen=True, slots=True)
class JPEGCompression(RandomAmountOp):
    """Compress as JPEG and decode again, for the artifacts of images on the web.

    libjpeg with chroma subsampled 4:2:0, as Pillow's `Image.save`.

    Args:
        quality (int | tuple[int, int]): On libjpeg's scale, or the range that it is drawn from per
            sample, both ends included. In [1, 100]. Default: (30, 95).

    Raises:
        ConfigError: If `quality` is out of range.

    Example:
        >>> ff.JPEGCompression((30, 95)).bounds()
        (30, 95)
    """

    quality: int | tuple[int, int] = (30, 95)

    value: ClassVar[str] = "quality"
    step: ClassVar[int] = 1

    @property
    def draws(self) -> int:
        """Random numbers per sample: one, also for a fixed quality."""
        return 1

    def bounds(self) -> tuple[int, int]:
        hint = "write JPEGCompression((30, 95))"
        return value_range("JPEGCompression quality", self.quality, 1, 100, hint, integer=True)

    def out(self, spec: Spec) -> Spec:
        need_bytes(self, spec)
        if max(side or 0 for side in spec.size) > _MAX_SIDE:
            raise SpecError(
                f"JPEGCompression needs images of at most {_MAX_SIDE} pixels a side, got {spec};"
                " put CenterCrop or Resize before it"
            )
        return spec
