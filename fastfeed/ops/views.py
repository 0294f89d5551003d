"""Ops that make several images of one: crops for test time and for self-supervised learning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import (
    FrozenOp,
    Kind,
    SizeChoice,
    check_filter,
    check_flag,
    check_integer,
    check_op_size,
    check_range,
    height_width,
    need_pixels,
)
from fastfeed.ops.function import as_op
from fastfeed.ops.geometry import RandomResizedCrop, fit_inside, same_size, window_params
from fastfeed.spec import Spec

__all__ = ["FiveCrop", "MultiCrop", "TenCrop", "View"]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "FiveCrop(120)",
    "TenCrop(120)",
    "MultiCrop((View(160, 2, scale=(0.4, 1.0)), View(96, 3, scale=(0.05, 0.4))))",
)

_MOST = 15  # branches; each has 4096 slots of random numbers to itself


@dataclass(frozen=True, slots=True)
class ViewGroup:
    """Views of one size, as the program runs them; later ops in the list apply to each view."""

    count: int
    geometry: Any  # yields one window per view
    ops: tuple[Any, ...] = ()  # for these views alone


@dataclass(frozen=True, slots=True)
class FiveCrop(FrozenOp):
    """Crop the four corners and the center, to average predictions over.

    As torchvision's `FiveCrop`: top left, top right, bottom left, bottom right, center. Images
    become (n, 5, height, width, channels). For an image smaller than `size`, all five are its
    largest center crop of that shape, enlarged.

    Args:
        size (int | tuple[int, int]): (height, width), or the side of a square, in [1, 65535]
            pixels.

    Raises:
        ConfigError: If `size` is out of range.

    Example:
        >>> image = np.arange(9, dtype=np.uint8).reshape(1, 3, 3, 1)
        >>> next(iter(ff.Feed(ff.Arrays(image), [ff.FiveCrop(1)], batch=1))).images.ravel()
        array([0, 2, 6, 8, 4], dtype=uint8)
    """

    size: int | tuple[int, int] | SizeChoice

    kind: ClassVar[Kind] = "views"
    draws: ClassVar[int] = 0

    def _check(self) -> None:
        check_op_size("FiveCrop", self.size)

    def out(self, spec: Spec) -> Spec:
        return _fits(self, spec)

    @property
    def view_groups(self) -> tuple[ViewGroup, ...]:
        return (ViewGroup(5, FiveCropWindows(self.size)),)


@dataclass(frozen=True, slots=True)
class TenCrop(FrozenOp):
    """Crop the four corners and the center of the image, then of its mirror image.

    As torchvision's `TenCrop`, in its order. Images become (n, 10, height, width, channels).

    Args:
        size (int | tuple[int, int]): (height, width), or the side of a square, in [1, 65535]
            pixels.
        vertical (bool): Mirror top to bottom instead of left to right. Default: False.

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> image = np.arange(9, dtype=np.uint8).reshape(1, 3, 3, 1)
        >>> next(iter(ff.Feed(ff.Arrays(image), [ff.TenCrop(1)], batch=1))).images.ravel()
        array([0, 2, 6, 8, 4, 2, 0, 8, 6, 4], dtype=uint8)
    """

    size: int | tuple[int, int] | SizeChoice
    vertical: bool = False

    kind: ClassVar[Kind] = "views"
    draws: ClassVar[int] = 0

    def _check(self) -> None:
        check_op_size("TenCrop", self.size)
        check_flag("TenCrop vertical", self.vertical)

    def out(self, spec: Spec) -> Spec:
        return _fits(self, spec)

    @property
    def view_groups(self) -> tuple[ViewGroup, ...]:
        direction = "vertical" if self.vertical else "horizontal"
        return (ViewGroup(10, FiveCropWindows(self.size, direction)),)


@checked
@dataclass(frozen=True, slots=True)
class View(FrozenOp):
    """Random crops of one size, as a part of `MultiCrop`.

    Args:
        size (int | tuple[int, int]): (height, width), or the side of a square, in [1, 65535]
            pixels.
        count (int): Crops per image, in [1, 64]. Default: 1.
        scale (tuple[float, float]): Lowest and highest share of the image's area, in (0, 1]; as
            `RandomResizedCrop`. Default: (0.08, 1.0).
        ratio (tuple[float, float]): Lowest and highest width / height, in (0, 1000]. Default: (3 /
            4, 4 / 3).
        ops (Sequence[Op | Callable]): Ops for these crops alone, each crop with random numbers of
            its own. Default: ().
        filter (str): "bilinear", "bicubic", "lanczos" or "box"; not antialiased, "linear", or
            "nearest" for maps of classes or depths. Default: "bilinear".

    Raises:
        ConfigError: If a field is out of range, or an op does not move or change pixels.

    Example:
        >>> ff.View(96, count=8, scale=(0.05, 0.4)).crop.scale
        (0.05, 0.4)
    """

    size: int | tuple[int, int] | SizeChoice
    count: int = 1
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    ops: Sequence[Any] = ()
    filter: str = "bilinear"

    def _check(self) -> None:
        check_integer("View count", self.count, 1, 64)
        self._check_ops()
        check_op_size("View", self.size)
        check_filter("View", self.filter)
        hint = "shares of the area, such as (0.08, 1.0)"
        check_range("View scale", self.scale, 0, 1, hint, above=True)
        hint = "width / height, such as (3 / 4, 4 / 3)"
        check_range("View ratio", self.ratio, 0, 1000, hint, above=True)

    def _check_ops(self) -> None:
        if not isinstance(self.ops, tuple):
            raise ConfigError.of("View ops", "a list of ops such as [RandomFlip()]", self.ops)
        object.__setattr__(self, "ops", tuple(as_op(op) for op in self.ops))
        for i, op in enumerate(self.ops):
            if isinstance(op, type) or getattr(op, "kind", None) not in ("geometry", "change"):
                raise ConfigError.of(
                    f"View ops[{i}]",
                    "an op that moves or changes pixels, such as RandomFlip()",
                    op,
                    "put ops for all views after MultiCrop",
                )

    @property
    def crop(self) -> RandomResizedCrop:
        """The crop op of this view."""
        return RandomResizedCrop(self.size, self.scale, self.ratio, self.filter)


@dataclass(frozen=True, slots=True)
class MultiCrop(FrozenOp):
    """Several random crops of each image, a few large and many small, as in DINO and SwAV.

    Caron et al., "Unsupervised Learning of Visual Features by Contrasting Cluster Assignments"
    (2020). `batch.views` holds an array per View, (n, count, height, width, channels);
    `batch.images` is the first of them.

    Args:
        views (tuple[View, ...]): One to 15 of them, in the order of `batch.views`.

    Raises:
        ConfigError: If `views` is anything else.

    Example:
        >>> op = ff.MultiCrop((ff.View(8, 2, scale=(0.4, 1.0)), ff.View(4, 6, scale=(0.05, 0.4))))
        >>> batch = next(
        ...     iter(ff.Feed(ff.Arrays(np.zeros((3, 16, 16, 3), np.uint8)), [op], batch=3))
        ... )
        >>> [view.shape for view in batch.views]
        [(3, 2, 8, 8, 3), (3, 6, 4, 4, 3)]
    """

    views: tuple[View, ...]

    kind: ClassVar[Kind] = "views"
    draws: ClassVar[int] = 0

    def _check(self) -> None:
        if not isinstance(self.views, tuple) or not all(
            isinstance(view, View) for view in self.views
        ):
            raise ConfigError(
                f"MultiCrop needs a tuple of views, got {self.views!r}; write MultiCrop((View(224,"
                " 2), View(96, 8)))",
                field="views",
            )
        if not 1 <= len(self.views) <= _MOST:
            raise ConfigError(
                f"MultiCrop takes 1 to {_MOST} views, got {len(self.views)}; use View(count=...)",
                field="views",
            )

    def out(self, spec: Spec) -> Spec:
        need_pixels(self, spec)
        return spec.with_size(*height_width(self.views[0].size))

    @property
    def view_groups(self) -> tuple[ViewGroup, ...]:
        return tuple(ViewGroup(view.count, view.crop, tuple(view.ops)) for view in self.views)


@dataclass(frozen=True, slots=True)
class FiveCropWindows:
    """The windows of FiveCrop, or with `mirrored` of TenCrop: rows are views, sample by sample."""

    size: int | tuple[int, int] | SizeChoice
    mirrored: str = ""  # "horizontal" or "vertical"

    kind: ClassVar[Kind] = "geometry"
    draws: ClassVar[int] = 0

    def out(self, spec: Spec) -> Spec:
        return spec.with_size(*height_width(self.size))

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        want = np.array(height_width(self.size), np.int64)
        view = np.arange(len(sizes)) % (10 if self.mirrored else 5)
        position = view % 5
        cut_size, fits = fit_inside(want, sizes)
        room = sizes - cut_size
        share = np.stack(
            [(position == 2) | (position == 3), (position == 1) | (position == 3)], axis=1
        ).astype(np.float64)
        share[(position == 4)] = 0.5
        corner = np.where(fits, np.rint(room * share), room * 0.5)
        second = view >= 5
        vertical = self.mirrored == "vertical"
        flip = np.stack([second & vertical, second & (not vertical)], axis=1)
        corner = np.where(flip, room - corner, corner)  # the place is in the mirrored image
        boxes = np.concatenate([corner, cut_size], axis=1)
        return window_params(boxes, same_size(want, sizes), flip)


def _fits(op: Any, spec: Spec) -> Spec:
    need_pixels(op, spec)
    name = type(op).__name__
    (height, width) = height_width(op.size)
    if (spec.size[0] or height) < height or (spec.size[1] or width) < width:
        raise SpecError(
            f"{name} of {height}x{width} does not fit into {spec}; put Resize(...) before it"
        )
    return spec.with_size(height, width)
