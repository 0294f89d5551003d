"""Ops that cut and shrink images as detectors of single shots are trained: SSD, RetinaNet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.ops.base import (
    Border,
    FrozenOp,
    Kind,
    check_fill,
    check_p,
    check_range,
    full_boxes,
    is_number,
    need_pixels,
)
from fastfeed.ops.geometry import window_params
from fastfeed.spec import Spec

__all__ = ["IoUCrop", "ZoomOut"]

SHOWCASE = (  # examples that `fastfeed show --ops` draws
    "IoUCrop((0.1, 0.3))",
    "ZoomOut(1.0)",
)

_ROUNDS = 16  # of an overlap drawn again after parts that do not fit; each may be the last
_TRIALS = 40
_TURN = np.sqrt([2, 3, 5, 7])  # added to the numbers of parts, modulo 1, for each further round
_MOST_TIMES = 100  # of a side


@dataclass(frozen=True, slots=True)
class IoUCrop(FrozenOp):
    """Crop a part that overlaps an object enough, as SSD does.

    Each image draws one of `min_overlaps`, then up to 40 parts, and takes the first that has the
    center of a box inside, and whose intersection over union with such a box is at least the
    overlap drawn. If none fits, it draws another overlap and other parts, up to 16 times. Images
    where nothing fits, or without boxes, stay whole. Liu et al., "SSD: Single Shot MultiBox
    Detector" (2016); as torchvision's `RandomIoUCrop`, which also drops objects whose center is
    outside; here `Objects(min_visible=...)` says which are dropped.

    The source must have boxes. Comes before ops that change pixels; the result has any size, so a
    `Resize` follows.

    Args:
        min_overlaps (tuple[float, ...]): Overlaps to draw from, in [0, 1]; with 1 the image stays
            whole. Default: (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0).
        scale (tuple[float, float]): Lowest and highest share of the height, and of the width, in
            (0, 1]. Default: (0.3, 1.0).
        ratio (tuple[float, float]): Lowest and highest width / height, in (0, 1000]. Default: (0.5,
            2.0).

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> images = ff.Arrays(np.zeros((2, 60, 80, 3), np.uint8))
        >>> source = ff.Objects(images, boxes=[[[10, 10, 40, 50]]] * 2)
        >>> feed = ff.Feed(source, [ff.IoUCrop(), ff.Resize((30, 30))], batch=2)
        >>> next(iter(feed)).images.shape
        (2, 30, 30, 3)
    """

    min_overlaps: tuple[float, ...] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    scale: tuple[float, float] = (0.3, 1.0)
    ratio: tuple[float, float] = (0.5, 2.0)

    kind: ClassVar[Kind] = "geometry"
    draws: ClassVar[int] = _ROUNDS + 4 * _TRIALS
    needs_boxes: ClassVar[bool] = True

    def _check(self) -> None:
        overlaps: Any = self.min_overlaps
        numbers = isinstance(overlaps, tuple) and all(map(is_number, overlaps))
        if not numbers or not overlaps or not all(0 <= v <= 1 for v in overlaps):
            raise ConfigError.of(
                "IoUCrop min_overlaps", "numbers in [0, 1], such as (0.1, 0.5, 1.0)", overlaps
            )
        hint = "shares of a side, such as (0.3, 1.0)"
        check_range("IoUCrop scale", self.scale, 0, 1, hint, above=True)
        hint = "width / height, such as (0.5, 2.0)"
        check_range("IoUCrop ratio", self.ratio, 0, 1000, hint, above=True)

    def out(self, spec: Spec) -> Spec:
        need_pixels(self, spec)
        return spec.with_size(None, None)

    def params(
        self,
        u: np.ndarray,
        sizes: np.ndarray,
        rows: np.ndarray | None = None,
        boxes: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """Parameters as of any `Geometry`; without boxes, whole images.

        Args:
            u (np.ndarray): The samples' random numbers, float64 (n, draws) in [0, 1).
            sizes (np.ndarray): (height, width) of the images, int64 (n, 2), pixels.
            rows (np.ndarray | None): Image of each box, int64 (m,). Default: None, no boxes.
            boxes (np.ndarray | None): float64 (m, 4): left, top, right, bottom. Default: None.

        Returns:
            Arrays by name, a row per sample.
        """
        cuts = full_boxes(sizes)
        if rows is not None and boxes is not None:
            for row in np.unique(rows).tolist():
                cuts[row] = self._cut(u[row], sizes[row], boxes[rows == row])
        return window_params(cuts, cuts[:, 2:].astype(np.int64))

    def _cut(self, u: np.ndarray, size: np.ndarray, boxes: np.ndarray) -> np.ndarray:
        """The part of one image: top, left, height, width."""
        draws = u[_ROUNDS:].reshape(_TRIALS, 4)
        for turn, which in enumerate(u[:_ROUNDS]):
            least = self.min_overlaps[int(which * len(self.min_overlaps))]
            if least == 1:
                break
            sides, corners, fits = self._parts((draws + turn * _TURN) % 1, least, size, boxes)
            if fits.any():
                first = int(fits.argmax())
                return np.concatenate([corners[first], sides[first]])
        return np.array([0, 0, *size], np.float64)

    def _parts(self, draws: np.ndarray, least: float, size: np.ndarray, boxes: np.ndarray) -> Any:
        """Sides and corners of parts, float64 (trials, 2), and which of them fit, (trials,)."""
        low, high = self.scale
        sides = np.maximum(np.floor(size * (low + (high - low) * draws[:, :2])), 1)
        corners = np.floor((size - sides) * draws[:, 2:])
        parts = np.concatenate([corners, corners + sides], axis=1)[:, [1, 0, 3, 2]]
        ratios = sides[:, 1] / sides[:, 0]
        centers = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside = ((centers > parts[:, None, :2]) & (centers < parts[:, None, 2:])).all(axis=2)
        enough = ((_overlaps(parts, boxes) >= least) & inside).any(axis=1)
        return sides, corners, enough & (ratios >= self.ratio[0]) & (ratios <= self.ratio[1])


def _overlaps(parts: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Intersection over union of parts (k, 4) and boxes (m, 4): float64 (k, m)."""
    low = np.maximum(parts[:, None, :2], boxes[:, :2])
    high = np.minimum(parts[:, None, 2:], boxes[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=2)
    areas = [np.prod(each[:, 2:] - each[:, :2], axis=1) for each in (parts, boxes)]
    return common / (areas[0][:, None] + areas[1] - common)


@dataclass(frozen=True, slots=True)
class ZoomOut(FrozenOp):
    """Put an image at a random place of a larger canvas, so that its objects become small.

    As torchvision's `RandomZoomOut`, for SSD. The result has any size, so a `Resize` follows.

    Args:
        p (float): Probability, in [0, 1]. Default: 0.5.
        scale (tuple[float, float]): Lowest and highest side of the canvas, in sides of the image,
            in [1, 100]. Default: (1.0, 4.0).
        fill (tuple[int, int, int]): RGB of the canvas, in [0, 255]. Default: (0, 0, 0).

    Raises:
        ConfigError: If a field is out of range.

    Example:
        >>> image = np.full((1, 4, 4, 3), 9, np.uint8)
        >>> feed = ff.Feed(ff.Arrays(image), [ff.ZoomOut(1.0, (2, 2)), ff.Resize((8, 8))], batch=1)
        >>> int((next(iter(feed)).images == 9).sum()) == image.size
        True
    """

    p: float = 0.5
    scale: tuple[float, float] = (1.0, 4.0)
    fill: tuple[int, int, int] = (0, 0, 0)

    kind: ClassVar[Kind] = "geometry"
    draws: ClassVar[int] = 4

    def _check(self) -> None:
        check_p("ZoomOut p", self.p)
        hint = "sides of the canvas, such as (1.0, 4.0)"
        check_range("ZoomOut scale", self.scale, 1, _MOST_TIMES, hint)
        check_fill("ZoomOut fill", self.fill)

    @property
    def border(self) -> Border:
        """The canvas around the image."""
        return Border("constant", self.fill)

    def out(self, spec: Spec) -> Spec:
        need_pixels(self, spec)
        return spec.with_size(None, None)

    def params(self, u: np.ndarray, sizes: np.ndarray) -> dict[str, np.ndarray]:
        low, high = self.scale
        times = np.where(u[:, :1] < self.p, low + (high - low) * u[:, 1:2], 1)
        canvas = np.floor(sizes * times).astype(np.int64)
        corners = np.floor((canvas - sizes) * u[:, 2:])
        return window_params(np.concatenate([-corners, canvas], axis=1), canvas)
