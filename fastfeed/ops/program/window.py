"""Folds runs of geometric ops into one window per sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fastfeed.ops.base import Border, Kind, full_boxes
from fastfeed.runtime.extension import extension

__all__ = ["ObjectBoxes", "Step", "Window", "Windows", "fold"]


@dataclass(frozen=True, slots=True)
class Step:
    """One op of the user's list, and the source of its randomness."""

    op: Any
    spec: Any  # Spec after it
    # counts only ops that draw, so adding one that does not leaves all random numbers unchanged
    slot: int
    implied: bool = False  # not written by the user
    views: int = 1  # runs per sample, each with its own random numbers
    image: str = ""  # with a list of this name; empty for a list of all images


@dataclass(frozen=True, slots=True)
class Windows:
    """The box to cut from each of n samples, and its output size and flips."""

    boxes: np.ndarray  # float64 (n, 4): top, left, height, width, in pixels of the displayed image
    flips: np.ndarray  # bool (n, 2): top to bottom, left to right
    sizes: np.ndarray  # int64 (n, 2): height, width of the result
    # float64 (n, 4): the part of the image that exists; beyond it is the program's border
    limits: np.ndarray | None = None
    filters: np.ndarray | None = None  # int64 (n,): index into FILTERS, where each draws its own

    def __getitem__(self, rows: Any) -> Windows:
        limits = None if self.limits is None else self.limits[rows]
        filters = None if self.filters is None else self.filters[rows]
        return Windows(self.boxes[rows], self.flips[rows], self.sizes[rows], limits, filters)


@dataclass(frozen=True, slots=True)
class Window:
    """A run of geometry on pixels of one size, as backends see it.

    Its values are box, size and flip of `Geometry`, and limit: float64 (n, 4), the part of the
    image that exists.
    """

    size: tuple[int, int] | None = None  # (height, width) of the output; None: unchanged
    filter: str = "bilinear"
    border: Border | None = None  # None: no box reaches beyond its limit

    kind: ClassVar[Kind] = "change"

    @classmethod
    def of(cls, op: Any) -> Window:
        """A geometric op that keeps the size."""
        return cls(None, getattr(op, "filter", "bilinear"), getattr(op, "border", None))


@dataclass(frozen=True, slots=True, eq=False)
class ObjectBoxes:
    """Boxes of the objects in n images, m in all, for ops that look where these are."""

    rows: np.ndarray  # int64 (m,): the image of each
    boxes: np.ndarray  # float64 (m, 4): left, top, right, bottom, pixels

    def visible(self, windows: Windows | None, sizes: np.ndarray) -> ObjectBoxes:
        """Boxes in the pixels that windows show so far, without those that are cut off."""
        boxes = self.boxes
        if windows is not None:
            rows = self.rows
            corner = windows.boxes[rows, 1::-1]
            size = windows.sizes[rows, ::-1]
            scale = np.tile(size / windows.boxes[rows, :1:-1], 2)
            boxes = (boxes - np.tile(corner, 2)) * scale
            flips = np.tile(windows.flips[rows, ::-1], 2)
            boxes = np.where(flips, np.tile(size, 2) - boxes[:, [2, 3, 0, 1]], boxes)
        boxes = np.clip(boxes, 0, np.tile(sizes[self.rows, ::-1], 2))
        left = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        return ObjectBoxes(self.rows[left], boxes[left])


def fold(
    steps: Sequence[Step],
    draws: Sequence[np.ndarray],
    sizes: np.ndarray,
    objects: ObjectBoxes | None = None,
) -> Windows:
    """Fold steps into one window per sample.

    sizes: (height, width) of the input, int64 (n, 2); objects: for ops that need boxes.
    """
    native = extension()
    move = _move if native is None else native.fold
    windows: Windows | None = None
    limits = None
    for step, u in zip(steps, draws, strict=True):
        if getattr(step.op, "border", None) is not None:
            # pixels removed by an earlier crop do not return
            limits = (_full_windows(sizes) if windows is None else windows).boxes.copy()
        now = sizes if windows is None else windows.sizes
        if objects is not None and getattr(step.op, "needs_boxes", False):
            seen = objects.visible(windows, now)
            by = step.op.params(u, now, seen.rows, seen.boxes)
        else:
            by = step.op.params(u, now)
        if windows is None:  # moved from the whole image, its window stays as it is
            windows = Windows(by["box"].copy(), by["flip"].copy(), by["size"].copy())
        else:
            move(windows.boxes, windows.flips, windows.sizes, by["box"], by["flip"], by["size"])
    if windows is None:
        return _full_windows(sizes)
    return windows if limits is None else replace(windows, limits=limits)


def _full_windows(sizes: np.ndarray) -> Windows:
    """Windows that cover each image completely."""
    flips = np.zeros((len(sizes), 2), bool)
    return Windows(full_boxes(sizes), flips, sizes.astype(np.int64, order="C"))


def _move(
    boxes: np.ndarray,
    flips: np.ndarray,
    now: np.ndarray,
    box: np.ndarray,
    flip: np.ndarray,
    size: np.ndarray,
) -> None:
    """Change windows by an op's box, flip and size; native code follows this definition."""
    corner = box[:, :2]
    length = box[:, 2:]
    corner = np.where(flips, now - corner - length, corner)  # back to the unmirrored image
    unit = boxes[:, 2:] / now  # source pixels per pixel of the image as it is now
    boxes[:, :2] += corner * unit
    boxes[:, 2:] = length * unit
    flips ^= flip
    now[...] = size
