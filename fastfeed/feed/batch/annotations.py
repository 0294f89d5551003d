"""Objects and masks of a batch, moved with the pixels and padded to one number of objects."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from fastfeed.backends.cpu.masks import mask_after
from fastfeed.backends.cpu.mixing import mix
from fastfeed.decode.masks import mask_pixels
from fastfeed.decode.orientation import displayed
from fastfeed.decode.pillow_warnings import named
from fastfeed.errors import ConfigError, SpecError
from fastfeed.faults import Failure
from fastfeed.feed.batch.object_rows import ObjectRows, clear_objects, mix_objects
from fastfeed.ops.function import Function
from fastfeed.ops.geometry import RandomFlip
from fastfeed.ops.mix import MixPlan
from fastfeed.ops.move_boxes import Stage, combine_stages, fill_valid, stages
from fastfeed.ops.program.program import Program, Work
from fastfeed.ops.program.window import ObjectBoxes
from fastfeed.runtime.batch import Boxes
from fastfeed.sources.annotations.shapes import wrong_sizes
from fastfeed.sources.base import Optionals, annotation_frame

# shape and dtype for one sample, by name of the field
TRANSFORMS = {"transform": ((3, 3), "float32"), "original_size": ((2,), "int64")}
_UNKNOWN = 255  # class of a pixel that is unknown or outside of the image
_STORED = 'if it was annotated without EXIF orientation, pass Objects(frame="stored")'


def check_transforms(program: Program, names: Container[str], owner: str) -> None:
    """ConfigError if other values have the name of a field that says what was done to an image."""
    for name in field_specs(program):
        if name in names:
            maker = "to_original=True" if name in TRANSFORMS else "LargestSize()"
            raise ConfigError(
                f"{maker} makes the field {name!r}, and {owner} has a column of this"
                " name; name the column otherwise, or leave it out"
            )


def field_specs(program: Program) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype for one sample of fields that say what was done to an image, by name."""
    specs = dict(TRANSFORMS) if program.transforms else {}
    if program.valid:
        height, width = program.augmented.size
        specs["valid"] = (height or 0, width or 0), "bool"
    return specs


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
    """Objects and masks of n samples, and what was done to their images."""

    objects: Boxes | None = None
    masks: np.ndarray | None = None  # uint8 (n, height, width)
    # `transform`, `original_size` and `valid`, if they are asked for
    transforms: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __getitem__(self, rows: Any) -> Annotations:
        objects = self.objects
        masks = self.masks
        if self.is_empty:
            return self
        return Annotations(
            None if objects is None else objects[rows],
            None if masks is None else masks[rows],
            {name: array[rows] for name, array in self.transforms.items()},
        )

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to fill."""
        return self.objects is None and self.masks is None and not self.transforms

    def put(self, rows: Any, source: Annotations) -> None:
        """Set these rows to annotations that were made separately."""
        if self.masks is not None:
            self.masks[rows] = source.masks
        if self.objects is not None and source.objects is not None:
            for name in Boxes.__slots__:
                if (array := getattr(self.objects, name)) is not None:
                    array[rows] = getattr(source.objects, name)
        for name, array in self.transforms.items():
            array[rows] = source.transforms[name]


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
            if keypoints := self.source.object_spec.keypoints:
                specs["keypoints"] = (boxes, keypoints, 3), "float32"
            if self.source.object_spec.instance_masks:
                specs["instance_masks"] = (boxes, *self.size), "uint8"
            if room := self._polygon_room(self.members):
                specs["polygons"] = (room[1], 2), "float32"
                specs["polygon_rings"] = (room[0], 3), "int64"
        return specs | ({"masks": (self.size, "uint8")} if self.has_masks else {})

    def _polygon_room(self, members: int) -> tuple[int, int] | None:
        """Room for rings and points of an image mixed of `members`; None: no polygons."""
        room = self.source.object_spec.polygons
        return None if room is None else (room[0] * members, room[1] * members)

    def empty(self, n: int, mixed: bool = False) -> Annotations:
        """Arrays for n samples, to be filled; `mixed`: for samples after mixing."""
        members = self.members if mixed else 1
        boxes = self.max_boxes * members
        masks = np.empty((n, *self.size), np.uint8) if self.has_masks else None
        spec = self.source.object_spec
        mask_size = self.size if spec.instance_masks else None
        objects = None
        if boxes:
            room = self._polygon_room(members)
            objects = Boxes.none(n, boxes, spec.keypoints, mask_size, room)
        specs = field_specs(self.program).items()
        transforms = {name: np.zeros((n, *shape), dtype) for name, (shape, dtype) in specs}
        return Annotations(objects, masks, transforms)

    def before(self, annotations: Annotations) -> Annotations:
        """Annotations as functions get them, before a change of size."""
        masks = annotations.masks
        objects = annotations.objects
        fields = {name for op in self.program.functions for name in op.fields}
        if not fields.intersection(("masks", "instance_masks")):
            return annotations
        height, width = self.program.chain[-1].input_spec.size
        size = (height or 0, width or 0)
        if size == self.size:
            return annotations
        if masks is not None:
            masks = np.empty((len(masks), *size), np.uint8)
        if objects is not None and objects.instance_masks is not None:
            shape = (*objects.labels.shape, *size)
            objects = replace(objects, instance_masks=np.zeros(shape, np.uint8))
        return replace(annotations, objects=objects, masks=masks)

    def fill(self, samples: LocatedSamples, work: Work, out: Annotations) -> None:
        """Fill `out`, and mark samples as bad whose mask or boxes do not fit the image."""
        if out.is_empty:
            return
        clear(out)
        transforms = stages(self.program, work)
        if self.program.transforms:
            out.transforms["transform"][:] = combine_stages(transforms)
            out.transforms["original_size"][:] = samples.image_sizes
        if self.program.valid:
            fill_valid(transforms, out.transforms["valid"])
        turns = self._turns(samples)
        if out.objects is not None:
            objects = self._objects(samples, turns)
            left = objects.after(transforms, self.source.object_spec)
            left.write(out.objects, transforms)
        if out.masks is not None:
            self._fill_masks(samples, turns, transforms, out.masks)

    def located(self, samples: LocatedSamples) -> ObjectBoxes:
        """Boxes in the pixels of the displayed images, before any op."""
        objects = self._objects(samples, self._turns(samples))
        return ObjectBoxes(objects.rows, objects.boxes)

    def _turns(self, samples: LocatedSamples) -> np.ndarray:
        """EXIF orientations that annotations have to follow: int64 (n,)."""
        return samples.orientations() if self.stored else np.ones(len(samples.ids), np.int64)

    def _objects(self, samples: LocatedSamples, turns: np.ndarray) -> ObjectRows:
        """Objects of samples that are good, in displayed pixels; others become bad."""
        sizes = samples.image_sizes
        found = self.source.objects(samples.ids)
        spec = self.source.object_spec
        assert found is not None
        if found.sizes is not None:
            expected = np.where((turns >= 5)[:, None], found.sizes[:, ::-1], found.sizes)
            for row in np.flatnonzero(
                (expected != sizes).any(axis=1) & ~np.isnan(expected).any(axis=1)
            ).tolist():
                self._contradict(
                    samples, row, f"its boxes are for {_pixels(expected[row])}", int(turns[row])
                )
        objects = ObjectRows.of(found)
        stored = np.where((turns >= 5)[:, None], sizes[:, ::-1], sizes)
        if objects.shapes is not None:
            of_each = stored[objects.rows].astype(np.float64)
            wrong = wrong_sizes(objects.shapes, of_each)
            for row in np.unique(objects.rows[wrong]).tolist():
                what = "the mask of an object has another size"
                self._contradict(samples, row, what, int(turns[row]))
        if spec.normalized:
            objects = objects.scaled(stored)
        if self.stored:
            objects = objects.displayed(turns, sizes, spec)
        boxes = objects.boxes
        image = sizes[objects.rows][:, [1, 0, 1, 0]]
        outside = ((boxes[:, :2] >= image[:, :2]) | (boxes[:, 2:] < 0)).any(axis=1)
        for row in np.unique(objects.rows[outside & spec.has_boxes]).tolist():
            box = boxes[outside & (objects.rows == row)][0].tolist()
            self._contradict(
                samples,
                row,
                f"its box {box} (left, top, right, bottom) is outside",
                int(turns[row]),
            )
        # parts outside of the image do not count as cut off
        objects = replace(objects, boxes=np.clip(boxes, 0, image))
        good = ~np.isin(objects.rows, list(samples.bad))
        return objects[good]

    def _contradict(self, samples: LocatedSamples, row: int, what: str, turn: int) -> None:
        """Mark a sample as bad whose boxes do not fit its image, unless it is bad already."""
        id = int(samples.ids[row])
        size = samples.image_sizes[row]
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
        ids = samples.ids
        sizes = samples.image_sizes
        bad = samples.bad
        rows = [row for row in range(len(ids)) if row not in bad]
        encoded_masks = self.source.masks(ids[rows].tolist()) if rows else None
        for row, encoded in zip(rows, encoded_masks or (), strict=True):
            if encoded is None:
                continue
            id = int(ids[row])
            turn = int(turns[row])
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
            spec = self.source.object_spec
            mix_objects(samples.objects, members, plan, self.size, spec, out.objects)


def annotator(source: Any, program: Program) -> Annotator:
    """Annotator of any source; SpecError for ops that boxes and masks cannot follow."""
    source = Optionals(source)
    max_boxes = source.most
    has_masks = source.masks([]) is not None
    spec = source.object_spec
    has_keypoints = max_boxes > 0 and spec.keypoints > 0
    has_outlines = max_boxes > 0 and spec.instance_masks
    present: dict[str, bool] = dict.fromkeys(("boxes", "box_labels"), max_boxes > 0)
    present |= {"keypoints": has_keypoints, "instance_masks": has_outlines, "masks": has_masks}
    present["polygons"] = max_boxes > 0 and spec.polygons is not None
    _check_functions(program, source, present)
    if (needs := program.needs_boxes) is not None and (not max_boxes or program.image):
        raise SpecError(
            f"{needs!r} needs boxes of objects in one image per sample, got a source without; pass"
            " ff.Objects(source, boxes), or leave it out"
        )
    if not max_boxes and not has_masks:
        return Annotator(source, program, 0, False, 1)
    if has_keypoints and spec.flip_pairs is None:
        _check_mirrors(program)
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
    return Annotator(
        source, program, max_boxes, has_masks, members, annotation_frame(source) == "stored"
    )


def _check_functions(program: Program, source: Optionals, present: dict[str, bool]) -> None:
    """Refuse functions that take what the source lacks, or do not take what they would move."""
    for part in (program, *program.others):
        of_image = present if part.image == program.image else dict.fromkeys(present, False)
        for link in part.chain:
            for op in (op for layer in link.layers for op in layer.ops):
                if isinstance(op, Function):
                    _check_function(op, link.spec.size != link.input_spec.size, source, of_image)
                elif hasattr(op, "bends") and any(of_image.values()):
                    places = ("boxes", "keypoints", "masks")
                    what = " and ".join(name for name in places if of_image[name])
                    raise SpecError(
                        f"{op!r} moves every pixel by its own amount, and {what} cannot follow;"
                        " leave it out, or give a mask as a second image of Together"
                    )


def _check_function(
    op: Function, resizes: bool, source: Optionals, present: dict[str, bool]
) -> None:
    names = {"label", *source.columns(np.empty(0, np.int64))} if op.fields else set()
    names |= {name for name, is_present in present.items() if is_present}
    if unknown := [name for name in op.fields if name not in names]:
        raise SpecError(
            f"{op!r} takes {', '.join(unknown)}, the source has {', '.join(sorted(names))}"
        )
    for name in ("keypoints", "instance_masks", "polygons"):
        if present[name] and "boxes" in op.fields and name not in op.fields:
            raise SpecError(
                f"{op!r} moves boxes, and {name} would stay as they are; add {name} to its fields"
                " and return them"
            )
    for name in ("boxes", "masks") if resizes else ():
        if present[name] and name not in op.fields:
            raise SpecError(
                f"{op!r} changes the size of images, and {name} would stay as they are; add"
                f" {name} to its fields and return them"
            )


def _check_mirrors(program: Program) -> None:
    """SpecError for an op that mirrors images, since there is no table of left and right."""
    for step in program.steps:
        if flip := _flip_in(step.op):
            raise SpecError(
                f"{flip!r} makes the left side of an image its right one, and keypoints have no"
                " table of left and right; pass flip_pairs=[(left, right), ...], or [] if no"
                " keypoint has a side"
            )


def _flip_in(op: Any) -> RandomFlip | None:
    """The first op that mirrors images, of this one and those that it is composed of."""
    if isinstance(op, RandomFlip):
        return op if op.p > 0 else None
    inside = [*getattr(op, "ops", ()), *([op.op] if hasattr(op, "op") else [])]
    return next(filter(None, map(_flip_in, inside)), None)


def clear(out: Annotations, rows: Any = slice(None)) -> None:
    """Reset these rows to samples without objects."""
    if out.objects is not None:
        clear_objects(out.objects, rows)
    if out.masks is not None:
        out.masks[rows] = _UNKNOWN
    for name, array in out.transforms.items():
        array[rows] = np.eye(3) if name == "transform" else 0


def _pixels(size: np.ndarray) -> str:
    return f"{size[0]:g}x{size[1]:g} pixels (height x width)"
