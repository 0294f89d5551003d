"""Objects in images of a batch, one after another: boxes, labels, keypoints, outlines, polygons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np

from fastfeed.backends.cpu.masks import mask_after, stage_arrays
from fastfeed.decode.orientation import displayed, displayed_boxes
from fastfeed.ops.mix import BLEND, MOSAIC, MixPlan
from fastfeed.ops.move_boxes import Stage, boxes_after, points_after
from fastfeed.runtime.batch import Boxes
from fastfeed.runtime.extension import extension
from fastfeed.sources.annotations.shapes import Rings, Runs
from fastfeed.sources.base import Instances
from fastfeed.spec import ObjectSpec

_MIRRORED = (2, 4, 5, 7)  # EXIF orientations


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
        slots = _ranks(np.bincount(ring_rows, minlength=len(out)))
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


def _clear_polygons(out: Boxes, rows: Any) -> None:
    """Reset these rows to images without polygons."""
    if out.polygons is not None and out.polygon_rings is not None:
        for row in np.arange(len(out))[rows].tolist():
            out.polygons[row, : out.polygon_rings[row, :, 2].max()] = 0  # the others are 0
        out.polygon_rings[rows] = (-1, 0, 0)


def _ranks(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... within every row."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _spans(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """`counts` numbers from each of `first`."""
    return np.repeat(first, counts) + _ranks(counts)


def _sums(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sums of values up to each one, separately for every row; rows ascend."""
    sums = np.cumsum(values)
    return sums - (sums - values)[np.searchsorted(rows, rows)]


@dataclass(frozen=True, slots=True, eq=False)
class ObjectRows:
    """Objects of several images, m in all."""

    rows: np.ndarray  # int64 (m,), ascending: the image of each
    boxes: np.ndarray  # float64 (m, 4): left, top, right, bottom
    labels: np.ndarray  # int64 (m,)
    keypoints: np.ndarray | None = None  # float64 (m, k, 3)
    shapes: np.ndarray | None = None  # (m,): outlines before any stage; see `draw`
    polygons: Polygons | None = None  # after the stages so far; None before any

    @classmethod
    def of(cls, instances: Instances) -> ObjectRows:
        """The objects of a source; an image is its place."""
        rows = np.repeat(np.arange(len(instances.counts)), instances.counts)
        return cls(rows, instances.boxes, instances.labels, instances.keypoints, instances.shapes)

    def __getitem__(self, which: Any) -> ObjectRows:
        points = None if self.keypoints is None else self.keypoints[which]
        shapes = None if self.shapes is None else self.shapes[which]
        polygons = self.polygons
        if polygons is not None:
            polygons = polygons.take(np.arange(len(self.rows))[which])
        arrays = self.rows[which], self.boxes[which], self.labels[which]
        return ObjectRows(*arrays, points, shapes, polygons)

    def scaled(self, sizes: np.ndarray) -> ObjectRows:
        """Objects in pixels, of shares of the sides; sizes: height, width of the images (n, 2)."""
        sides = sizes[self.rows, ::-1]
        points = self.keypoints
        if points is not None:
            places = points[..., :2] * sides[:, None]
            points = np.concatenate([places, points[..., 2:]], axis=2)
        shapes = self.shapes
        if shapes is not None:
            shapes = _objects([scaled(*pair) for pair in zip(shapes, sides, strict=True)])
        boxes = self.boxes * np.tile(sides, 2)
        return replace(self, boxes=boxes, keypoints=points, shapes=shapes)

    def displayed(self, turns: np.ndarray, sizes: np.ndarray, spec: ObjectSpec) -> ObjectRows:
        """Objects of stored images in displayed pixels.

        turns: EXIF orientation of each image, int64 (n,); sizes: its height and width as displayed,
        int64 (n, 2).
        """
        turns = turns[self.rows]
        sizes = sizes[self.rows]
        boxes = displayed_boxes(turns, self.boxes, sizes)
        points = self.keypoints
        if points is not None:
            k = points.shape[1]
            places = np.tile(points[..., :2].reshape(-1, 2), 2)  # boxes without an area
            moved = displayed_boxes(turns.repeat(k), places, sizes.repeat(k, axis=0))[:, :2]
            points = np.concatenate([moved.reshape(-1, k, 2), points[..., 2:]], axis=2)
            turned_over = np.isin(turns, _MIRRORED)[:, None, None]
            points = np.where(turned_over, points[:, spec.mirrored], points)
        shapes = self.shapes
        if shapes is not None:
            triples = zip(shapes, turns.tolist(), sizes, strict=True)
            shapes = _objects([turned(*triple) for triple in triples])
        return replace(self, boxes=boxes, keypoints=points, shapes=shapes)

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
        polygons = left.polygons
        if spec.polygons is not None:
            if polygons is None:
                assert left.shapes is not None
                polygons = Polygons.of(left.shapes)
            polygons = polygons.after(stages, left.rows)
        return replace(left, boxes=boxes, keypoints=points, polygons=polygons)

    def write(self, out: Boxes, stages: Sequence[Stage] = ()) -> None:
        """Write the objects into their rows, of which the others get none.

        The largest are kept if there are too many. stages: those that outlines go through.
        """
        limit = out.labels.shape[1]
        counts = np.bincount(self.rows, minlength=len(out))
        kept = self
        area = np.prod(self.boxes[:, 2:] - self.boxes[:, :2], axis=1)
        if counts.max(initial=0) > limit:
            order = np.lexsort((-area, self.rows))  # stable: of boxes of equal size the first
            largest = np.sort(order[_ranks(counts) < limit])
            kept = self[largest]
            area = area[largest]
            counts = np.minimum(counts, limit)
        clear_objects(out)
        places = kept.rows, _ranks(counts)
        out.boxes[places] = kept.boxes
        out.labels[places] = kept.labels
        out.counts[:] = counts
        if out.keypoints is not None and kept.keypoints is not None:
            out.keypoints[places] = kept.keypoints
        if out.polygons is not None and kept.polygons is not None:
            kept.polygons.write(out, *places, area)
        if out.instance_masks is not None and kept.shapes is not None:
            for shape, row, place in zip(kept.shapes, *places, strict=True):
                draw(shape, stages, row, out.instance_masks[row, place])


def clear_objects(out: Boxes, rows: Any = slice(None)) -> None:
    """Reset these rows to images without objects."""
    if out.instance_masks is not None:  # in other places they are 0
        for row in np.arange(len(out))[rows].tolist():
            out.instance_masks[row, : out.counts[row]] = 0
    _clear_polygons(out, rows)
    out.boxes[rows] = 0
    out.labels[rows] = -1
    out.counts[rows] = 0
    if out.keypoints is not None:
        out.keypoints[rows] = 0


@dataclass(frozen=True, slots=True, eq=False)
class _MixedMask:
    """The mask of an object in an image that becomes a part of another one."""

    pixels: np.ndarray  # uint8 (height, width)
    stage: Stage  # of its member of all mixed samples


@singledispatch
def draw(shape: Any, stages: Sequence[Stage], row: int, out: np.ndarray) -> None:
    """Fill `out`, uint8 (height, width) of 0, with the mask of an object of image `row`.

    shape: pixels, before these stages if there are any.
    """
    if len(stages):
        mask_after(stages, row, shape, 0, out)
    else:
        out[...] = shape


@draw.register
def _(shape: Runs, stages: Sequence[Stage], row: int, out: np.ndarray) -> None:
    draw(shape.pixels(shape.size), stages, row, out)


@draw.register
def _(shape: Rings, stages: Sequence[Stage], row: int, out: np.ndarray) -> None:
    shape.draw(out, *stage_arrays(stages, row, "forward"))


@draw.register
def _(shape: _MixedMask, stages: Sequence[Stage], row: int, out: np.ndarray) -> None:
    draw(shape.pixels, [shape.stage], row, out)


def scaled(shape: Any, sides: np.ndarray) -> Any:
    """An outline in pixels, of one in shares of the width and height `sides`."""
    return shape.scaled(sides) if isinstance(shape, Rings) else shape


def turned(shape: Any, turn: int, size: np.ndarray) -> Any:
    """An outline of a stored image in displayed pixels; size: its height and width there."""
    if isinstance(shape, (Rings, Runs)):
        return shape.displayed(turn, size)
    return displayed(turn, shape)


def _objects(values: Sequence[Any]) -> np.ndarray:
    """An array of objects, whatever these are: (len(values),)."""
    objects = np.empty(len(values), object)
    for place, value in enumerate(values):
        objects[place] = value
    return objects


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
    numbers = np.arange(samples.labels.shape[1])
    parts = []
    for k in range(members.shape[1]):
        visible = (plan.how == MOSAIC) | (plan.how == BLEND if k == 1 else k == 0)
        member = members[:, k]
        rows, columns = np.nonzero(visible[:, None] & (numbers < samples.counts[member][:, None]))
        places = member[rows], columns
        points = None if samples.keypoints is None else samples.keypoints[places].astype(np.float64)
        quarter = _quarter(plan, k, size)
        shapes = None
        if (masks := samples.instance_masks) is not None:
            pairs = zip(*(place.tolist() for place in places), strict=True)
            shapes = _objects([_MixedMask(masks[pair], quarter) for pair in pairs])
        polygons = None if samples.polygons is None else Polygons.of_batch(samples, *places)
        boxes = samples.boxes[places]
        labels = samples.labels[places]
        own = ObjectRows(rows, boxes, labels, points, shapes, polygons)
        parts.append(own.after([quarter], spec))
    objects = _joined(parts)
    objects[np.argsort(objects.rows, kind="stable")].write(out)


def _joined(parts: Sequence[ObjectRows]) -> ObjectRows:
    """The objects of all parts, one part after another."""
    arrays: dict[str, Any] = {}
    for name in ObjectRows.__slots__:
        own = [getattr(part, name) for part in parts]
        if own[0] is None:
            arrays[name] = None
        elif name == "polygons":
            arrays[name] = Polygons.joined(own, [len(part.rows) for part in parts])
        else:
            arrays[name] = np.concatenate(own)
    return ObjectRows(**arrays)


def _quarter(plan: MixPlan, k: int, size: tuple[int, int]) -> Stage:
    """Move member k of each sample to its side of a mosaic's center; others keep their place."""
    n = len(plan.how)
    image = np.array(size)
    tiled = (plan.how == MOSAIC)[:, None]
    center = plan.box[:, :2]
    second = np.array(divmod(k, 2), bool)
    # of its height and width
    visible = np.where(tiled, np.where(second, image - center, center), image)
    first = np.where(tiled & ~second, image - center, 0)
    move = np.where(tiled, np.where(second, center, center - image), 0)
    forward = np.tile(np.eye(3), (n, 1, 1))
    back = np.tile(np.eye(3), (n, 1, 1))
    forward[:, :2, 2], back[:, :2, 2] = move[:, ::-1], -move[:, ::-1]  # x goes with columns
    limits = np.concatenate([first, visible], axis=1).astype(np.float64)
    return Stage(forward, back, limits, np.tile(image.astype(np.int64), (n, 1)))
