"""The objects in the images of a batch, one after another: boxes, labels and keypoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastfeed.decode.orientation import displayed_boxes
from fastfeed.ops.mix_plan import BLEND, MOSAIC, MixPlan
from fastfeed.ops.move_boxes import Stage, boxes_after, points_after
from fastfeed.runtime.batch import Boxes
from fastfeed.sources.base import Instances
from fastfeed.spec import ObjectSpec

__all__ = ["ObjectRows", "mix_objects"]

_MIRRORED = (2, 4, 5, 7)  # EXIF orientations


@dataclass(frozen=True, slots=True, eq=False)
class ObjectRows:
    """Objects of several images, m in all."""

    rows: np.ndarray  # int64 (m,), ascending: the image of each
    boxes: np.ndarray  # float64 (m, 4): left, top, right, bottom
    labels: np.ndarray  # int64 (m,)
    keypoints: np.ndarray | None = None  # float64 (m, k, 3)

    @classmethod
    def of(cls, found: Instances) -> ObjectRows:
        """The objects of a source; an image is its place."""
        rows = np.repeat(np.arange(len(found.counts)), found.counts)
        return cls(rows, found.boxes, found.labels, found.keypoints)

    def __getitem__(self, which: Any) -> ObjectRows:
        points = None if self.keypoints is None else self.keypoints[which]
        return ObjectRows(self.rows[which], self.boxes[which], self.labels[which], points)

    def scaled(self, sizes: np.ndarray) -> ObjectRows:
        """Objects in pixels, of shares of the sides; sizes: height, width of the images (n, 2)."""
        sides = sizes[self.rows, ::-1]
        points = self.keypoints
        if points is not None:
            places = points[..., :2] * sides[:, None]
            points = np.concatenate([places, points[..., 2:]], axis=2)
        return replace(self, boxes=self.boxes * np.tile(sides, 2), keypoints=points)

    def displayed(self, turns: np.ndarray, sizes: np.ndarray, spec: ObjectSpec) -> ObjectRows:
        """Objects of stored images in displayed pixels.

        turns: EXIF orientation of each image, int64 (n,); sizes: its height and width as displayed,
        int64 (n, 2).
        """
        turns, sizes = turns[self.rows], sizes[self.rows]
        boxes, points = displayed_boxes(turns, self.boxes, sizes), self.keypoints
        if points is not None:
            k = points.shape[1]
            places = np.tile(points[..., :2].reshape(-1, 2), 2)  # boxes without an area
            moved = displayed_boxes(turns.repeat(k), places, sizes.repeat(k, axis=0))[:, :2]
            points = np.concatenate([moved.reshape(-1, k, 2), points[..., 2:]], axis=2)
            turned_over = np.isin(turns, _MIRRORED)[:, None, None]
            points = np.where(turned_over, points[:, spec.mirrored], points)
        return replace(self, boxes=boxes, keypoints=points)

    def after(self, stages: Sequence[Stage], spec: ObjectSpec) -> ObjectRows:
        """The objects that remain after all stages; all of them if they have only keypoints."""
        kept: Any = slice(None)
        boxes = self.boxes
        if spec.has_boxes:
            rules = spec.min_size, spec.min_visible, spec.min_area
            boxes, kept = boxes_after(stages, boxes, self.rows, *rules)
        left = self[kept]
        points = left.keypoints
        if points is not None:
            points = points_after(stages, points, left.rows, spec.mirrored)
            if not spec.has_boxes:
                boxes = around(points)
        return replace(left, boxes=boxes, keypoints=points)

    def write(self, out: Boxes) -> None:
        """Write the objects into their rows, of which the others get none.

        The largest are kept if there are too many.
        """
        limit = out.labels.shape[1]
        counts = np.bincount(self.rows, minlength=len(out))
        kept = self
        if counts.max(initial=0) > limit:
            area = np.prod(self.boxes[:, 2:] - self.boxes[:, :2], axis=1)
            order = np.lexsort((-area, self.rows))  # stable: of boxes of equal size the first
            kept = self[np.sort(order[_ranks(counts) < limit])]
            counts = np.minimum(counts, limit)
        clear_objects(out)
        places = kept.rows, _ranks(counts)
        out.boxes[places] = kept.boxes
        out.labels[places] = kept.labels
        out.counts[:] = counts
        if out.keypoints is not None and kept.keypoints is not None:
            out.keypoints[places] = kept.keypoints


def clear_objects(out: Boxes, rows: Any = slice(None)) -> None:
    """Reset these rows to images without objects."""
    out.boxes[rows] = 0
    out.labels[rows] = -1
    out.counts[rows] = 0
    if out.keypoints is not None:
        out.keypoints[rows] = 0


def around(points: np.ndarray) -> np.ndarray:
    """Smallest boxes around visible points (m, k, 3): float64 (m, 4); 0 where none is visible."""
    seen = points[..., 2:] > 0
    low = np.where(seen, points[..., :2], np.inf).min(axis=1)
    high = np.where(seen, points[..., :2], -np.inf).max(axis=1)
    return np.where(seen.any(axis=1), np.concatenate([low, high], axis=1), 0)


def mix_objects(
    samples: Boxes,
    members: np.ndarray,
    plan: MixPlan,
    size: tuple[int, int],
    spec: ObjectSpec,
    out: Boxes,
) -> None:
    """Visible objects of all members; those of a mosaic are cut at their tiles."""
    numbers, parts = np.arange(samples.labels.shape[1]), []
    for k in range(members.shape[1]):
        visible = (plan.how == MOSAIC) | (plan.how == BLEND if k == 1 else k == 0)
        member = members[:, k]
        rows, columns = np.nonzero(visible[:, None] & (numbers < samples.counts[member][:, None]))
        places = member[rows], columns
        points = None if samples.keypoints is None else samples.keypoints[places].astype(np.float64)
        own = ObjectRows(rows, samples.boxes[places], samples.labels[places], points)
        parts.append(own.after([_quarter(plan, k, size)], spec))
    joined = [[getattr(part, name) for part in parts] for name in ("rows", "boxes", "labels")]
    rows, boxes, labels = (np.concatenate(arrays) for arrays in joined)
    found = [part.keypoints for part in parts if part.keypoints is not None]
    objects = ObjectRows(rows, boxes, labels, np.concatenate(found) if found else None)
    objects[np.argsort(rows, kind="stable")].write(out)


def _ranks(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... within every row."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _quarter(plan: MixPlan, k: int, size: tuple[int, int]) -> Stage:
    """Move member k of each sample to its side of a mosaic's center; others keep their place."""
    n, image = len(plan.how), np.array(size)
    tiled, center, second = (
        (plan.how == MOSAIC)[:, None],
        plan.box[:, :2],
        np.array(divmod(k, 2), bool),
    )
    # of its height and width
    visible = np.where(tiled, np.where(second, image - center, center), image)
    first = np.where(tiled & ~second, image - center, 0)
    move = np.where(tiled, np.where(second, center, center - image), 0)
    forward, back = np.tile(np.eye(3), (n, 1, 1)), np.tile(np.eye(3), (n, 1, 1))
    forward[:, :2, 2], back[:, :2, 2] = move[:, ::-1], -move[:, ::-1]  # x goes with columns
    limits = np.concatenate([first, visible], axis=1).astype(np.float64)
    return Stage(forward, back, limits, np.tile(image.astype(np.int64), (n, 1)))
