"""Ops that change sharpness, grain and fidelity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import Kind, check_range, freeze, need_bytes
from fastfeed.ops.normal import LENGTH
from fastfeed.spec import Spec

__all__ = ["GaussianBlur", "GaussianNoise", "JPEGCompression", "Sharpness"]

_MOST = 65_500  # pixels a side of a JPEG, by libjpeg


@dataclass(frozen=True, slots=True)
class Sharpness:
    """Sharpen or soften by a random factor: 0 is soft, 1 as it was, 2 sharper.

    A number `a` stands for factors in [max(0, 1 - a), 1 + a], a pair for the range itself, within [0, 100]. Pillow's
    `ImageEnhance.Sharpness`: a blend of the image and `ImageFilter.SMOOTH` of it; the outermost pixels stay.
    """

    amount: float | tuple[float, float]

    kind: ClassVar[Kind] = "change"
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        freeze(self, "amount")
        self._range()

    def out(self, spec: Spec) -> Spec:
        return need_bytes(self, spec)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        return {"factor": _between(u[:, 0], *self._range())}

    def _range(self) -> tuple[float, float]:
        amount: Any = self.amount
        if isinstance(amount, (int, float, np.number)) and not isinstance(amount, bool):
            if not 0 <= amount <= 99:
                raise ConfigError(
                    f"Sharpness amount must be in [0, 99], got {amount!r}; write Sharpness(0.5) for factors from 0.5 "
                    "to 1.5, or Sharpness((0.5, 1.5))"
                )
            return max(0.0, 1.0 - float(amount)), 1.0 + float(amount)
        return check_range("Sharpness amount", amount, 0, 100, "write Sharpness(0.5) or Sharpness((0.5, 1.5))")


@dataclass(frozen=True, slots=True)
class GaussianBlur:
    """Blur with a Gaussian of random width. No Maybe inside: Maybe(GaussianBlur(), 0.5) blurs every other image.

    sigma is uniform in its range, in pixels, within (0, 100]; `kernel` is how many pixels the filter reaches across,
    odd, within [1, 999]; None: as many as the largest sigma needs, 2 * ceil(3 * sigma) + 1. Beyond the edge the image
    is mirrored, the edge itself once. torchvision's `gaussian_blur`, for images smaller than the kernel, too.
    """

    kernel: int | None = None  # pixels
    sigma: tuple[float, float] = (0.1, 2.0)  # pixels

    kind: ClassVar[Kind] = "change"
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        freeze(self, "sigma")
        low, _ = check_range(
            "GaussianBlur sigma", self.sigma, 0, 100, "write GaussianBlur(sigma=(1, 1)) for exactly 1 pixel"
        )
        if low == 0:
            raise ConfigError(
                f"GaussianBlur sigma must be above 0, got {self.sigma!r}; write (0.1, 2.0), "
                "and Maybe(GaussianBlur(...), p) to leave images as they are"
            )
        kernel: Any = self.kernel
        if kernel is not None and (
            isinstance(kernel, bool)
            or not isinstance(kernel, (int, np.integer))
            or not 1 <= kernel <= 999
            or not kernel % 2
        ):
            raise ConfigError(
                f"GaussianBlur kernel must be an odd integer in [1, 999] pixels or None, got {kernel!r}; "
                "write GaussianBlur(23) or leave it out"
            )

    @property
    def taps(self) -> int:
        """How many pixels the filter reaches across."""
        return 2 * math.ceil(3 * self.sigma[1]) + 1 if self.kernel is None else int(self.kernel)

    def out(self, spec: Spec) -> Spec:
        return need_bytes(self, spec)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        return {"sigma": _between(u[:, 0], *self.sigma)}


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """Add grain: independent normal noise for every pixel and channel.

    sigma, its standard deviation, is uniform in its range, in levels of 255, within [0, 255]. The noise is looked up in
    a fixed table, from a random place on (see `ops/normal.py` for what that means statistically): byte i of the image
    becomes byte + sigma * table[(offset + i) % len(table)], rounded and clipped.
    """

    sigma: tuple[float, float] = (0.0, 25.0)  # levels of 255

    kind: ClassVar[Kind] = "change"
    draws: ClassVar[int] = 2

    def __post_init__(self) -> None:
        freeze(self, "sigma")
        check_range(
            "GaussianNoise sigma",
            self.sigma,
            0,
            255,
            "levels of 255: torchvision's 0.1 is GaussianNoise((25.5, 25.5))",
        )

    def out(self, spec: Spec) -> Spec:
        return need_bytes(self, spec)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        return {"sigma": _between(u[:, 0], *self.sigma), "offset": (u[:, 1] * LENGTH).astype(np.int64)}


@dataclass(frozen=True, slots=True)
class JPEGCompression:
    """Store as JPEG of a random quality and read that again: the artifacts of photographs on the web.

    quality is an integer, uniform in its range, both ends included, within [1, 100], on libjpeg's scale, which Pillow's
    `save(quality=)` has, too; colors at half resolution (4:2:0), as there.
    """

    quality: tuple[int, int] = (30, 95)

    kind: ClassVar[Kind] = "change"
    draws: ClassVar[int] = 1

    def __post_init__(self) -> None:
        freeze(self, "quality")
        low, high = check_range(
            "JPEGCompression quality", self.quality, 1, 100, "write JPEGCompression((50, 50)) for exactly 50"
        )
        if low % 1 or high % 1:
            raise ConfigError(f"JPEGCompression quality must be two integers in [1, 100], got {self.quality!r}")

    def out(self, spec: Spec) -> Spec:
        need_bytes(self, spec)
        if max(n or 0 for n in spec.size) > _MOST:
            raise SpecError(
                f"JPEGCompression needs images of at most {_MOST} pixels a side, got {spec}; crop before it"
            )
        return spec

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        low, high = (int(q) for q in self.quality)
        return {"quality": low + (u[:, 0] * (high - low + 1)).astype(np.int64)}


def _between(u: np.ndarray, low: float, high: float) -> np.ndarray:
    return low + u * (high - low)
