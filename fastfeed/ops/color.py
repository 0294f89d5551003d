"""Ops that change colors, either per pixel or from statistics of the whole image.

Factors are those of Pillow's ImageEnhance: 0 removes the property, 1 changes nothing, above 1 exaggerates it.
Saturation, Hue and Grayscale leave single-channel images unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import Kind, freeze, need_bytes
from fastfeed.ops.ranges import FixedOp, RandomAmountOp, factor_range, shift_range, value_range
from fastfeed.spec import Spec

__all__ = [
    "LUT",
    "AutoContrast",
    "Brightness",
    "Contrast",
    "Equalize",
    "Gamma",
    "Grayscale",
    "Hue",
    "Invert",
    "Posterize",
    "Saturation",
    "Solarize",
]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "Brightness(0.6)",
    "Contrast(0.8)",
    "Saturation(1.0)",
    "Hue(0.5)",
    "Gamma((0.4, 2.5))",
    "Solarize((0, 256))",
    "Posterize((1, 5))",
    "Grayscale()",
    "Equalize()",
    "AutoContrast()",
    "Invert()",
    "LUT([*range(0, 256, 2), *range(255, 0, -2)])",
)


@dataclass(frozen=True, slots=True)
class Brightness(RandomAmountOp):
    """Darken or brighten: multiply every byte by a factor and clip at 255. Pillow's ImageEnhance.Brightness."""

    amount: float | tuple[float, float]  # b: factors from max(0, 1 - b) to 1 + b; or the pair of factors, in [0, 100]

    value: ClassVar[str] = "factor"

    def bounds(self) -> tuple[float, float]:
        return factor_range("Brightness amount", self.amount)


@dataclass(frozen=True, slots=True)
class Contrast(RandomAmountOp):
    """Reduce or increase contrast around the mean gray of the image. Pillow's ImageEnhance.Contrast."""

    amount: float | tuple[float, float]  # c: factors from max(0, 1 - c) to 1 + c; or the pair of factors, in [0, 100]

    value: ClassVar[str] = "factor"

    def bounds(self) -> tuple[float, float]:
        return factor_range("Contrast amount", self.amount)


@dataclass(frozen=True, slots=True)
class Saturation(RandomAmountOp):
    """Make colors paler or stronger, relative to each pixel's own gray. Pillow's ImageEnhance.Color."""

    amount: float | tuple[float, float]  # s: factors from max(0, 1 - s) to 1 + s; or the pair of factors, in [0, 100]

    value: ClassVar[str] = "factor"

    def bounds(self) -> tuple[float, float]:
        return factor_range("Saturation amount", self.amount)


@dataclass(frozen=True, slots=True)
class Hue(RandomAmountOp):
    """Rotate the hue on the color wheel; half a turn makes red cyan. torchvision's adjust_hue, on HSV."""

    amount: float | tuple[float, float]  # turns; h: from -h to h; or the pair itself, in [-0.5, 0.5]

    value: ClassVar[str] = "shift"

    def bounds(self) -> tuple[float, float]:
        return shift_range("Hue amount", self.amount)


@dataclass(frozen=True, slots=True)
class Gamma(RandomAmountOp):
    """Gamma correction: below 1 is lighter, above 1 darker. torchvision's adjust_gamma."""

    gamma: float | tuple[float, float]  # the exponent, or the range of a random one; in [0.01, 100]

    value: ClassVar[str] = "gamma"

    def bounds(self) -> tuple[float, float]:
        return value_range("Gamma gamma", self.gamma, 0.01, 100, "write Gamma(2.2) or Gamma((0.8, 1.25))")


@dataclass(frozen=True, slots=True)
class Solarize(RandomAmountOp):
    """Invert bytes at or above the threshold. Pillow's ImageOps.solarize."""

    threshold: float | tuple[float, float] = 128  # or the range of a random one; in [0, 256], and 256 inverts nothing

    value: ClassVar[str] = "threshold"

    def bounds(self) -> tuple[float, float]:
        return value_range("Solarize threshold", self.threshold, 0, 256, "write Solarize(128) or Solarize((64, 256))")


@dataclass(frozen=True, slots=True)
class Posterize(RandomAmountOp):
    """Keep only the highest bits of every byte. Pillow's ImageOps.posterize."""

    bits: int | tuple[int, int]  # or the range of a random number of them, both ends included; in [0, 8]

    value: ClassVar[str] = "bits"

    def bounds(self) -> tuple[int, int]:
        """(low, high), both included."""
        return value_range("Posterize bits", self.bits, 0, 8, "write Posterize(4) or Posterize((4, 8))", integer=True)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        low, high = self.bounds()
        if low == high:
            return {"bits": np.full(len(sizes), low, np.int64)}
        return {"bits": low + (u[:, 0] * (high - low + 1)).astype(np.int64)}


@dataclass(frozen=True, slots=True)
class Grayscale(FixedOp):
    """Set every channel to the pixel's gray, 0.299 R + 0.587 G + 0.114 B: Pillow's mode L, same number of channels."""


@dataclass(frozen=True, slots=True)
class Equalize(FixedOp):
    """Equalize the histogram of each channel. Pillow's ImageOps.equalize."""


@dataclass(frozen=True, slots=True)
class AutoContrast(FixedOp):
    """Stretch each channel so that its darkest byte becomes 0 and its lightest 255. Pillow's ImageOps.autocontrast."""


@dataclass(frozen=True, slots=True)
class Invert(FixedOp):
    """Make a negative: 255 minus every byte. Pillow's ImageOps.invert."""


@dataclass(frozen=True, slots=True)
class LUT:
    """Replace every byte through a lookup table: 256 integers in [0, 255], or three rows of them for R, G, B.

    Lists and arrays, (256,) or (3, 256), become tuples.
    """

    table: Any  # tuple of 256 integers, or of three such

    kind: ClassVar[Kind] = "change"
    draws: ClassVar[int] = 0

    def __post_init__(self) -> None:
        freeze(self)
        wrong = self._wrong()
        if wrong:
            raise ConfigError(
                f"LUT table must be 256 integers in [0, 255], or three rows of 256, got {wrong}; "
                "write LUT([255 - v for v in range(256)])"
            )

    def _wrong(self) -> str:
        """What is wrong with the table; empty if nothing is."""
        rows = self.table if self.per_channel else (self.table,)
        if len(rows) not in (1, 3):
            return f"{len(rows)} rows"
        for row in rows:
            if not isinstance(row, tuple) or len(row) != 256:
                return f"{len(row)} values" if isinstance(row, tuple) and len(row) > 8 else repr(row)
            for at, value in enumerate(row):
                if type(value) is not int or not 0 <= value <= 255:
                    return f"{value!r} at [{at}]"
        return ""

    @property
    def per_channel(self) -> bool:
        """Whether there is a row for each of three channels."""
        return isinstance(self.table, tuple) and bool(self.table) and isinstance(self.table[0], tuple)

    def out(self, spec: Spec) -> Spec:
        need_bytes(self, spec)
        if self.per_channel and spec.channels != 3:
            raise SpecError(f"LUT with three rows needs 3 channels, got {spec}; write one row of 256 integers")
        return spec

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        return {}
