"""Ops that hide parts of an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import (
    LARGEST_SIDE,
    ByteOp,
    check_fill,
    check_flag,
    check_integer,
    check_number,
    check_p,
    check_range,
    need_bytes,
)
from fastfeed.ops.noise_table import LENGTH, gray
from fastfeed.ops.ranges import integers, value_range
from fastfeed.spec import Spec

__all__ = ["CutOut", "GridMask", "RandomErasing"]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "RandomErasing(1.0)",
    'RandomErasing(1.0, fill="noise")',
    'RandomErasing(1.0, fill="color")',
    "CutOut(50)",
    "GridMask((40, 100))",
)

_TRIES = 10
_DRAWN = ("noise", "color")  # fills that need a random number


@dataclass(frozen=True, slots=True)
class RandomErasing(ByteOp):
    """Erase a random rectangle with a given probability.

    Ten areas (uniform) and aspect ratios are tried until one is smaller than the image on both
    axes; if none is, nothing is erased. Zhong et al., "Random Erasing Data
    Augmentation" (2017); drawn and rounded as in torchvision's `RandomErasing.get_params`, but on
    bytes: torchvision's value=0 after Normalize means ImageNet's mean, which is fill=(124, 116,
    104) here.

    Args:
        p (float): Probability that a sample is erased, in [0, 1]. Default: 0.5.
        scale (tuple[float, float]): Lowest and highest share of the image's area, in [0, 1].
            Default: (0.02, 0.33).
        ratio (tuple[float, float]): Lowest and highest height / width, in (0, 1000]. Default: (0.3,
            3.3).
        fill (tuple[int, int, int] | str): RGB in [0, 255], or "noise": normal noise for every byte,
            127.5 +- 57.5, clipped, close to torchvision's value="random" (see
            `fastfeed/ops/noise_table.py`), or "color": one color for the rectangle, whose three
            bytes are drawn likewise. timm's modes are "const", "pixel" and "rand". Default: (0, 0,
            0).
        log_ratio (bool): Draw aspect ratios log-uniformly, as torchvision and timm; False:
            uniformly, so that most rectangles are upright, as the paper's code does and most code
            for re-identification. Default: True.

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> op = ff.RandomErasing(p=1.0, scale=(0.25, 0.25), ratio=(1.0, 1.0), fill=(255, 255, 255))
        >>> feed = ff.Feed(ff.Arrays(np.zeros((1, 8, 8, 3), np.uint8)), [op], batch=1)
        >>> float(next(iter(feed)).images.mean()) / 255
        0.25
    """

    p: float = 0.5
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    fill: tuple[int, int, int] | Literal["noise", "color"] = (0, 0, 0)
    log_ratio: bool = True

    def _check(self) -> None:
        check_p("RandomErasing p", self.p)
        hint = "shares of the image's area, such as (0.02, 0.33)"
        check_range("RandomErasing scale", self.scale, 0, 1, hint)
        hint = "height / width, such as (0.3, 3.3)"
        check_range("RandomErasing ratio", self.ratio, 0, 1000, hint, above=True)
        if self.fill not in _DRAWN:
            if isinstance(self.fill, str):
                must = '(r, g, b), "noise" or "color"'
                raise ConfigError.of("RandomErasing fill", must, self.fill)
            check_fill("RandomErasing fill", self.fill)
        check_flag("RandomErasing log_ratio", self.log_ratio)

    @property
    def draws(self) -> int:
        """Random numbers per sample.

        They decide to erase or not, ten areas, ten ratios, a place, and the start of the noise.
        """
        return 2 * _TRIES + (4 if self.fill in _DRAWN else 3)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        height = sizes[:, 0].astype(np.float64)
        width = sizes[:, 1].astype(np.float64)
        low, high = np.log(self.ratio) if self.log_ratio else self.ratio
        area = (height * width)[:, None] * _between(u[:, 1 : 1 + _TRIES], *self.scale)
        ratio = _between(u[:, 1 + _TRIES : 1 + 2 * _TRIES], low, high)
        ratio = np.exp(ratio) if self.log_ratio else ratio
        h = np.rint(np.sqrt(area * ratio))
        w = np.rint(np.sqrt(area / ratio))
        fits = (h < height[:, None]) & (w < width[:, None])
        rows = np.arange(len(sizes))
        first = fits.argmax(axis=1)
        h = h[rows, first]
        w = w[rows, first]
        y = u[:, 1 + 2 * _TRIES]
        x = u[:, 2 + 2 * _TRIES]
        box = np.stack(
            [np.floor(y * (height - h + 1)), np.floor(x * (width - w + 1)), h, w], axis=1
        )
        box[~(fits.any(axis=1) & (u[:, 0] < self.p) & (h > 0) & (w > 0))] = 0
        values = {"box": box.astype(np.int64)}
        if self.fill in _DRAWN:
            values["offset"] = (u[:, 3 + 2 * _TRIES] * LENGTH).astype(np.int64)
        if self.fill == "color":
            values["color"] = gray()[(values.pop("offset")[:, None] + np.arange(3)) % LENGTH]
        return values


@dataclass(frozen=True, slots=True)
class CutOut(ByteOp):
    """Hide a square centered anywhere in the image, so it is cut off near the edges.

    DeVries and Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout"
    (2017): 16 pixels for CIFAR-10, 8 for CIFAR-100.

    Args:
        size (int): Height and width of the square, in [1, 65535] pixels and not larger than the
            image.
        fill (tuple[int, int, int]): RGB, in [0, 255]. Default: (0, 0, 0).

    Raises:
        ConfigError: If a field is out of range. A square larger than the image is a SpecError when
            the feed is made.

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.full((1, 1, 1, 3), 100, np.uint8)), [ff.CutOut(1)], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([0, 0, 0], dtype=uint8)
    """

    size: int
    fill: tuple[int, int, int] = (0, 0, 0)

    draws: ClassVar[int] = 2

    def _check(self) -> None:
        check_integer("CutOut size", self.size, 1, LARGEST_SIDE, "write CutOut(16)", " pixels")
        check_fill("CutOut fill", self.fill)

    def out(self, spec: Spec) -> Spec:
        need_bytes(self, spec)
        height, width = spec.size
        if self.size > min(height or 0, width or 0):
            raise SpecError(
                f"CutOut size must be at most the image's, {height} x {width} pixels, got"
                f" {self.size}; write CutOut({max(min(height or 0, width or 0) // 2, 1)}), or put"
                " it where images are larger"
            )
        return spec

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        first = np.floor(u * sizes).astype(np.int64) - self.size // 2
        inside = np.maximum(first, 0)
        return {
            "box": np.concatenate([inside, np.minimum(first + self.size, sizes) - inside], axis=1)
        }


@dataclass(frozen=True, slots=True)
class GridMask(ByteOp):
    """Hide squares on a regular grid that begins at a random point.

    Chen et al., "GridMask Data Augmentation" (2020), with d and r as `unit` and `keep`; the
    defaults are theirs for ImageNet at 224 pixels. The grid is never rotated, as theirs may be:
    squares are exact to the pixel.

    Args:
        unit (int | tuple[int, int]): Period of the grid, or the range that it is drawn from per
            sample, both ends included, in [2, 65535] pixels. Default: (96, 224).
        keep (float): Share of a period's side that is kept, in (0, 1); rounded, at least one pixel
            is kept and one hidden. (1 - keep)**2 of the image is hidden. Default: 0.6.
        fill (tuple[int, int, int]): RGB, in [0, 255]. Default: (0, 0, 0).

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> feed = ff.Feed(
        ...     ff.Arrays(np.full((1, 8, 8, 1), 255, np.uint8)), [ff.GridMask(4, keep=0.5)], batch=1
        ... )
        >>> float(next(iter(feed)).images.mean()) / 255
        0.75
    """

    unit: int | tuple[int, int] = (96, 224)
    keep: float = 0.6
    fill: tuple[int, int, int] = (0, 0, 0)

    draws: ClassVar[int] = 3

    def _check(self) -> None:
        self._units()
        check_number("GridMask keep", self.keep, 0, 1, "0.6 hides 16 % of the image", "()")
        check_fill("GridMask fill", self.fill)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        """Values of the squares that hide pixels.

        A pixel is hidden if (y - top) % unit and (x - left) % unit are both below share * unit, an
        integer.
        """
        low, high = self._units()
        unit = integers(u[:, 0], low, high)
        kept = np.clip(np.floor(unit * self.keep + 0.5), 1, unit - 1)
        top, left = (np.floor(u[:, 1:] * unit[:, None]).astype(np.int64)).T
        return {"unit": unit, "share": (unit - kept) / unit, "top": top, "left": left}

    def _units(self) -> tuple[int, int]:
        return value_range(
            "GridMask unit", self.unit, 2, 65_535, "in pixels: GridMask((96, 224))", integer=True
        )


def _between(u: np.ndarray, low: float, high: float) -> np.ndarray:
    return low + u * (high - low)
