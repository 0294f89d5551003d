"""Turns loaded samples into rows of a batch, through the program of every branch."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from fastfeed.backends.base import Backend
from fastfeed.decode.base import DecodeFailure, Stop
from fastfeed.faults import Failure
from fastfeed.feed.batch.annotations import Annotations, Annotator, clear
from fastfeed.feed.batch.loader import LoadedSamples
from fastfeed.feed.batch.object_rows import ObjectRows, Polygons
from fastfeed.feed.batch.pending_batch import RowArrays
from fastfeed.feed.batch.sample_loader import note_image
from fastfeed.feed.batch.task_sizes import TaskSizes
from fastfeed.ops.function import ANNOTATIONS
from fastfeed.ops.program.program import Program
from fastfeed.printable import printable
from fastfeed.runtime.buffers import BufferPool
from fastfeed.sources.annotations.shapes import parse_shape


class Underway(Protocol):
    """The batch that rows are made for."""

    @property
    def stop(self) -> Stop: ...

    @property
    def number(self) -> int:
        """Number of the batch, for the timeline."""
        ...


class BuiltRows(NamedTuple):
    """Samples whose rows have been made; those of bad ones are black."""

    ids: np.ndarray
    bad: dict[int, Failure | None]  # row -> its failure; None for a sample that was known to be bad


class Branch:
    """One program and its buffers; others exist for views of other sizes and further images."""

    def __init__(
        self,
        program: Program,
        backend: Backend,
        batch: int,
        keep: int,
        sizes: TaskSizes,
        buffers: BufferPool | None = None,
    ) -> None:
        """Create the buffers; `keep` batches are reused. buffers: others, of larger images."""
        self.program = program
        self.backend = backend
        empty = backend.empty
        self._shape = program.shape
        self.buffers = buffers or BufferPool((batch, *self._shape), program.spec.dtype, keep, empty)
        rendered = backend.rendered  # of one task, before mixing
        self.unmixed = BufferPool(
            (sizes.rows, *rendered.shape), rendered.spec.dtype, sizes.threads, empty
        )

    def take(self, rows: int) -> Any:
        """An array for a batch of this number of rows, with undefined content."""
        memory = self.buffers.take()
        shape = (rows, *self._shape)
        if memory.shape == shape:
            return memory
        return memory.reshape(-1)[: math.prod(shape)].reshape(shape)

    def black(self) -> Any:
        """A black pixel as `render` leaves it, in a shape that broadcasts to any image."""
        program = self.backend.rendered
        level = self.backend.xp.asarray(np.array(program.convert.offset, program.spec.dtype))
        return level[:, None, None] if program.spec.layout == "CHW" else level


@dataclass(eq=False)
class RowMaker:
    """Decodes and augments samples into rows, one array per branch."""

    _branches: Sequence[Branch]
    _annotator: Annotator
    _failure: Callable[[str, Any, DecodeFailure], Failure]  # of an image, by its name
    # labels and columns of samples by name
    _values: Callable[[Any, np.ndarray, Collection[str]], dict[str, np.ndarray]]

    def __post_init__(self) -> None:
        functions = [op for branch in self._branches for op in branch.program.functions]
        self._function_fields = {name for op in functions for name in op.fields}

    def fill(
        self,
        images: Mapping[str, LoadedSamples],
        draws: list[list[np.ndarray]],
        rows: RowArrays,
        batch: Underway,
    ) -> None:
        """Make the rows of samples that are good so far; the others become black.

        Adds to `bad`, which the images share.
        """
        first = next(iter(images.values()))
        for branch, numbers, out in zip(self._branches, draws, rows.images, strict=True):
            name = branch.program.image
            samples = images[name]
            located = None
            if branch.program.needs_boxes is not None:
                located = self._annotator.located(samples)
            work = samples.work(branch.program, numbers, located)
            if samples is first:
                before = self._annotator.before(rows.annotations)
                self._annotator.fill(samples, work, before)
            else:
                before = Annotations()
            if names := self._function_fields:
                values = self._values(batch, samples.ids, names.difference(ANNOTATIONS))
                work = replace(work, fields=SampleFields(values, before, rows.annotations))
            try:
                rendered = self._render(branch, samples, work, out, batch)
            except Exception as error:
                note_image(error, name)
                raise
            for row, bad in rendered.items():
                samples.bad[row] = self._failure(name, samples.ids[row], bad)
        if first.bad:
            self.clear(sorted(first.bad), rows)

    def clear(self, bad: list[int], rows: RowArrays) -> None:
        """Make these rows black, without boxes and masks."""
        for branch, out in zip(self._branches, rows.images, strict=True):
            with branch.backend.device_context():
                # on its own stream, as all that is written to its batches
                out[bad] = branch.black()
        clear(rows.annotations, bad)

    def _render(
        self, branch: Branch, samples: LoadedSamples, work: Any, out: Any, batch: Underway
    ) -> dict[int, DecodeFailure]:
        skip = np.zeros(len(samples.ids), bool)
        if samples.bad:
            skip[list(samples.bad)] = True
        render = branch.backend.render_native
        return render(samples.native, skip, work, out, batch.stop, batch.number)


def targets(program: Program, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Labels as the program converts them; of masked samples, whose weight is 0, without NaN."""
    if program.targets is not None:
        labels = program.targets.of(labels)
    masked = np.flatnonzero(weights == 0) if labels.dtype.kind == "f" else ()
    if len(masked):  # NaN, for a missing label, would be NaN in the loss
        labels = labels.copy()
        labels[masked] = np.nan_to_num(labels[masked])
    return labels


@dataclass(frozen=True, slots=True, eq=False)
class SampleFields:
    """Labels, columns and annotations of n samples, or of one."""

    values: Mapping[str, Any]  # labels and columns by name: n rows, or a sample's value
    before: Annotations  # as functions get them
    after: Annotations  # and in the batch

    def __getitem__(self, rows: Any) -> SampleFields:
        """The fields of some samples, as a slice; of one sample for an integer."""
        values = {name: array[rows] for name, array in self.values.items()}
        if not isinstance(rows, slice):
            rows = slice(rows, rows + 1)
        return SampleFields(values, self.before[rows], self.after[rows])

    def take(self, names: Sequence[str]) -> dict[str, Any]:
        """Values of one sample by name; arrays are copies."""
        objects = self.before.objects
        masks = self.before.masks
        taken = dict(self.values)
        if objects is not None:
            count = int(objects.counts[0])
            taken["boxes"] = objects.boxes[0, :count].copy()
            taken["box_labels"] = objects.labels[0, :count].copy()
            for name in ("keypoints", "instance_masks"):
                if (array := getattr(objects, name)) is not None:
                    taken[name] = array[0, :count].copy()
            if objects.polygons is not None:
                places = np.arange(count)
                polygons = Polygons.of_batch(objects, np.zeros(count, np.int64), places)
                taken["polygons"] = polygons.lists(count)
        if masks is not None:
            taken["masks"] = masks[0].copy()
        return {name: taken[name] for name in names}

    def put(self, results: Mapping[str, Any]) -> None:
        """Set objects and masks of one sample. ValueError says which results these must be."""
        if "boxes" in results and self.after.objects is not None:
            boxes = np.asarray(results["boxes"], np.float32)
            boxes = boxes.reshape(-1, 4) if boxes.size == 0 else boxes
            given = np.asarray(results["box_labels"])
            labels = given.astype(np.int64)
            if boxes.ndim != 2 or boxes.shape[1] != 4 or labels.shape != (len(boxes),):
                raise ValueError(
                    "boxes of shape (n, 4) and box_labels of shape (n,), returned"
                    f" {boxes.shape} and {labels.shape}"
                )
            if not np.isfinite(boxes).all() or (boxes[:, 2:] < boxes[:, :2]).any():
                raise ValueError(
                    f"boxes as left, top, right, bottom in pixels, returned {boxes.tolist()}"
                )
            if not np.array_equal(labels, given):
                raise ValueError(f"integers as box_labels, returned {given.tolist()}")
            points = None
            if self.after.objects.keypoints is not None:
                points = _points(results["keypoints"], len(boxes), self.after.objects.keypoints)
            masks = None
            if (out := self.after.objects.instance_masks) is not None:
                masks = _instance_masks(results["instance_masks"], (len(boxes), *out.shape[2:]))
            polygons = None
            if self.after.objects.polygons is not None:
                polygons = _polygons(results["polygons"], len(boxes))
            rows = np.zeros(len(boxes), np.int64)
            ObjectRows(rows, boxes, labels, points, masks, polygons).write(self.after.objects)
        if "masks" in results and self.after.masks is not None:
            mask = np.asarray(results["masks"])
            shape = self.after.masks.shape[1:]
            if mask.shape != shape or mask.dtype != np.uint8:
                raise ValueError(
                    f"masks uint8{list(shape)}, returned {mask.dtype}{list(mask.shape)}"
                )
            self.after.masks[0] = mask


def _instance_masks(value: Any, shape: tuple[int, ...]) -> np.ndarray:
    masks = np.asarray(value)
    if masks.shape != shape or masks.dtype.name not in ("uint8", "bool") or (masks > 1).any():
        raise ValueError(
            f"instance_masks uint8{list(shape)} of 0 and 1, returned"
            f" {masks.dtype}{list(masks.shape)}"
        )
    return masks


def _polygons(value: Any, n: int) -> Polygons:
    must = f"polygons, {n} lists of rings, returned"
    if not isinstance(value, (list, tuple)) or len(value) != n:
        raise ValueError(f"{must} {printable(repr(value))}")
    shapes = []
    for k, rings in enumerate(value):
        try:
            shapes.append(parse_shape(list(rings)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{must} others: polygon {k} {error}") from None
    return Polygons.of(shapes)


def _points(value: Any, n: int, out: np.ndarray) -> np.ndarray:
    """Keypoints of n objects; `out` has room for more of them."""
    points = np.asarray(value, np.float32)
    shape = (n, *out.shape[2:])
    points = points.reshape(shape) if points.size == n == 0 else points
    if points.shape != shape or not np.isfinite(points).all():
        raise ValueError(f"finite keypoints of shape {shape}, returned {points.shape}")
    if not np.isin(points[..., 2], (0, 1, 2)).all():
        raise ValueError("0, 1 or 2 as the visibility of keypoints")
    return points
