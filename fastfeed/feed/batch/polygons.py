"""Polygons of objects in a batch: rings of points that move with the pixels and are clipped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.ops.move_boxes import Stage
from fastfeed.runtime.batch import Boxes
from fastfeed.runtime.extension import extension
from fastfeed.sources.annotations.shapes import Rings

__all__ = ["Polygons", "clear_polygons", "ranks"]


@dataclass(frozen=True, slots=True, eq=False)
class Polygons:
    """Closed rings of m objects, those of one object after those of another."""

    points: np.ndarray  # float32 (p, 2): x, y in pixels, those of one ring after those of another
    lengths: np.ndarray  # int64 (r,): points of each ring
    owners: np.ndarray  # int64 (r,), ascending: the object that each ring belongs to

    @classmethod
    def of(cls, shapes: Iterable[Any]) -> Polygons:
        """The rings of outlines; runs and pixels have none."""
        rings = [(k, shape) for k, shape in enumerate(shapes) if isinstance(shape, Rings)]
        objects = np.array([k for k, _ in rings], np.int64)
        counts = np.array([len(shape.ends) for _, shape in rings], np.int64)
        points = np.concatenate([np.empty((0, 2), np.float32), *(s.points for _, s in rings)])
        sizes = np.array([len(shape.points) for _, shape in rings], np.int64)
        ends = np.concatenate([np.empty(0, np.int64), *(shape.ends for _, shape in rings)])
        ends += np.repeat(np.cumsum(sizes) - sizes, counts)
        return cls(points, np.diff(ends, prepend=0), np.repeat(objects, counts))

    @classmethod
    def of_batch(cls, batch: Boxes, rows: np.ndarray, places: np.ndarray) -> Polygons:
        """The rings of objects in a batch: their images and places there, int64 (m,)."""
        assert batch.polygons is not None and batch.polygon_rings is not None
        rings = batch.polygon_rings
        n, room = batch.labels.shape
        row, slot = np.nonzero(rings[..., 0] >= 0)
        own = np.bincount(row * room + rings[row, slot, 0], minlength=n * room).reshape(n, room)
        first = np.cumsum(own, axis=1) - own
        counts = own[rows, places]
        owners = np.repeat(np.arange(len(rows)), counts)
        ring_rows = rows[owners]
        begin, end = rings[ring_rows, _spans(first[rows, places], counts), 1:].T
        lengths = end - begin
        points = batch.polygons[np.repeat(ring_rows, lengths), _spans(begin, lengths)]
        return cls(points, lengths, owners)

    @classmethod
    def joined(cls, parts: Sequence[Polygons], counts: Sequence[int]) -> Polygons:
        """The rings of the objects of all parts; counts: objects of each part."""
        before = np.cumsum(counts) - counts
        owners = [part.owners + first for part, first in zip(parts, before, strict=True)]
        points = np.concatenate([part.points for part in parts])
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(points, lengths, np.concatenate(owners))

    def take(self, objects: np.ndarray) -> Polygons:
        """The rings of these objects, int64 (k,), in their order."""
        first = np.searchsorted(self.owners, objects)
        counts = np.searchsorted(self.owners, objects, side="right") - first
        rings = _spans(first, counts)
        lengths = self.lengths[rings]
        starts = (np.cumsum(self.lengths) - self.lengths)[rings]
        owners = np.repeat(np.arange(len(objects)), counts)
        return Polygons(self.points[_spans(starts, lengths)], lengths, owners)

    def after(self, stages: Sequence[Stage], rows: np.ndarray) -> Polygons:
        """Rings moved and clipped by all stages; rows: image of each object, int64 (m,)."""
        names = ("forward", "sizes", "limits")
        moves = [np.stack([getattr(stage, name) for stage in stages], axis=1) for name in names]
        ends = np.cumsum(self.lengths)
        points, lengths = extension().move_rings(self.points, ends, rows[self.owners], *moves)
        left = lengths > 0
        return Polygons(points.reshape(-1, 2), lengths[left], self.owners[left])

    def write(self, out: Boxes, rows: np.ndarray, places: np.ndarray, areas: np.ndarray) -> None:
        """Write the rings of the objects at these places, ascending, into empty rows of a batch.

        areas: of the objects' boxes; if there is no room for all rings of an image, the largest
        objects keep theirs.
        """
        assert out.polygons is not None and out.polygon_rings is not None
        order = np.lexsort((-areas, rows))
        points = np.bincount(self.owners, self.lengths, len(rows)).astype(np.int64)[order]
        rings = np.bincount(self.owners, minlength=len(rows))[order]
        fits = _sums(points, rows[order]) <= out.polygons.shape[1]
        fits &= _sums(rings, rows[order]) <= out.polygon_rings.shape[1]
        objects = np.sort(order[fits])
        kept = self.take(objects)
        ring_rows = rows[objects][kept.owners]
        ends = _sums(kept.lengths, ring_rows)
        begins = ends - kept.lengths
        slots = ranks(np.bincount(ring_rows, minlength=len(out)))
        numbers = [places[objects][kept.owners], begins, ends]
        out.polygon_rings[ring_rows, slots] = np.stack(numbers, axis=1)
        out.polygons[np.repeat(ring_rows, kept.lengths), _spans(begins, kept.lengths)] = kept.points

    def lists(self, m: int) -> list[list[np.ndarray]]:
        """Rings (k, 2) of each of the m objects."""
        found: list[list[np.ndarray]] = [[] for _ in range(m)]
        ends = np.cumsum(self.lengths)
        for owner, end, length in zip(self.owners.tolist(), ends, self.lengths, strict=True):
            found[owner].append(self.points[end - length : end])
        return found


def clear_polygons(out: Boxes, rows: Any) -> None:
    """Reset these rows to images without polygons."""
    if out.polygons is not None and out.polygon_rings is not None:
        for row in np.arange(len(out))[rows].tolist():
            out.polygons[row, : out.polygon_rings[row, :, 2].max()] = 0  # the others are 0
        out.polygon_rings[rows] = (-1, 0, 0)


def ranks(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... within every row."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _spans(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """`counts` numbers from each of `first`."""
    return np.repeat(first, counts) + ranks(counts)


def _sums(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sums of values up to each one, separately for every row; rows ascend."""
    sums = np.cumsum(values)
    return sums - (sums - values)[np.searchsorted(rows, rows)]
