"""Boxes and masks of a batch, moved with the pixels and padded to one number of boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from fastfeed.backends.cpu.masks import mask_after
from fastfeed.backends.cpu.mixing import mix
from fastfeed.decode.masks import mask_pixels
from fastfeed.decode.orientation import displayed, displayed_boxes
from fastfeed.decode.pillow_warnings import named
from fastfeed.errors import SpecError
from fastfeed.faults import Failure
from fastfeed.ops.function import Function
from fastfeed.ops.mix_plan import BLEND, MOSAIC, MixPlan
from fastfeed.ops.move_boxes import Stage, boxes_after, stages
from fastfeed.ops.program.program import Program, Work
from fastfeed.runtime.batch import Boxes
from fastfeed.sources.base import Optionals, frame_of

_UNKNOWN = 255  # class of a pixel that is unknown or outside of the image
_STORED = 'if it was annotated without EXIF orientation, pass Objects(frame="stored")'


class LocatedSamples(Protocol):
    """Facts about samples that are known before they are decoded."""

    ids: np.ndarray  # int64 (n,)
    image_sizes: np.ndarray  # int64 (n, 2): height, width as displayed
    bad: dict[int, Failure | None]  # by row

    def orientations(self) -> np.ndarray:
        """EXIF orientation of each image, 1..8: int64 (n,)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Annotations:
    """Boxes and masks of n samples."""

    objects: Boxes | None = None
    masks: np.ndarray | None = None  # uint8 (n, height, width)

    def __getitem__(self, rows: Any) -> Annotations:
        objects, masks = self.objects, self.masks
        if objects is None and masks is None:
            return self
        return Annotations(
            None if objects is None else objects[rows], None if masks is None else masks[rows]
        )


@dataclass(frozen=True, slots=True)
class Annotator:
    """Makes the boxes and masks of a batch; row i depends on sample i alone.

    All are empty for a source without objects.
    """

    source: Optionals
    program: Program
    max_boxes: int  # of one sample, before mixing; 0: there are no boxes
    has_masks: bool
    members: int  # samples that mixing may combine into one
    # the source's boxes and masks are of images without their EXIF orientation
    stored: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of images as boxes and masks see them."""
        height, width = self.program.augmented.size
        return height or 0, width or 0

    @property
    def specs(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype for one sample, by name of the field."""
        specs: dict[str, tuple[tuple[int, ...], str]] = {}
        if self.max_boxes:
            boxes = self.max_boxes * self.members
            specs["boxes"] = (boxes, 4), "float32"
            specs["box_labels"] = (boxes,), "int64"
            specs["box_counts"] = (), "int64"
        return specs | ({"masks": (self.size, "uint8")} if self.has_masks else {})

    def empty(self, n: int, mixed: bool = False) -> Annotations:
        """Arrays for n samples, to be filled; `mixed`: for samples after mixing."""
        boxes = self.max_boxes * (self.members if mixed else 1)
        masks = np.empty((n, *self.size), np.uint8) if self.has_masks else None
        return Annotations(Boxes.none(n, boxes) if self.max_boxes else None, masks)

    def before(self, annotations: Annotations) -> Annotations:
        """Annotations to fill before a function that changes the size gets them."""
        masks = annotations.masks
        if masks is None or not any("masks" in op.fields for op in self.program.functions):
            return annotations
        height, width = self.program.chain[-1].input_spec.size
        if (height, width) == self.size:
            return annotations
        shape = (len(masks), height or 0, width or 0)
        return Annotations(annotations.objects, np.empty(shape, np.uint8))

    def fill(self, samples: LocatedSamples, work: Work, out: Annotations) -> None:
        """Fill `out`, and mark samples as bad whose mask or boxes do not fit the image."""
        if out.objects is None and out.masks is None:
            return
        clear(out)
        transforms = stages(self.program, work)
        turns = samples.orientations() if self.stored else np.ones(len(samples.ids), np.int64)
        if out.objects is not None:
            self._fill_boxes(samples, turns, transforms, out.objects)
        if out.masks is not None:
            self._fill_masks(samples, turns, transforms, out.masks)

    def _fill_boxes(
        self, samples: LocatedSamples, turns: np.ndarray, transforms: list[Stage], out: Boxes
    ) -> None:
        sizes, bad, objects = samples.image_sizes, samples.bad, self.source.objects(samples.ids)
        assert objects is not None
        if objects.sizes is not None:
            expected = np.where((turns >= 5)[:, None], objects.sizes[:, ::-1], objects.sizes)
            for row in np.flatnonzero(
                (expected != sizes).any(axis=1) & ~np.isnan(expected).any(axis=1)
            ).tolist():
                self._contradict(
                    samples, row, f"its boxes are for {_pixels(expected[row])}", int(turns[row])
                )
        rows = np.repeat(np.arange(len(turns)), objects.counts)
        boxes = (
            objects.boxes
            if not self.stored
            else displayed_boxes(turns[rows], objects.boxes, sizes[rows])
        )
        image = sizes[rows][:, [1, 0, 1, 0]]
        outside = ((boxes[:, :2] >= image[:, :2]) | (boxes[:, 2:] < 0)).any(axis=1)
        for row in np.unique(rows[outside]).tolist():
            box = boxes[outside & (rows == row)][0].tolist()
            self._contradict(
                samples,
                row,
                f"its box {box} (left, top, right, bottom) is outside",
                int(turns[row]),
            )
        good = ~np.isin(rows, list(bad))
        boxes, labels, rows = boxes[good], objects.labels[good], rows[good]
        # parts outside of the image do not count as cut off
        boxes, kept = boxes_after(transforms, np.clip(boxes, 0, image[good]), rows)
        write_boxes(boxes, labels[kept], rows[kept], out)

    def _contradict(self, samples: LocatedSamples, row: int, what: str, turn: int) -> None:
        """Boxes that are not of this image make its sample bad, unless it is bad already."""
        id, size = int(samples.ids[row]), samples.image_sizes[row]
        hint = (
            f"EXIF orientation {turn} done; was it annotated as displayed?"
            if self.stored
            else _STORED
        )
        detail = f"{what}, the image has {_pixels(size)}; {hint}"
        samples.bad.setdefault(row, Failure(id, self.source.uri(id), "decode", "corrupt", detail))

    def _fill_masks(
        self, samples: LocatedSamples, turns: np.ndarray, transforms: list[Stage], out: np.ndarray
    ) -> None:
        ids, sizes, bad = samples.ids, samples.image_sizes, samples.bad
        rows = [row for row in range(len(ids)) if row not in bad]
        encoded_masks = self.source.masks(ids[rows].tolist()) if rows else None
        for row, encoded in zip(rows, encoded_masks or (), strict=True):
            if encoded is None:
                continue
            id, turn = int(ids[row]), int(turns[row])
            height, width = sizes[row].tolist() if turn < 5 else sizes[row, ::-1].tolist()
            with named(partial(self._mask_name, id)):
                mask = (
                    encoded
                    if isinstance(encoded, Failure)
                    else mask_pixels(encoded, (height, width))
                )
            if isinstance(mask, np.ndarray):
                mask = np.ascontiguousarray(displayed(turn, mask))
                out[row] = mask_after(transforms, row, mask, _UNKNOWN)
            elif isinstance(mask, Failure):
                bad[row] = mask
            else:
                bad[row] = Failure(id, self.source.uri(id), "decode", mask.reason, mask.detail)

    def _mask_name(self, id: int) -> str:
        return f"the mask of {self.source.uri(id)}"

    def mix(
        self, samples: Annotations, members: np.ndarray, plan: MixPlan, out: Annotations
    ) -> None:
        """Combine annotations as images are combined; `members` are rows, int64 (n, group)."""
        if samples.masks is not None and out.masks is not None:
            mix(samples.masks[..., None], members, plan, out.masks[..., None])
        if samples.objects is not None and out.objects is not None:
            _mix_boxes(samples.objects, members, plan, self.size, out.objects)


def annotator(source: Any, program: Program) -> Annotator:
    """Annotator of any source; SpecError for ops that boxes and masks cannot follow."""
    source = Optionals(source)
    max_boxes, has_masks = source.most, source.masks([]) is not None
    present = {"boxes": max_boxes > 0, "box_labels": max_boxes > 0, "masks": has_masks}
    _check_functions(program, source, present)
    if not max_boxes and not has_masks:
        return Annotator(source, program, 0, False, 1)
    if program.views:
        raise SpecError(
            "boxes and masks belong to one image, got an op that makes several views of each; leave"
            " it out, or use the source without objects"
        )
    members = 1
    for op in [] if program.mix is None else getattr(program.mix.op, "ops", (program.mix.op,)):
        name = type(op).__name__
        if max_boxes and name == "CutMix":
            instead = "Mosaic()" if has_masks else "Mosaic() or MixUp()"
            raise SpecError(f"CutMix would cover objects whose boxes remain; use {instead} instead")
        if has_masks and name == "MixUp":
            instead = "Mosaic(), which pastes" if max_boxes else "CutMix() or Mosaic(), which paste"
            raise SpecError(
                f"MixUp gives a pixel two classes, and masks hold one; use {instead} masks as"
                " images are pasted"
            )
        members = max(members, op.group)
    return Annotator(source, program, max_boxes, has_masks, members, frame_of(source) == "stored")


def _check_functions(program: Program, source: Optionals, present: dict[str, bool]) -> None:
    """Refuse functions that take what the source lacks, or do not take what they would move."""
    for part in (program, *program.others):
        of_image = present if part.image == program.image else dict.fromkeys(present, False)
        for link in part.chain:
            for op in (op for layer in link.layers for op in layer.ops if isinstance(op, Function)):
                _check_function(op, link.spec.size != link.input_spec.size, source, of_image)


def _check_function(
    op: Function, resizes: bool, source: Optionals, present: dict[str, bool]
) -> None:
    names = {"label", *source.columns(np.empty(0, np.int64))} if op.fields else set()
    names |= {name for name, is_present in present.items() if is_present}
    if unknown := [name for name in op.fields if name not in names]:
        raise SpecError(
            f"{op!r} takes {', '.join(unknown)}, the source has {', '.join(sorted(names))}"
        )
    for name in ("boxes", "masks") if resizes else ():
        if present[name] and name not in op.fields:
            raise SpecError(
                f"{op!r} changes the size of images, and {name} would stay as they are; add"
                f" {name} to its fields and return them"
            )


def clear(out: Annotations, rows: Any = slice(None)) -> None:
    """Reset these rows to samples without objects."""
    if out.objects is not None:
        out.objects.boxes[rows], out.objects.labels[rows], out.objects.counts[rows] = 0, -1, 0
    if out.masks is not None:
        out.masks[rows] = _UNKNOWN


def write_boxes(boxes: np.ndarray, labels: np.ndarray, rows: np.ndarray, out: Boxes) -> None:
    """Write boxes into their rows, which ascend; the largest are kept if there are too many."""
    limit = out.labels.shape[1]
    counts = np.bincount(rows, minlength=len(out))
    if counts.max(initial=0) > limit:
        area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
        order = np.lexsort((-area, rows))  # stable: of boxes of equal size the first
        kept = np.sort(order[_ranks(counts) < limit])
        boxes, labels, rows, counts = (
            boxes[kept],
            labels[kept],
            rows[kept],
            np.minimum(counts, limit),
        )
    columns = _ranks(counts)
    out.boxes[rows, columns], out.labels[rows, columns], out.counts[:] = boxes, labels, counts


def _pixels(size: np.ndarray) -> str:
    return f"{size[0]:g}x{size[1]:g} pixels (height x width)"


def _ranks(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... within every row."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _mix_boxes(
    samples: Boxes, members: np.ndarray, plan: MixPlan, size: tuple[int, int], out: Boxes
) -> None:
    """Visible boxes of all members; those of a mosaic are cut at their tiles."""
    numbers, parts = np.arange(samples.labels.shape[1]), []
    for k in range(members.shape[1]):
        visible = (plan.how == MOSAIC) | (plan.how == BLEND if k == 1 else k == 0)
        member = members[:, k]
        rows, columns = np.nonzero(visible[:, None] & (numbers < samples.counts[member][:, None]))
        boxes, kept = boxes_after(
            [_quarter(plan, k, size)], samples.boxes[member[rows], columns], rows
        )
        parts.append((boxes, samples.labels[member[rows], columns][kept], rows[kept]))
    boxes, labels, rows = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(rows, kind="stable")
    clear(Annotations(out))
    write_boxes(boxes[order], labels[order], rows[order], out)


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
