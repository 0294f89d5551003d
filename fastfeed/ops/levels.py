"""Ops that map byte levels to others, by a fixed table or by one from the image's histogram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import check_integer, need_bytes
from fastfeed.ops.ranges import FixedOp, RandomAmountOp, value_range
from fastfeed.spec import Spec

__all__ = [
    "LUT",
    "AutoContrast",
    "Equalize",
    "Gamma",
    "Invert",
    "Posterize",
    "Solarize",
    "SolarizeAdd",
]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "Gamma((0.4, 2.5))",
    "Solarize((0, 256))",
    "SolarizeAdd((0, 110))",
    "Posterize((1, 5))",
    "Equalize()",
    "AutoContrast()",
    "Invert()",
    "LUT([*range(0, 256, 2), *range(255, 0, -2)])",
)


@dataclass(frozen=True, slots=True)
class Gamma(RandomAmountOp):
    """Correct gamma: 255 * (byte / 255) ** gamma, which is lighter below 1 and darker above.

    torchvision's `adjust_gamma`.

    Args:
        gamma (float | tuple[float, float]): The exponent, or the range that it is drawn from per
            sample. In [0.01, 100].

    Raises:
        ConfigError: If `gamma` is out of range.

    Example:
        >>> ff.Gamma((0.8, 1.25)).bounds()
        (0.8, 1.25)
        >>> feed = ff.Feed(ff.Arrays(np.full((1, 1, 1, 3), 64, np.uint8)), [ff.Gamma(0.5)], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([128, 128, 128], dtype=uint8)
    """

    gamma: float | tuple[float, float]

    value: ClassVar[str] = "gamma"

    def bounds(self) -> tuple[float, float]:
        return value_range(
            "Gamma gamma", self.gamma, 0.01, 100, "write Gamma(2.2) or Gamma((0.8, 1.25))"
        )


@dataclass(frozen=True, slots=True)
class Solarize(RandomAmountOp):
    """Invert bytes at or above a threshold.

    Pillow's `ImageOps.solarize`.

    Args:
        threshold (float | tuple[float, float]): The threshold, or the range that it is drawn from
            per sample. In [0, 256]; 256 inverts nothing. Default: 128.

    Raises:
        ConfigError: If `threshold` is out of range.

    Example:
        >>> ff.Solarize((64, 256)).bounds()
        (64, 256)
        >>> image = np.array([100, 127, 128, 200], np.uint8).reshape(1, 1, 4, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.Solarize()], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([100, 127, 127,  55], dtype=uint8)
    """

    threshold: float | tuple[float, float] = 128

    value: ClassVar[str] = "threshold"

    def bounds(self) -> tuple[float, float]:
        return value_range(
            "Solarize threshold",
            self.threshold,
            0,
            256,
            "write Solarize(128) or Solarize((64, 256))",
        )


@dataclass(frozen=True, slots=True)
class SolarizeAdd(RandomAmountOp):
    """Add a number to every byte below a threshold, and clip at 255.

    As in timm's RandAugment.

    Args:
        amount (int | tuple[int, int]): The number, or the range that it is drawn from per sample,
            both ends included. In [0, 255].
        threshold (int): Bytes from here on stay as they are. In [0, 256]. Default: 128.

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> ff.SolarizeAdd((0, 110)).bounds()
        (0, 110)
        >>> image = np.array([0, 100, 127, 128], np.uint8).reshape(1, 1, 4, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.SolarizeAdd(110)], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([110, 210, 237, 128], dtype=uint8)
    """

    amount: int | tuple[int, int]
    threshold: int = 128

    value: ClassVar[str] = "amount"
    step: ClassVar[int] = 1

    def bounds(self) -> tuple[int, int]:
        hint = "write SolarizeAdd(110) or SolarizeAdd((0, 110))"
        check_integer("SolarizeAdd threshold", self.threshold, 0, 256, "128 is usual")
        return value_range("SolarizeAdd amount", self.amount, 0, 255, hint, integer=True)


@dataclass(frozen=True, slots=True)
class Posterize(RandomAmountOp):
    """Keep only the highest bits of every byte: 2, 4, ... or 128 levels of each channel.

    Pillow's `ImageOps.posterize`.

    Args:
        bits (int | tuple[int, int]): Bits to keep, or the range that it is drawn from per sample,
            both ends included. In [0, 8].

    Raises:
        ConfigError: If `bits` is out of range.

    Example:
        >>> ff.Posterize((4, 8)).bounds()
        (4, 8)
        >>> image = np.array([15, 63, 64, 255], np.uint8).reshape(1, 1, 4, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.Posterize(2)], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([  0,   0,  64, 192], dtype=uint8)
    """

    bits: int | tuple[int, int]

    value: ClassVar[str] = "bits"
    step: ClassVar[int] = 1

    def bounds(self) -> tuple[int, int]:
        """Lowest and highest number of bits that is drawn, both included.

        Returns:
            (low, high), bits.

        Raises:
            ConfigError: If `bits` is out of range.
        """
        return value_range(
            "Posterize bits",
            self.bits,
            0,
            8,
            "write Posterize(4) or Posterize((4, 8))",
            integer=True,
        )


@dataclass(frozen=True, slots=True)
class Equalize(FixedOp):
    """Equalize the histogram of each channel.

    Pillow's `ImageOps.equalize`.

    Example:
        >>> image = np.repeat(np.array([10, 11, 12, 13], np.uint8), 256).reshape(1, 32, 32, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.Equalize()], batch=1)
        >>> np.unique(next(iter(feed)).images)
        array([  0,  85, 171, 255], dtype=uint8)
    """


@dataclass(frozen=True, slots=True)
class AutoContrast(FixedOp):
    """Stretch each channel so that its darkest byte becomes 0 and its lightest 255.

    Pillow's `ImageOps.autocontrast`.

    Example:
        >>> image = np.array([50, 100, 150], np.uint8).reshape(1, 1, 3, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.AutoContrast()], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([  0, 127, 255], dtype=uint8)
    """


@dataclass(frozen=True, slots=True)
class Invert(FixedOp):
    """Make a negative: 255 minus every byte.

    Pillow's `ImageOps.invert`.

    Example:
        >>> image = np.array([0, 100, 255], np.uint8).reshape(1, 1, 3, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.Invert()], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([255, 155,   0], dtype=uint8)
    """


@dataclass(frozen=True, slots=True)
class LUT(FixedOp):
    """Replace every byte through a lookup table.

    Pillow's `Image.point`.

    Args:
        table (Sequence[int] | Sequence[Sequence[int]] | np.ndarray): 256 integers in [0, 255], or
            three rows of them for R, G and B. Lists and arrays become tuples.

    Raises:
        ConfigError: If `table` has another shape, or a value is out of range.

    Example:
        >>> image = np.array([0, 100, 255], np.uint8).reshape(1, 1, 3, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.LUT([v // 2 for v in range(256)])], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([  0,  50, 127], dtype=uint8)
    """

    table: Any

    def _check(self) -> None:
        wrong = self._wrong()
        if wrong:
            raise ConfigError(
                f"LUT table must be 256 integers in [0, 255], or three rows of 256, got {wrong}; "
                "write LUT([255 - v for v in range(256)])",
                field="table",
            )

    def _wrong(self) -> str:
        """The fault of the table; empty if it is valid."""
        rows = self.table if self.per_channel else (self.table,)
        if len(rows) not in (1, 3):
            return f"{len(rows)} rows"
        for row in rows:
            if not isinstance(row, tuple) or len(row) != 256:
                return (
                    f"{len(row)} values" if isinstance(row, tuple) and len(row) > 8 else repr(row)
                )
            for at, value in enumerate(row):
                if type(value) is not int or not 0 <= value <= 255:
                    return f"{value!r} at [{at}]"
        return ""

    @property
    def per_channel(self) -> bool:
        """True if the table has a row for each of three channels."""
        return (
            isinstance(self.table, tuple) and bool(self.table) and isinstance(self.table[0], tuple)
        )

    def out(self, spec: Spec) -> Spec:
        need_bytes(self, spec)
        if self.per_channel and spec.channels != 3:
            raise SpecError(
                f"LUT with three rows needs 3 channels, got {spec}; write one row of 256 integers"
            )
        return spec
