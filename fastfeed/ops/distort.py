"""Warps that bend images: every pixel moves by its own amount, smoothly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastfeed.ops.base import check_integer
from fastfeed.ops.noise_table import LENGTH, STEPS
from fastfeed.ops.ranges import count_random, spread, value_range
from fastfeed.ops.warp import WarpOp, check_look

__all__ = ["ElasticTransform", "GridDistortion"]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "ElasticTransform(120.0, 6.0)",
    "GridDistortion(5, 0.4)",
)

_UNIT = 1 << 14  # of weights: sums of noise fit into 32 bits
DISPLACEMENT = 256 / (2 * 3**0.5 * STEPS * _UNIT)  # per sum and alpha, in 1/256 of a pixel


@dataclass(frozen=True, slots=True)
class ElasticTransform(WarpOp):
    """Move every pixel by smoothed noise, as a rubber sheet is stretched.

    As torchvision's `ElasticTransform`: noise, blurred with `sigma`, times `alpha` / 2 is the
    displacement in pixels, along x and y. torchvision's noise is uniform in [-1, 1]; this one is
    normal with its variance, read from a fixed table at random offsets, which the blur makes the
    same. Boxes, keypoints and masks cannot follow: a source of these is refused. A mask as a second
    image of `Together` follows. On the cpu backend.

    Args:
        alpha (float | tuple[float, float]): Strength, or the range that it is drawn from per
            sample, in [0, 10000]; twice Albumentations' `alpha`. Default: 50.0.
        sigma (float): Standard deviation of the blur, in [0.5, 100] pixels. Default: 5.0.
        filter (str): "bilinear" or "nearest". Default: "bilinear".
        fill (tuple[int, int, int]): RGB of pixels from outside the image, in [0, 255]. Default: (0,
            0, 0).
        border (str): Pixels outside the image: "constant" (`fill`), "edge" (the outermost pixel),
            "reflect" (dcb|abcd|cba) or "symmetric" (cba|abcd|dcb). Default: "constant".

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> ff.ElasticTransform((20, 80), border="reflect").draws
        3
        >>> image = np.arange(9, dtype=np.uint8).reshape(1, 3, 3, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.ElasticTransform(0.0)], batch=1)
        >>> bool((next(iter(feed)).images == image).all())
        True
    """

    alpha: float | tuple[float, float] = 50.0
    sigma: float = 5.0
    filter: str = "bilinear"
    fill: tuple[int, int, int] = (0, 0, 0)
    border: str = "constant"

    bends: ClassVar[bool] = True

    def _check(self) -> None:
        self._alphas()
        value_range("ElasticTransform sigma", (self.sigma,) * 2, 0.5, 100, "write sigma=5.0")
        check_look(self)

    @property
    def draws(self) -> int:
        """Random numbers per sample: two offsets, and one for the strength if that is random."""
        return 2 + count_random([self._alphas()])

    @property
    def weights(self) -> np.ndarray:
        """Weights of the blur, in 1 / 16384: int64 (taps,), as many as torchvision's."""
        half = (int(8 * self.sigma + 1) | 1) // 2
        weights = np.exp(-0.5 * (np.arange(-half, half + 1) / self.sigma) ** 2)
        return np.rint(weights / weights.sum() * _UNIT).astype(np.int64)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        (alpha,) = spread([self._alphas()], u[:, 2:], len(sizes))
        return {"alpha": alpha, "offsets": (u[:, :2] * LENGTH).astype(np.int64)}

    def _alphas(self) -> tuple[float, float]:
        return value_range(
            "ElasticTransform alpha", self.alpha, 0, 10_000, "write ElasticTransform(50.0)"
        )


@dataclass(frozen=True, slots=True)
class GridDistortion(WarpOp):
    """Stretch and squeeze the columns and rows of a grid by random amounts.

    As Albumentations' `GridDistortion(normalized=True)`: each of `steps` strips gets a random
    weight, and shows a part of the image as wide as its share of all weights. Boxes, keypoints and
    masks cannot follow: a source of these is refused. A mask as a second image of `Together`
    follows. On the cpu backend.

    Args:
        steps (int): Strips along either side, in [2, 64]. Default: 5.
        limit (float | tuple[float, float]): Weights are drawn from 1 - limit to 1 + limit; a pair
            (low, high) draws from 1 + low to 1 + high. In [-0.95, 0.95]. Default: 0.3.
        filter (str): "bilinear" or "nearest". Default: "bilinear".
        fill (tuple[int, int, int]): RGB of pixels from outside the image, which half a pixel at the
            edge may show, in [0, 255]. Default: (0, 0, 0).
        border (str): Pixels outside the image: "constant" (`fill`), "edge" (the outermost pixel),
            "reflect" (dcb|abcd|cba) or "symmetric" (cba|abcd|dcb). Default: "edge".

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> image = np.arange(9, dtype=np.uint8).reshape(1, 3, 3, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.GridDistortion(limit=0.0)], batch=1)
        >>> bool((next(iter(feed)).images == image).all())
        True
    """

    steps: int = 5
    limit: float | tuple[float, float] = 0.3
    filter: str = "bilinear"
    fill: tuple[int, int, int] = (0, 0, 0)
    border: str = "edge"

    bends: ClassVar[bool] = True

    def _check(self) -> None:
        check_integer("GridDistortion steps", self.steps, 2, 64, "write GridDistortion(5)")
        self._limits()
        check_look(self)

    @property
    def draws(self) -> int:
        """Random numbers per sample: a weight for each column and row of the grid."""
        return 2 * self.steps

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        low, high = self._limits()
        weights = (1 + low + u * (high - low)).reshape(len(sizes), 2, self.steps)
        lines = np.zeros((len(sizes), 2, self.steps + 1))
        lines[:, :, 1:] = np.cumsum(weights, axis=2) / weights.sum(axis=2, keepdims=True)
        # places in the image of the grid's lines: columns, then rows
        return {"lines": lines * sizes[:, ::-1, None]}

    def _limits(self) -> tuple[float, float]:
        hint = "write GridDistortion(5, 0.3)"
        least = -0.95 if isinstance(self.limit, tuple) else 0.0
        low, high = value_range("GridDistortion limit", self.limit, least, 0.95, hint)
        return (low, high) if isinstance(self.limit, tuple) else (-low, high)
