"""Moves boxes and points the way pixels move, using the same parameters.

Every geometric op is a matrix per sample, whether it cuts, scales, mirrors, turns or tilts; color
changes, noise and erasing do not affect them. Ops that blend several moved copies of an image
(AugMix) leave them in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.ops.program.layers import Choices, Layer
from fastfeed.ops.program.program import Program, Work
from fastfeed.ops.program.window import Window

__all__ = [
    "Stage",
    "boxes_after",
    "combine_stages",
    "fill_valid",
    "points_after",
    "stages",
    "to_original",
]

_ROUNDING = 1e-6  # pixels by which arithmetic moves a point that is on an edge


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One move of n images.

    Coordinates are continuous, (x, y, 1) columns, pixel centers at +0.5.
    """

    forward: np.ndarray  # float64 (n, 3, 3): from input to output
    back: np.ndarray  # float64 (n, 3, 3): from output to input
    limits: np.ndarray  # float64 (n, 4): top, left, height, width of the existing part of the input
    sizes: np.ndarray  # int64 (n, 2): height, width of the output

    def __getitem__(self, rows: Any) -> Stage:
        return Stage(self.forward[rows], self.back[rows], self.limits[rows], self.sizes[rows])


def stages(program: Program, work: Work, layers: int | None = None) -> list[Stage]:
    """All moves of these samples in order: the decoded window, then ops that move pixels.

    layers: number of the chain's layers to follow. Default: None, all.
    """
    windows = work.windows
    limits = windows.boxes if windows.limits is None else windows.limits
    moves = [_cut(windows.boxes, windows.sizes, windows.flips, limits)]
    for layer, choices in list(zip(program.layers, work.choices, strict=True))[:layers]:
        moves += _stage(layer, choices, moves[-1].sizes)
    return moves


def boxes_after(
    stages: Sequence[Stage],
    boxes: np.ndarray,
    rows: np.ndarray,
    min_size: float = 1.0,
    min_visible: float = 0.1,
    min_area: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """The boxes that remain after all stages, and their indices.

    boxes  float64 (m, 4): left, top, right, bottom in pixels of the displayed image; rows int64
    (m,): of which image

    After every stage a box becomes the bounding box of its four corners, clipped to the image. It
    is dropped when a side ends up shorter than `min_size` pixels, its area below `min_area`, or
    when less than `min_visible` of it is visible: the product, over all stages, of the share of its
    area that was not cut off.
    (Albumentations' `min_visibility` looks at each op alone, so there three crops that each keep
    half leave a box that is one eighth visible at any `min_visibility` up to 0.5.)
    """
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    corners = _corners(boxes)
    path = np.tile(np.eye(3), (len(boxes), 1, 1))
    current = boxes
    visible = np.ones(len(boxes))
    for stage in stages:
        current, share = _clip(current, _edges(stage.limits[rows]))
        visible = visible * share
        forward = stage.forward[rows]
        path = _product(forward, path)
        current = _bounds(forward, _corners(current))
        # the bounds of a box rotated twice are larger than those of its corners rotated twice; the
        # object is inside both
        current = _intersection(current, _bounds(path, corners))
        current, share = _clip(current, _canvas(stage.sizes[rows]))
        visible = visible * share
    sides = current[:, 2:] - current[:, :2]
    large = (sides >= min_size) & (sides > 0)
    rows_left = np.flatnonzero(
        large.all(axis=1) & (np.prod(sides, axis=1) >= min_area) & (visible >= min_visible)
    )
    return current[rows_left], rows_left


def combine_stages(stages: Sequence[Stage]) -> np.ndarray:
    """One matrix per sample from the displayed image to the result: float64 (n, 3, 3)."""
    path = stages[0].forward
    for stage in stages[1:]:
        path = _product(stage.forward, path)
    return path / path[:, 2:, 2:]


def fill_valid(stages: Sequence[Stage], out: np.ndarray) -> None:
    """Set pixels of results to True whose center is in the image: bool (n, height, width)."""
    back = np.linalg.inv(combine_stages(stages))
    edges = _edges(stages[0].limits)
    y, x = (np.arange(side) + 0.5 for side in out.shape[1:])
    for matrix, (left, top, right, bottom), valid in zip(back, edges, out, strict=True):
        if np.count_nonzero(matrix) == np.count_nonzero(matrix[[0, 0, 1, 1, 2], [0, 2, 1, 2, 2]]):
            across = matrix[0, 0] * x + matrix[0, 2]
            down = matrix[1, 1] * y + matrix[1, 2]
            columns = across[None]
            rows = down[:, None]
        else:
            points = np.einsum(
                "ij,jyx->iyx", matrix, np.stack(np.broadcast_arrays(x, y[:, None], 1.0))
            )
            columns = points[0] / points[2]
            rows = points[1] / points[2]
        inside = (columns >= left) & (columns < right), (rows >= top) & (rows < bottom)
        np.logical_and(*inside, out=valid)


@checked
def to_original(places: Any, transform: Any) -> np.ndarray:
    """Boxes or points in result images, in pixels of the original ones as displayed.

    Args:
        places (array): Boxes (n, ..., 4): left, top, right, bottom; a turned box becomes the
            smallest one around its corners. Or points (n, ..., 2), or (n, ..., 3), whose visibility
            stays.
        transform (array): The field `transform` of these n images, (n, 3, 3).

    Returns:
        float64, the shape of `places`.

    Raises:
        ConfigError: If the shapes do not fit each other, or a matrix has no inverse.

    Example:
        >>> images = ff.Arrays(np.zeros((1, 40, 60, 3), np.uint8))
        >>> ops = [ff.Crop(10, 20, 16), ff.Resize((8, 8))]
        >>> feed = ff.Feed(images, ops, batch=1, to_original=True)
        >>> batch = next(iter(feed))
        >>> ff.to_original([[[1, 2, 8, 8]]], batch["transform"])
        array([[[22., 14., 36., 26.]]])
        >>> batch["original_size"]
        array([[40, 60]])
    """
    array = _numbers("places", places)
    matrices = _numbers("transform", transform)
    if matrices.ndim != 3 or matrices.shape[1:] != (3, 3):
        raise ConfigError.of("to_original: transform", "of shape (n, 3, 3)", matrices.shape)
    if array.ndim < 2 or array.shape[-1] not in (2, 3, 4) or len(array) != len(matrices):
        must = f"boxes ({len(matrices)}, ..., 4) or points ({len(matrices)}, ..., 2 or 3)"
        raise ConfigError.of("to_original: places", must, array.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        determinants = np.linalg.det(matrices)
    for row in np.flatnonzero(~np.isfinite(determinants) | (determinants == 0)).tolist():
        raise ConfigError(
            f"to_original: transform must have an inverse for each image, got"
            f" {matrices[row].tolist()} in row {row}; pass the field transform of a batch"
        )
    back = np.linalg.inv(matrices)
    if array.shape[-1] == 4:
        flat = array.reshape(-1, 4)
        each = np.repeat(back, len(flat) // max(len(back), 1), axis=0)
        return _bounds(each, _corners(flat)).reshape(array.shape)
    found = array.copy()
    points = array[..., :2].reshape(len(array), math.prod(array.shape[1:-1]), 2)
    moved, _ = _through(back, points)
    found[..., :2] = moved.reshape(*array.shape[:-1], 2)
    return found


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ConfigError.of(f"to_original: {name}", "an array of numbers", values) from None


def points_after(
    stages: Sequence[Stage], points: np.ndarray, rows: np.ndarray, mirrored: np.ndarray
) -> np.ndarray:
    """The points of objects after all stages: float64 (m, k, 3).

    points  float64 (m, k, 3): x, y in pixels of the displayed image, visibility; rows int64 (m,):
    of which image; mirrored int64 (k,): the point that each one is in a mirrored image

    Every point moves; one that is outside of the image or in a border after any stage has
    visibility 0. A point on an edge is inside.
    """
    path = np.tile(np.eye(3), (len(points), 1, 1))
    places = points[..., :2]
    now = places
    seen = points[..., 2] > 0
    for stage in stages:
        seen = seen & _inside(now, _edges(stage.limits[rows]))
        path = _product(stage.forward[rows], path)
        now, _ = _through(path, places)
        seen = seen & _inside(now, _canvas(stage.sizes[rows]))
    visibility = np.where(seen, points[..., 2], 0)[..., None]
    now = np.where(np.isfinite(now), now, 0)  # a point on the horizon of a perspective has no place
    after = np.concatenate([now, visibility], axis=2)
    turned_over = (np.linalg.det(path) < 0)[:, None, None]
    return np.where(turned_over, after[:, mirrored], after)


def _stage(layer: Layer, choices: Choices, sizes: np.ndarray) -> list[Stage]:
    """The moves of a layer for images of these sizes; empty if none of its ops moves pixels."""
    n = len(sizes)
    forward = np.tile(np.eye(3), (n, 1, 1))
    back = np.tile(np.eye(3), (n, 1, 1))
    limits = np.concatenate([np.zeros((n, 2)), sizes], axis=1)
    after = sizes.copy()
    moves = False
    for k, (op, values) in enumerate(zip(layer.ops, choices.values, strict=True)):
        rows = np.flatnonzero(choices.choice == k)
        if isinstance(op, Window):
            cut = _cut(*(values[name][rows] for name in ("box", "size", "flip", "limit")))
            forward[rows] = cut.forward
            back[rows] = cut.back
            limits[rows] = cut.limits
            after[rows] = cut.sizes
        elif "matrix" in values:
            back[rows] = values["matrix"][rows]
            forward[rows] = np.linalg.inv(back[rows])
            after[rows] = values.get("size", after)[rows]
        else:
            continue
        moves = True
    return [Stage(forward, back, limits, after)] if moves else []


def _cut(boxes: np.ndarray, sizes: np.ndarray, flips: np.ndarray, limits: np.ndarray) -> Stage:
    """The stage of windows: x -> (x - left) * scale, or from the other side if mirrored."""
    forward = np.zeros((len(boxes), 3, 3))
    back = np.zeros((len(boxes), 3, 3))
    scale = sizes / boxes[:, 2:]
    scale = np.where(flips, -scale, scale)
    offset = np.where(flips, sizes, 0) - boxes[:, :2] * scale
    for row, axis in ((0, 1), (1, 0)):  # x goes with columns
        forward[:, row, row], forward[:, row, 2] = scale[:, axis], offset[:, axis]
        # the window to the bit: what is nearest may depend on it
        step = boxes[:, 2 + axis] / sizes[:, axis]
        mirrored = flips[:, axis]
        back[:, row, row] = np.where(mirrored, -step, step)
        back[:, row, 2] = boxes[:, axis] + np.where(mirrored, boxes[:, 2 + axis], 0)
    forward[:, 2, 2] = back[:, 2, 2] = 1
    return Stage(forward, back, limits, sizes)


def _product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Matrix products (m, 3, 3), each the same to the bit for any m, unlike `@` of NumPy 2.0."""
    rows = first.transpose(2, 0, 1)[..., None]
    columns = second.transpose(1, 0, 2)[:, :, None]
    return rows[0] * columns[0] + rows[1] * columns[1] + rows[2] * columns[2]


def _through(matrices: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (m, k, 2) through matrices (m, 3, 3), and their depths (m, k).

    Lines break where depths differ in sign.
    """
    columns = matrices.transpose(2, 0, 1)[:, :, None]
    projected = points[..., :1] * columns[0] + points[..., 1:] * columns[1] + columns[2]
    with np.errstate(divide="ignore", invalid="ignore"):
        return projected[..., :2] / projected[..., 2:], projected[..., 2]


def _bounds(matrices: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Bounding boxes of four corners (m, 4, 2) after matrices.

    They are unbounded if the horizon is between the corners.
    """
    moved, depth = _through(matrices, corners)
    in_front = np.logical_or((depth > 0).all(axis=1), (depth < 0).all(axis=1))[:, None]
    low = moved.min(axis=1)
    high = moved.max(axis=1)
    return np.concatenate(
        [np.where(in_front, low, -np.inf), np.where(in_front, high, np.inf)], axis=1
    )


def _corners(boxes: np.ndarray) -> np.ndarray:
    return boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]


def _intersection(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    low = np.maximum(first[:, :2], second[:, :2])
    high = np.minimum(first[:, 2:], second[:, 2:])
    return np.concatenate([low, np.maximum(low, high)], axis=1)


def _clip(boxes: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The boxes clipped to the edges, and the visible share of their area; 0 for empty boxes."""
    inside = _intersection(boxes, edges)
    area, area_inside = (np.prod(b[:, 2:] - b[:, :2], axis=1) for b in (boxes, inside))
    return inside, np.divide(area_inside, area, out=np.zeros(len(boxes)), where=area > 0)


def _inside(points: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """True for points (m, k, 2) within edges (m, 4): bool (m, k)."""
    low = edges[:, None, :2] - _ROUNDING
    high = edges[:, None, 2:] + _ROUNDING
    inside = (points >= low) & (points <= high)
    return inside[..., 0] & inside[..., 1]


def _edges(limits: np.ndarray) -> np.ndarray:
    """(left, top, right, bottom) of boxes given as top, left, height, width."""
    first = limits[:, 1::-1]
    last = limits[:, 1::-1] + limits[:, :1:-1]
    return np.concatenate([first, last], axis=1)


def _canvas(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros_like(sizes), sizes[:, ::-1]], axis=1).astype(np.float64)
