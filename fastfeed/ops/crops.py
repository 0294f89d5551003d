"""Ops that crop without scaling, and ops that pad."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import (
    LARGEST_SIDE,
    Border,
    FrozenOp,
    Kind,
    SizeChoice,
    check_fill,
    check_flag,
    check_integer,
    check_op_size,
    height_width,
    need_pixels,
)
from fastfeed.ops.geometry import fit_inside, same_size, window_params
from fastfeed.spec import Spec

__all__ = ["CenterCrop", "Crop", "Pad", "RandomCrop"]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "CenterCrop(160)",
    "Crop(20, 40, 120)",
    'Pad(16, mode="reflect")',
    "RandomCrop(160, padding=40)",
)

Padding = int | tuple[int, int] | tuple[int, int, int, int]
Mode = Literal["constant", "edge", "reflect", "symmetric"]


@dataclass(frozen=True, slots=True)
class CenterCrop(FrozenOp):
    """Crop the center.

    As torchvision's `CenterCrop`. An image that turns out to be smaller than `size` gives its
    largest center crop of the same shape, enlarged; with `pad_if_needed` it is padded, as
    torchvision does with black.

    Args:
        size (int | tuple[int, int]): (height, width), or the side of a square, in [1, 65535]
            pixels.
        mode (str): Pixels of the padding, as of `RandomCrop`. Default: "constant".
        fill (tuple[int, int, int]): RGB under mode="constant", in [0, 255]. Default: (0, 0, 0).
        pad_if_needed (bool | str): Pad an image that is too small instead of enlarging it. True: on
            all sides; "corner": below and to the right. Default: False.

    Raises:
        ConfigError: If a field is out of range, or `fill` is given with another mode, or one of
            them without `pad_if_needed`.

    Example:
        >>> image = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.CenterCrop(2)], batch=1)
        >>> next(iter(feed)).images[0, :, :, 0]
        array([[ 5,  6],
               [ 9, 10]], dtype=uint8)
    """

    size: int | tuple[int, int] | SizeChoice
    mode: Mode = "constant"
    fill: tuple[int, int, int] = (0, 0, 0)
    pad_if_needed: bool | Literal["corner"] = False

    kind: ClassVar[Kind] = "geometry"
    draws: ClassVar[int] = 0

    def _check(self) -> None:
        check_op_size("CenterCrop", self.size)
        _check_padding(self)
        if not self.pad_if_needed and (self.mode, self.fill) != ("constant", (0, 0, 0)):
            raise ConfigError(
                f"CenterCrop mode and fill are for pad_if_needed, got mode={self.mode!r},"
                f" fill={self.fill} without it; pass pad_if_needed=True, or leave them out",
                field="pad_if_needed",
            )

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        defaults = {field.name: field.default for field in fields(self)}
        shown = [f"{k}={v!r}" for k, v in values.items() if v != defaults[k]]
        return f"CenterCrop({', '.join(shown)})"

    @property
    def border(self) -> Border | None:
        """The border of the padding; None without padding."""
        return _border("CenterCrop", self.mode, self.fill) if self.pad_if_needed else None

    def out(self, spec: Spec) -> Spec:
        need_pixels(self, spec)
        height, width = height_width(self.size)
        is_small = (spec.size[0] or height) < height or (spec.size[1] or width) < width
        if is_small and not self.pad_if_needed:
            raise SpecError(
                f"CenterCrop of {height}x{width} does not fit into {spec}; put Resize before it, or"
                " write pad_if_needed=True for a border"
            )
        return spec.with_size(height, width)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        want = np.array(height_width(self.size), np.int64)
        before: Any = 0
        if self.pad_if_needed:
            missing = np.maximum(want - sizes, 0)
            before = 0 if self.pad_if_needed == "corner" else missing // 2
            sizes = sizes + missing
        cut_size, fits = fit_inside(want, sizes)
        corner = np.where(fits, np.rint((sizes - want) / 2), (sizes - cut_size) / 2) - before
        return window_params(np.concatenate([corner, cut_size], axis=1), same_size(want, sizes))


@dataclass(frozen=True, slots=True)
class Crop(FrozenOp):
    """Crop a fixed box.

    If an image turns out to be too small, the box moves inward as far as needed. A box larger than
    the image becomes the largest box of the same shape that fits, enlarged, as in `CenterCrop`.

    Args:
        top (int): First row, in [0, 65535] pixels.
        left (int): First column, in [0, 65535] pixels.
        size (int | tuple[int, int]): (height, width), or the side of a square, in [1, 65535]
            pixels.

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> image = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.Crop(top=0, left=2, size=2)], batch=1)
        >>> next(iter(feed)).images[0, :, :, 0]
        array([[2, 3],
               [6, 7]], dtype=uint8)
    """

    top: int
    left: int
    size: int | tuple[int, int] | SizeChoice

    kind: ClassVar[Kind] = "geometry"
    draws: ClassVar[int] = 0

    def _check(self) -> None:
        check_op_size("Crop", self.size)
        for name in ("top", "left"):
            check_integer(f"Crop {name}", getattr(self, name), 0, LARGEST_SIDE, more=" pixels")

    def out(self, spec: Spec) -> Spec:
        need_pixels(self, spec)
        want = height_width(self.size)
        if spec.fixed and not _larger(spec.size, (self.top + want[0], self.left + want[1])):
            raise SpecError(
                f"{self!r} reaches beyond {spec}; put Resize before it, or Pad where a border is"
                " wanted, or write CenterCrop(size)"
            )
        return spec.with_size(*want)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        want = np.array(height_width(self.size), np.int64)
        cut_size, _ = fit_inside(want, sizes)
        corner = np.minimum([[self.top, self.left]], sizes - cut_size)
        return window_params(np.concatenate([corner, cut_size], axis=1), same_size(want, sizes))


@dataclass(frozen=True, slots=True)
class RandomCrop(FrozenOp):
    """Crop a box of `size` at a random position, after padding the image.

    As torchvision's `RandomCrop`, whose `padding` has width before height. If an image turns out to
    be too small even with its padding, the largest part of the same shape is cropped and enlarged,
    as in `CenterCrop`.

    Args:
        size (int | tuple[int, int]): (height, width), or the side of a square, in [1, 65535]
            pixels.
        padding (int | tuple[int, ...]): All sides, (top and bottom, left and right), or (top, left,
            bottom, right), in [0, 65535] pixels. Default: 0.
        mode (str): Pixels of the padding. "constant": `fill`; "edge": the outermost pixels;
            "reflect": dcb|abcd|cba; "symmetric": cba|abcd|dcb. Default: "constant".
        fill (tuple[int, int, int]): RGB under mode="constant", in [0, 255]. Default: (0, 0, 0).
        pad_if_needed (bool | str): Pad an image that is too small instead of enlarging it. True: on
            both of these sides, by as much as is missing on each; "corner": below and to the right,
            so that the image stays in the top left corner, as detectron2's `FixedSizeCrop`, which
            also has one random number for both directions. Default: False.

    Raises:
        ConfigError: If a field is out of range, or `fill` is given with another mode.

    Example:
        >>> print(ff.RandomCrop(32, padding=4).out(ff.Spec((32, 32, 3), "uint8", "HWC")))
        HWC uint8[32, 32, 3]
    """

    size: int | tuple[int, int] | SizeChoice
    padding: Padding = 0
    mode: Mode = "constant"
    fill: tuple[int, int, int] = (0, 0, 0)
    pad_if_needed: bool | Literal["corner"] = False

    kind: ClassVar[Kind] = "geometry"
    draws: ClassVar[int] = 2

    def _check(self) -> None:
        check_op_size("RandomCrop", self.size)
        _sides("RandomCrop", self.padding)
        _check_padding(self)

    @property
    def border(self) -> Border | None:
        """The border of the padding; None without padding."""
        return (
            _border("RandomCrop", self.mode, self.fill)
            if self.pad_if_needed or _checked_sides(self.padding).any()
            else None
        )

    def out(self, spec: Spec) -> Spec:
        need_pixels(self, spec)
        want = height_width(self.size)
        padded = _padded(spec.size, self.padding)
        if spec.fixed and not self.pad_if_needed and not _larger(padded, want):
            raise SpecError(
                f"{self!r} needs images at least that large, got {spec}; write padding=..., or put"
                " Resize before it"
            )
        return spec.with_size(*want)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        want = np.array(height_width(self.size), np.int64)
        sides = _checked_sides(self.padding)
        padded = sizes + sides[:2] + sides[2:]
        before: np.ndarray = sides[:2]
        if self.pad_if_needed == "corner":
            u = u[:, [0, 0]]
        if self.pad_if_needed:
            missing = np.maximum(want - padded, 0)
            above = 0 if self.pad_if_needed == "corner" else missing
            before = before + above
            padded = padded + above + missing
        cut_size, fits = fit_inside(want, padded)
        room = padded - cut_size
        corner = np.where(fits, np.minimum(np.floor(u * (room + 1)), room), u * room)
        return window_params(
            np.concatenate([corner - before, cut_size], axis=1), same_size(want, sizes)
        )


@dataclass(frozen=True, slots=True)
class Pad(FrozenOp):
    """Pad an image.

    As torchvision's `Pad`, whose `padding` has width before height.

    Args:
        padding (int | tuple[int, ...]): All sides, (top and bottom, left and right), or (top, left,
            bottom, right), in [0, 65535] pixels.
        mode (str): Pixels of the padding. "constant": `fill`; "edge": the outermost pixels;
            "reflect": dcb|abcd|cba; "symmetric": cba|abcd|dcb. Default: "constant".
        fill (tuple[int, int, int]): RGB under mode="constant", in [0, 255]. Default: (0, 0, 0).

    Raises:
        ConfigError: If a field is out of range, or `fill` is given with another mode.

    Example:
        >>> image = np.array([10, 20, 30], np.uint8).reshape(1, 1, 3, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.Pad((0, 2), mode="reflect")], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([30, 20, 10, 20, 30, 20, 10], dtype=uint8)
    """

    padding: Padding
    mode: Mode = "constant"
    fill: tuple[int, int, int] = (0, 0, 0)

    kind: ClassVar[Kind] = "geometry"
    draws: ClassVar[int] = 0

    def _check(self) -> None:
        _sides("Pad", self.padding)
        _check_padding(self)

    @property
    def border(self) -> Border | None:
        """The border of the padding; None without padding."""
        return _border("Pad", self.mode, self.fill) if _checked_sides(self.padding).any() else None

    def out(self, spec: Spec) -> Spec:
        need_pixels(self, spec)
        return spec.with_size(*_padded(spec.size, self.padding))

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        sides = _checked_sides(self.padding)
        size = sizes + sides[:2] + sides[2:]
        return window_params(
            np.concatenate([np.broadcast_to(-sides[:2], size.shape), size], axis=1), size
        )


def _check_padding(op: CenterCrop | RandomCrop | Pad) -> None:
    """Refuse a padding of unknown pixels, or for unknown images."""
    name = type(op).__name__
    needed = getattr(op, "pad_if_needed", False)
    if needed != "corner":
        check_flag(f"{name} pad_if_needed", needed, 'True, False or "corner"')
    check_fill(f"{name} fill", op.fill)
    _border(name, op.mode, op.fill)


def _sides(name: str, padding: Any) -> np.ndarray:
    """The sides of a padding: int64 (4,), top, left, bottom, right."""
    values = (padding,) if not isinstance(padding, tuple) else padding
    are_valid = all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) and 0 <= n <= 65_535
        for n in values
    )
    if len(values) not in (1, 2, 4) or not are_valid:
        raise ConfigError.of(
            f"{name} padding",
            "an int, (top and bottom, left and right) or (top, left, bottom, right), in"
            " [0, 65535] pixels",
            padding,
        )
    return np.array(values * (4 // len(values)), np.int64)


@lru_cache(maxsize=256)
def _checked_sides(padding: Padding) -> np.ndarray:
    """Return the sides of a padding that is known to be valid."""
    sides = _sides("", padding)
    sides.flags.writeable = False
    return sides


def _padded(size: tuple[int | None, int | None], padding: Padding) -> tuple[int | None, int | None]:
    top, left, bottom, right = _checked_sides(padding).tolist()
    height, width = size
    return (
        None if height is None else height + top + bottom,
        None if width is None else width + left + right,
    )


def _larger(size: tuple[int | None, int | None], want: tuple[int, int]) -> bool:
    return all(
        side is not None and side >= minimum for side, minimum in zip(size, want, strict=True)
    )


def _border(name: str, mode: Mode, fill: tuple[int, int, int]) -> Border:
    if mode not in ("constant", "edge", "reflect", "symmetric"):
        must = '"constant", "edge", "reflect" or "symmetric"'
        raise ConfigError.of(f"{name} mode", must, mode)
    if mode != "constant" and fill != (0, 0, 0):
        raise ConfigError(
            f'{name} fill is for mode="constant", got mode={mode!r}; leave it out', field="fill"
        )
    return Border(mode, fill)
