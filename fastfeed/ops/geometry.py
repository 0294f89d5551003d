"""Ops that move pixels: resize, crop a random part and scale it, flip.

A run of these ops is a single resampling: [Resize(256), CenterCrop(224), RandomFlip()] reads each
source pixel once and blurs once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.base import (
    Border,
    FrozenOp,
    Kind,
    SizeChoice,
    check_fill,
    check_filter,
    check_op_size,
    check_p,
    check_range,
    check_size,
    full_boxes,
    height_width,
    need_pixels,
)
from fastfeed.ops.ranges import integers
from fastfeed.runtime.extension import extension
from fastfeed.spec import Spec

__all__ = ["RandomFlip", "RandomResize", "RandomResizedCrop", "Resize"]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "Resize((160, 160))",
    'Resize((160, 160), fit="pad")',
    "RandomResize(160, scale=(0.2, 1.0))",
    "RandomResizedCrop(160)",
    "RandomFlip()",
)

Fit = Literal["exact", "short", "long", "pad", "pad_floor", "corner", "cover", "crop"]
_BORDERED = ("pad", "pad_floor", "corner")


def window_params(
    box: np.ndarray, size: np.ndarray, flip: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """The parameters of a geometric op, without a flip by default."""
    flip = np.zeros((len(box), 2), bool) if flip is None else flip
    return {
        "box": box.astype(np.float64, copy=False),
        "size": size.astype(np.int64, copy=False),
        "flip": flip,
    }


def _fitted(want: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Sizes scaled to fit inside `want`: float32 (n, 2), rounded as TensorFlow's."""
    sides = sizes.astype(np.float32)
    return sides / (sides / want.astype(np.float32)).max(axis=1, keepdims=True)


def same_size(want: np.ndarray | tuple[int, int], sizes: np.ndarray) -> np.ndarray:
    """The size `want` for all images, int64 (n, 2)."""
    wanted = np.empty(sizes.shape, np.int64)
    wanted[:] = want
    return wanted


def fit_inside(want: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(height, width) of cuts of the shape `want`, (n, 2), and which of them fit, (n, 1).

    Cuts that do not fit are as large as the image allows.
    """
    if not np.count_nonzero(sizes < want):
        return same_size(want, sizes), np.ones((len(sizes), 1), bool)
    fit = np.minimum((sizes / want).min(axis=1, keepdims=True), 1.0)
    return np.minimum(want * fit, sizes), fit == 1.0  # rounding may not reach outside the image


@dataclass(frozen=True, slots=True, repr=False)
class Resize(FrozenOp):
    """Scale an image, with an antialiased filter by default.

    Same pixels as Pillow's `Image.resize`, within a level, but at hard edges "bicubic" and
    "lanczos" may differ by tens of levels: Pillow clips bytes between its two passes, as is done
    for arrays and files that Pillow decodes; native code clips once, as Pillow's resize of floats.
    With filter="nearest", exactly those of its NEAREST and of OpenCV's INTER_NEAREST_EXACT, which
    masks take too (of two that are equally near, a file that EXIF turns may give the other one).
    filter="linear" blends the nearest four pixels at any reduction, as TensorFlow and Keras do, and
    PyTorch with antialias=False. A run of geometric ops is one resampling: a border before a resize
    is rounded to whole pixels of the result and the image fills the rest, so that its nearest
    pixels may be next to those of the mask.

    Args:
        size (int | tuple[int, int]): One side, or (height, width), in [1, 65535] pixels.
        filter (str | tuple[str, ...]): "bilinear", "bicubic", "lanczos" or "box"; not antialiased,
            "linear", or "nearest" for maps of classes or depths. Of a tuple, such as ("bilinear",
            "bicubic"), each image draws one, as timm's interpolation="random"; on the cpu backend.
            Default: "bilinear".
        fit (str | None): What `size` means. "exact": scale to that size whatever the aspect ratio
            (an int is a square). "short": the short side becomes `size`. "long": the long side
            does. "pad": as large as fits inside `size`, centered, with a border of `fill`;
            "pad_floor": the same, with sides rounded down, as TensorFlow's `resize_with_pad`.
            "corner": as it is, in the top left corner of `size`, with a border of `fill`; a larger
            image is scaled until it fits. "cover": as small as covers `size`, for a crop of that
            size. "crop": the largest centered part that has the shape of `size` (for all five an
            int is a square). Default: None, which is "exact" for a pair and "short" for an int.
        fill (tuple[int, int, int]): RGB of the border under fit="pad", "pad_floor" and "corner", in
            [0, 255]. Default: (0, 0, 0).

    Raises:
        ConfigError: If a field is out of range, or `fit` does not go with `size` or `fill`.

    Example:
        >>> photo = ff.Spec((480, 640, 3), "uint8", "HWC")
        >>> print(ff.Resize(256).out(photo))
        HWC uint8[256, 341, 3]
        >>> print(ff.Resize((224, 224), fit="pad").out(photo))
        HWC uint8[224, 224, 3]
    """

    size: int | tuple[int, int] | SizeChoice
    filter: str | tuple[str, ...] = "bilinear"
    fit: Fit | None = None
    fill: tuple[int, int, int] = (0, 0, 0)

    kind: ClassVar[Kind] = "geometry"

    def _check(self) -> None:
        check_op_size("Resize", self.size)
        check_filter("Resize", self.filter, several=True)
        check_fill("Resize fill", self.fill)
        if self.fit not in (None, *get_args(Fit)):
            must = '"exact", "short", "long", "pad", "pad_floor", "corner", "cover" or "crop"'
            raise ConfigError.of("Resize fit", must, self.fit)
        if self.fit in ("short", "long") and isinstance(self.size, tuple):
            raise ConfigError(
                f'Resize fit="{self.fit}" needs one side, got {self.size}; write'
                f' Resize({min(self.size)}, fit="{self.fit}"), or fit="pad" for both',
                field="size",
            )
        if self.fill != (0, 0, 0) and self.fit not in _BORDERED:
            raise ConfigError(
                'Resize fill is for fit="pad", "pad_floor" and "corner", got'
                f" fit={self.fit!r}; leave it out",
                field="fill",
            )

    def __repr__(self) -> str:
        more = "" if self.fit is None else f", fit={self.fit!r}"
        more += "" if self.fill == (0, 0, 0) else f", fill={self.fill}"
        return f"Resize(size={self.size!r}, filter={self.filter!r}{more})"

    @property
    def draws(self) -> int:
        """Random numbers per sample: one for the filter, if there is a choice."""
        return int(isinstance(self.filter, tuple))

    @property
    def border(self) -> Border | None:
        """The border around the image with fit="pad", "pad_floor" and "corner"."""
        return Border("constant", self.fill) if self.fit in _BORDERED else None

    def out(self, spec: Spec) -> Spec:
        need_pixels(self, spec)
        height, width = spec.size
        want = height_width(self.size)
        if self._fit in ("exact", "crop", *_BORDERED):
            return spec.with_size(*want)
        if height is None or width is None:
            return spec.with_size(None, None)
        new = self._sizes(np.array([[height, width]]))[0]
        return spec.with_size(int(new[0]), int(new[1]))

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        want = np.array(height_width(self.size), np.int64)
        if self._fit == "crop":
            part = np.clip(sizes[:, ::-1] * want // want[::-1], 1, sizes)
            box = np.concatenate([(sizes - part) // 2, part], axis=1)
            return window_params(box, same_size(want, sizes))
        new = self._sizes(sizes)
        if self._fit not in _BORDERED:
            return window_params(full_boxes(sizes), new)
        unit = sizes / new  # source pixels per pixel of the result
        before: Any = (want - new) // 2  # of the border
        if self._fit == "pad_floor":
            before = np.maximum((want - _fitted(want, sizes)) // 2, 0)
        elif self._fit == "corner":
            before = 0
        box = np.concatenate([-before * unit, want * unit], axis=1)
        return window_params(box, same_size(want, sizes))

    def largest_results(self, unlimited: int) -> tuple[tuple[int, int], ...]:
        """Largest sizes that scaling to a given short or long side can have.

        Args:
            unlimited (int): Stands for a side without a limit, pixels.

        Returns:
            Pairs (height, width), pixels; empty where `size` alone decides.

        Example:
            >>> ff.Resize(256).largest_results(unlimited=65_535)
            ((256, 65535), (65535, 256))
        """
        height, width = height_width(self.size)
        one_side = (height, unlimited), (unlimited, width)
        return {"short": one_side, "cover": one_side, "long": ((height, height),)}.get(
            self._fit, ()
        )

    @property
    def _fit(self) -> str:
        return self.fit or ("exact" if isinstance(self.size, tuple) else "short")

    def _sizes(self, sizes: np.ndarray) -> np.ndarray:
        """Return the sizes of the scaled images, without the border."""
        want = np.array(height_width(self.size), np.int64)
        if self._fit == "exact":
            return same_size(want, sizes)
        if self._fit == "pad_floor":
            return np.clip(np.floor(_fitted(want, sizes)).astype(np.int64), 1, want)
        if self._fit in _BORDERED:
            scale = (want / sizes).min(axis=1, keepdims=True)
            if self._fit == "corner":
                scale = np.minimum(scale, 1)
            return np.clip(np.rint(sizes * scale).astype(np.int64), 1, want)
        if self._fit == "cover":
            scale = (want / sizes).max(axis=1, keepdims=True)
            return np.maximum(np.rint(sizes * scale).astype(np.int64), want)
        given_side = (sizes.min if self._fit == "short" else sizes.max)(axis=1, keepdims=True)
        return np.where(sizes == given_side, want[0], np.maximum(want[0] * sizes // given_side, 1))


@dataclass(frozen=True, slots=True)
class RandomResize(FrozenOp):
    """Scale an image to a short side of random length, or into a box that is scaled at random.

    For a crop of one size behind it. As torchvision's `RandomResize`, whose `max_size` is not
    included, and with `longest` as `RandomShortestSize` of detectors. With `scale`, as
    `ResizeScale` of detectron2: large-scale jitter.

    Args:
        sizes (int | tuple[int, int]): Lowest and highest length of the short side, in [1, 65535]
            pixels; all between, and these, are equally likely. With `scale`, (height, width) of a
            box, or the side of a square.
        longest (int | None): The long side is at most this, in [1, 65535] pixels; the short side is
            then shorter. Default: None, without a limit.
        filter (str): As for `Resize`. Default: "bilinear".
        scale (tuple[float, float] | None): Lowest and highest factor of the box `sizes`, uniform
            above 0; the image fits into the box that results, and keeps its aspect ratio. Default:
            None.

    Raises:
        ConfigError: If a field is out of range, or both `longest` and `scale` are given.

    Example:
        >>> image = np.zeros((1, 20, 40, 3), np.uint8)
        >>> ops = [ff.RandomResize((10, 30)), ff.RandomCrop(24, pad_if_needed=True)]
        >>> next(iter(ff.Feed(ff.Arrays(image), ops, batch=1))).images.shape
        (1, 24, 24, 3)
    """

    sizes: int | tuple[int, int]
    longest: int | None = None
    filter: str = "bilinear"
    scale: tuple[float, float] | None = None

    kind: ClassVar[Kind] = "geometry"
    draws: ClassVar[int] = 1

    def _check(self) -> None:
        low, high = check_size("RandomResize", self.sizes)
        if self.scale is None and (not isinstance(self.sizes, tuple) or low > high):
            raise ConfigError.of("RandomResize sizes", "a pair (lowest, highest)", self.sizes)
        if self.longest is not None:
            check_size("RandomResize longest", self.longest)
            if not isinstance(self.longest, int):
                raise ConfigError.of("RandomResize longest", "one side or None", self.longest)
        if self.scale is not None:
            most = 65_535 / max(low, high)
            hint = "factors of the box, such as (0.1, 2.0)"
            check_range("RandomResize scale", self.scale, 0, most, hint, above=True)
            if self.longest is not None:
                raise ConfigError(
                    "RandomResize longest is for lengths of the short side, got"
                    f" scale={self.scale}, which limits both; leave one out",
                    field="longest",
                )
        check_filter("RandomResize", self.filter)

    def out(self, spec: Spec) -> Spec:
        need_pixels(self, spec)
        return spec.with_size(None, None)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        new = self._in_boxes(u, sizes) if self.scale else self._by_short_side(u, sizes)
        return window_params(full_boxes(sizes), np.maximum(new, 1))

    def _in_boxes(self, u: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        assert self.scale is not None
        low, high = self.scale
        boxes = np.array(height_width(self.sizes)) * (low + u * (high - low))
        return np.rint(sizes * (boxes / sizes).min(axis=1, keepdims=True))

    def _by_short_side(self, u: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        low, high = height_width(self.sizes)
        short = sizes.min(axis=1, keepdims=True)
        long = sizes.max(axis=1, keepdims=True)
        wanted = np.minimum(integers(u, low, high), high)
        new = np.where(sizes == short, wanted, wanted * sizes // short)
        if self.longest is not None:
            scaled = np.where(sizes == long, self.longest, self.longest * sizes // long)
            new = np.where(new.max(axis=1, keepdims=True) > self.longest, scaled, new)
        return new


@dataclass(frozen=True, slots=True)
class RandomResizedCrop(FrozenOp):
    """Crop a box of random area and aspect ratio and scale it to `size`, as for ImageNet training.

    Ten pairs of area (uniform) and aspect ratio (log-uniform) are tried until a box fits; if none
    does, the largest centered box of an allowed ratio is used. Szegedy et al., "Going deeper with
    convolutions" (2015); rounding as in torchvision's `RandomResizedCrop.get_params`.

    Args:
        size (int | tuple[int, int]): (height, width) of the result, or the side of a square, in [1,
            65535] pixels.
        scale (tuple[float, float]): Lowest and highest share of the image's area, in (0, 1].
            Default: (0.08, 1.0).
        ratio (tuple[float, float]): Lowest and highest width / height, in (0, 1000]. Default: (3 /
            4, 4 / 3).
        filter (str | tuple[str, ...]): "bilinear", "bicubic", "lanczos" or "box"; not antialiased,
            "linear", or "nearest" for maps of classes or depths. Of a tuple, such as ("bilinear",
            "bicubic"), each image draws one, as timm's interpolation="random"; on the cpu backend.
            Default: "bilinear".

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> print(ff.RandomResizedCrop(224, scale=(0.35, 1.0)).out(ff.Spec((480, 640, 3), "uint8", "HWC")))
        HWC uint8[224, 224, 3]
    """

    size: int | tuple[int, int] | SizeChoice
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    filter: str | tuple[str, ...] = "bilinear"

    kind: ClassVar[Kind] = "geometry"

    def _check(self) -> None:
        check_op_size("RandomResizedCrop", self.size)
        check_filter("RandomResizedCrop", self.filter, several=True)
        hint = "shares of the area, such as (0.08, 1.0)"
        check_range("RandomResizedCrop scale", self.scale, 0, 1, hint, above=True)
        hint = "width / height, such as (3 / 4, 4 / 3)"
        check_range("RandomResizedCrop ratio", self.ratio, 0, 1000, hint, above=True)

    @property
    def draws(self) -> int:
        """Ten areas, ten ratios, a place, and last the filter if there is a choice."""
        return 22 + isinstance(self.filter, tuple)

    def out(self, spec: Spec) -> Spec:
        need_pixels(self, spec)
        return spec.with_size(*height_width(self.size))

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        low = math.log(self.ratio[0])
        ratios = np.exp(low + u[:, 10:20] * (math.log(self.ratio[1]) - low))
        n = len(sizes)
        boxes = np.empty((n, 4))
        extension().resized_crops(u[:, :22], ratios, sizes, *self.scale, *self.ratio, boxes)
        size = same_size(height_width(self.size), sizes)
        return {"box": boxes, "size": size, "flip": np.zeros((n, 2), bool)}


@dataclass(frozen=True, slots=True)
class RandomFlip(FrozenOp):
    """Mirror an image with a given probability.

    Args:
        p (float): Probability of each direction, in [0, 1]. Default: 0.5.
        direction (str): "horizontal" (left to right), "vertical" (top to bottom), or "both", which
            decides each direction independently. Default: "horizontal".

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> image = np.arange(3, dtype=np.uint8).reshape(1, 1, 3, 1)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.RandomFlip(p=1.0)], batch=1)
        >>> next(iter(feed)).images.ravel()
        array([2, 1, 0], dtype=uint8)
    """

    p: float = 0.5
    direction: Literal["horizontal", "vertical", "both"] = "horizontal"

    kind: ClassVar[Kind] = "geometry"
    draws: ClassVar[int] = 2

    def _check(self) -> None:
        check_p("RandomFlip p", self.p)
        if self.direction not in ("horizontal", "vertical", "both"):
            raise ConfigError.of(
                "RandomFlip direction", '"horizontal", "vertical" or "both"', self.direction
            )

    def out(self, spec: Spec) -> Spec:
        need_pixels(self, spec)
        return spec

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        flip = u < self.p
        if self.direction != "both":
            flip[:, 0 if self.direction == "horizontal" else 1] = False
        return {"box": full_boxes(sizes), "size": sizes, "flip": flip}
