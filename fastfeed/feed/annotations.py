"""Boxes and masks of a batch: from the source, through what moved the pixels, into arrays of one shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.backends.cpu.masks import mask_after
from fastfeed.backends.cpu.mixing import mix
from fastfeed.decode.base import Header
from fastfeed.decode.masks import mask_pixels
from fastfeed.errors import SpecError
from fastfeed.faults import Failure
from fastfeed.ops.mix_plan import BLEND, MOSAIC, Mixed
from fastfeed.ops.move_boxes import Stage, boxes_after, stages
from fastfeed.ops.program.program import Program, Work
from fastfeed.runtime.batch import Boxes
from fastfeed.sources.base import says_where

__all__ = ["Annotations", "Annotator", "annotator", "clear"]

_UNKNOWN = 255  # class of a pixel: not known, or none of the image's


@dataclass(frozen=True, slots=True, eq=False)
class Annotations:
    """Boxes and masks of n samples, filled in place."""

    objects: Boxes | None = None
    masks: np.ndarray | None = None  # uint8 (n, height, width)

    def __getitem__(self, rows: Any) -> Annotations:
        objects, masks = self.objects, self.masks
        return Annotations(None if objects is None else objects[rows], None if masks is None else masks[rows])


@dataclass(frozen=True, slots=True)
class Annotator:
    """What a batch will hold of them, and what fills it: row i depends on sample i alone.

    Of a source that says nothing of objects all are empty.
    """

    source: Any  # Source and Located
    program: Program
    most: int  # places for boxes of one sample before mixing; 0: there are no boxes
    masked: bool
    members: int  # samples whose boxes may come together in one

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of images as boxes and masks see them."""
        height, width = self.program.done.size
        return height or 0, width or 0

    @property
    def specs(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype of one sample's, by the names that trainers are given."""
        found: dict[str, tuple[tuple[int, ...], str]] = {}
        if self.most:
            most = self.most * self.members
            found |= {"boxes": ((most, 4), "float32"), "labels": ((most,), "int64")}
        return found | ({"masks": (self.size, "uint8")} if self.masked else {})

    def none(self, n: int, mixed: bool = False) -> Annotations:
        """Room for n samples, to be filled; `mixed`: for what mixing makes of them."""
        most = self.most * (self.members if mixed else 1)
        masks = np.empty((n, *self.size), np.uint8) if self.masked else None
        return Annotations(Boxes.none(n, most) if self.most else None, masks)

    def mark(
        self,
        ids: np.ndarray,
        headers: Sequence[Header],
        work: Work,
        bad: dict[int, Failure | None],
        out: Annotations,
    ) -> None:
        """Fill `out` for these samples, except for bad ones; a bad mask makes one more of them."""
        if out.objects is None and out.masks is None:
            return
        clear(out)
        sizes = np.array([(h.height, h.width) for h in headers], np.int64).reshape(-1, 2)
        moves = stages(self.program, work)
        if out.masks is not None:
            self._mask(ids, sizes, moves, bad, out.masks)
        if out.objects is None:
            return
        found = self.source.objects(ids)
        rows = np.repeat(np.arange(len(ids)), found.counts)
        there = ~np.isin(rows, list(bad))
        boxes, labels, rows = found.boxes[there], found.labels[there], rows[there]
        whole = sizes[rows][:, [1, 0, 1, 0]]  # what lies outside of the image does not count as cut off
        boxes, kept = boxes_after(moves, np.clip(boxes, 0, whole), rows)
        _place(boxes, labels[kept], rows[kept], out.objects)

    def _mask(
        self, ids: np.ndarray, sizes: np.ndarray, moves: list[Stage], bad: dict[int, Failure | None], out: np.ndarray
    ) -> None:
        rows = [row for row in range(len(ids)) if row not in bad]
        found = self.source.masks(ids[rows].tolist()) if rows else []
        for row, one in zip(rows, found, strict=True):
            if one is None:
                continue
            id, (height, width) = int(ids[row]), sizes[row].tolist()
            mask = one if isinstance(one, Failure) else mask_pixels(one, (height, width))
            if isinstance(mask, np.ndarray):
                out[row] = mask_after(moves, row, mask, _UNKNOWN)
            elif isinstance(mask, Failure):
                bad[row] = mask
            else:
                bad[row] = Failure(id, self.source.uri(id), "decode", mask.reason, mask.detail)

    def mix(self, made: Annotations, members: np.ndarray, mixed: Mixed, out: Annotations) -> None:
        """Put together as images are: `members` (int64 (n, group)) are rows of `made`, own first."""
        if made.masks is not None and out.masks is not None:
            mix(made.masks[..., None], members, mixed, out.masks[..., None])
        if made.objects is not None and out.objects is not None:
            _together(made.objects, members, mixed, self.size, out.objects)


def annotator(source: Any, program: Program) -> Annotator:
    """For any source. SpecError where ops cannot keep true what it says of where things are."""
    if not says_where(source):
        return Annotator(source, program, 0, False, 1)
    most, masked = source.most, source.masks([]) is not None
    if program.views or program.others:
        raise SpecError(
            "boxes and masks belong to one image, got an op that makes several views of each; leave it out, or use the "
            "source without objects"
        )
    members = 1
    for op in [] if program.mix is None else getattr(program.mix.op, "ops", (program.mix.op,)):
        name = type(op).__name__
        if most and name == "CutMix":
            instead = "Mosaic()" if masked else "Mosaic() or MixUp()"
            raise SpecError(f"CutMix would hide parts of objects that boxes still name; use {instead} instead")
        if masked and name == "MixUp":
            instead = "Mosaic(), which pastes" if most else "CutMix() or Mosaic(), which paste"
            raise SpecError(
                f"MixUp gives a pixel two classes, and masks hold one; use {instead} masks as images are pasted"
            )
        members = max(members, op.group)
    return Annotator(source, program, most, masked, members)


def clear(out: Annotations, rows: Any = slice(None)) -> None:
    """Nothing in these rows."""
    if out.objects is not None:
        out.objects.boxes[rows], out.objects.labels[rows], out.objects.counts[rows] = 0, -1, 0
    if out.masks is not None:
        out.masks[rows] = _UNKNOWN


def _place(boxes: np.ndarray, labels: np.ndarray, rows: np.ndarray, out: Boxes) -> None:
    """Lay boxes into their rows, which ascend; of more than there are places for, the largest, in the same order."""
    most = out.labels.shape[1]
    counts = np.bincount(rows, minlength=len(out))
    if counts.max(initial=0) > most:
        area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
        order = np.lexsort((-area, rows))  # stable: of equal ones the first
        kept = np.sort(order[_ranks(counts) < most])
        boxes, labels, rows, counts = boxes[kept], labels[kept], rows[kept], np.minimum(counts, most)
    places = _ranks(counts)
    out.boxes[rows, places], out.labels[rows, places], out.counts[:] = boxes, labels, counts


def _ranks(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... within every row."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _together(made: Boxes, members: np.ndarray, mixed: Mixed, size: tuple[int, int], out: Boxes) -> None:
    """Boxes of all members that are seen: blended ones as they are, those of a mosaic cut off in their quarters."""
    places, found = np.arange(made.labels.shape[1]), []
    for k in range(members.shape[1]):
        taken = (mixed.how == MOSAIC) | (mixed.how == BLEND if k == 1 else k == 0)
        who = members[:, k]
        rows, at = np.nonzero(taken[:, None] & (places < made.counts[who][:, None]))
        boxes, kept = boxes_after([_quarter(mixed, k, size)], made.boxes[who[rows], at], rows)
        found.append((boxes, made.labels[who[rows], at][kept], rows[kept]))
    boxes, labels, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(rows, kind="stable")
    clear(Annotations(out))
    _place(boxes[order], labels[order], rows[order], out)


def _quarter(mixed: Mixed, k: int, size: tuple[int, int]) -> Stage:
    """Where member k of each sample goes: to its side of a mosaic's center, else nowhere."""
    n, whole = len(mixed.how), np.array(size)
    tiled, center, second = (mixed.how == MOSAIC)[:, None], mixed.box[:, :2], np.array(divmod(k, 2), bool)
    seen = np.where(tiled, np.where(second, whole - center, center), whole)  # of its height and width
    first = np.where(tiled & ~second, whole - center, 0)
    move = np.where(tiled, np.where(second, center, center - whole), 0)
    forward, back = np.tile(np.eye(3), (n, 1, 1)), np.tile(np.eye(3), (n, 1, 1))
    forward[:, :2, 2], back[:, :2, 2] = move[:, ::-1], -move[:, ::-1]  # x goes with columns
    limits = np.concatenate([first, seen], axis=1).astype(np.float64)
    return Stage(forward, back, limits, np.tile(whole.astype(np.int64), (n, 1)))
