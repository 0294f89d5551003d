"""Objects of all images in one array; a million small arrays would take a gigabyte."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.printable import printable
from fastfeed.sources.annotations.keypoints import keypoint_arrays
from fastfeed.sources.annotations.shapes import ShapeLists, shape_lists, wrong_sizes
from fastfeed.sources.base import Instances

# what the four numbers are -> columns of left and top, or of the center; columns of right and
# bottom, or of width and height; and the share of width and height that is left of the first
FORMATS: dict[str, tuple[list[int], list[int], float | None]] = {
    "xyxy": ([0, 1], [2, 3], None),
    "yxyx": ([1, 0], [3, 2], None),
    "xywh": ([0, 1], [2, 3], 0),
    "yxhw": ([1, 0], [3, 2], 0),
    "cxcywh": ([0, 1], [2, 3], 0.5),
}

ROTATED = "cxcywhr"  # five numbers, whose corners become keypoints

Where = Callable[[int], str]  # sample -> its name, for messages


@dataclass(frozen=True, slots=True, eq=False)
class BoxLists:
    """Boxes, keypoints and outlines of n images, m objects in all."""

    # float32 (m, 4): left, top, right, bottom, pixels, or shares of the image's sides
    boxes: np.ndarray
    labels: np.ndarray  # int32 (m,)
    ends: np.ndarray  # int64 (n + 1,): image i has the boxes [ends[i], ends[i + 1])
    # float32 (n, 2): height, width of the annotated images; NaN where not known
    sizes: np.ndarray | None = None
    keypoints: np.ndarray | None = None  # float32 (m, k, 3): x, y, visibility
    shapes: ShapeLists | None = None

    @classmethod
    def of(
        cls,
        boxes: Sequence[Any] | None,
        labels: Sequence[Any] | None,
        format: str,
        classes: int,
        where: Where,
        sizes: np.ndarray | None = None,
        keypoints: Sequence[Any] | None = None,
        normalized: bool = False,
        instance_masks: Sequence[Any] | None = None,
    ) -> BoxLists:
        """Objects from arrays (k, 4) of boxes, (k,) of labels and (k, points, 3) per image.

        Without boxes, these are around instance masks, or all 0. ConfigError names the image;
        `classes` 0: any label >= 0.
        """
        points = None if keypoints is None else keypoint_arrays(keypoints, where)
        counts = None
        shapes = None
        if instance_masks is not None:
            counts, shapes = shape_lists(instance_masks, where)
        if boxes is not None:
            shape = (5,) if format == ROTATED else (4,)
            arrays = [_array(values, shape, i, where, "boxes") for i, values in enumerate(boxes)]
        elif counts is not None:
            arrays = [np.zeros((count, 4)) for count in counts]
        else:
            arrays = [np.zeros((len(array), 4)) for array in points or ()]
        if points is not None:
            _check_counts("keypoints", [len(array) for array in points], arrays, where)
        if counts is not None:
            _check_counts("instance masks", counts, arrays, where)
        ends = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        flat = np.concatenate([np.empty((0, arrays[0].shape[1] if arrays else 4)), *arrays])
        flat_points = np.concatenate(points) if points else None
        if format == ROTATED:
            flat_points = _corners(
                flat, lambda k: f"box {k - ends[_image(ends, k)]} of {where(_image(ends, k))}"
            )
            places = flat_points[..., :2]
            flat = np.concatenate([places.min(axis=1), places.max(axis=1)], axis=1)
            format = "xyxy"
        if boxes is None and shapes is not None:
            flat = shapes.bounds(normalized)
            format = "xyxy"
        if labels is None:
            flat_labels = np.zeros(len(flat), np.int64)
        else:
            label_arrays = [
                _array(values, (), i, where, "labels") for i, values in enumerate(labels)
            ]
            _check_counts("labels", [len(array) for array in label_arrays], arrays, where)
            flat_labels = np.concatenate([np.empty(0, np.int64), *label_arrays])
        kind = "box"
        if boxes is None:
            kind = "keypoints" if shapes is None else "instance mask"
        return cls.flat(
            flat,
            flat_labels,
            ends,
            format,
            classes,
            lambda i, k: f"{kind} {k} of {where(i)}",
            sizes,
            flat_points,
            normalized,
            shapes,
        )

    @classmethod
    def flat(
        cls,
        boxes: np.ndarray,
        labels: np.ndarray,
        ends: np.ndarray,
        format: str,
        classes: int,
        where: Callable[[int, int], str],  # (image, number of its box)
        # (n, 2): height, width of the images, where that is known; NaN where not
        sizes: (np.ndarray | None) = None,
        keypoints: np.ndarray | None = None,  # (m, k, 3)
        normalized: bool = False,  # shares of the image's sides, not pixels
        shapes: ShapeLists | None = None,
    ) -> BoxLists:
        """Build from one array, and check finiteness, order of edges, labels and overlap."""
        first, last, before = FORMATS[format]
        corners = np.empty((len(boxes), 4))
        with np.errstate(over="ignore", invalid="ignore"):
            corners[:, :2] = boxes[:, first]
            corners[:, 2:] = boxes[:, last]
            if before is not None:
                corners[:, :2] -= before * corners[:, 2:]
                corners[:, 2:] += corners[:, :2]
            corners = corners.astype(np.float32)  # an edge at 60,000 pixels is right to 1/256

        def refuse(wrong: Any, message: str) -> None:
            if wrong.any():
                at = int(wrong.argmax())
                image = _image(ends, at)
                box = where(image, at - int(ends[image]))
                raise ConfigError(
                    f"Objects: {box} {message.format(box=boxes[at].tolist(), label=labels[at])}",
                    field="boxes",
                )

        if before is not None:
            sides = "its width or height is negative"
        else:
            sides = "its right or bottom edge is before the other"
        refuse(~np.isfinite(corners).all(axis=1), "must be finite numbers, got {box}")
        order = f"got {{box}} as {format}: {sides}; format is one of {', '.join(FORMATS)}"
        refuse((corners[:, 2:] < corners[:, :2]).any(axis=1), order)
        checked = np.ones((len(ends) - 1, 2)) if normalized else sizes
        if checked is not None:
            each = np.repeat(checked, np.diff(ends), axis=0)[:, ::-1]
            outside = ((corners[:, :2] >= each) | (corners[:, 2:] < 0)).any(axis=1)
            at = int(outside.argmax()) if len(each) else 0
            shape = f"{each[at, 0]:g} wide and {each[at, 1]:g} high" if len(each) else ""
            refuse(
                outside,
                f"is outside of its image, {shape}: {{box}} as {format}; leave it out, or fix it",
            )
        refuse(labels < 0, "must have a label >= 0, got {label}; leave out what is not an object")
        if classes:
            refuse(labels >= classes, f"has label {{label}}, but there are {classes} classes")
        refuse(labels > np.iinfo(np.int32).max, "must have a label below 2**31, got {label}")
        if keypoints is not None:
            visibility = keypoints[..., 2]
            refuse(
                ~np.isin(visibility, (0, 1, 2)).all(axis=1),
                "has a keypoint whose visibility is not 0 (not labeled), 1 (hidden) or 2 (visible)",
            )
            unknown = ~np.isfinite(keypoints).all(axis=2)
            refuse(
                ((visibility > 0) & unknown).any(axis=1),
                "has a keypoint without a place; mark it by visibility 0",
            )
            keypoints = np.nan_to_num(keypoints.astype(np.float32), posinf=0, neginf=0)
        if shapes is not None and sizes is not None:
            outlines = map(shapes.shape, range(len(boxes)))
            wrong = wrong_sizes(outlines, np.repeat(sizes, np.diff(ends), axis=0))
            refuse(wrong, "has a mask of another size than its image; pass one of the same size")
        return cls(
            corners,
            labels.astype(np.int32),
            ends,
            None if sizes is None else sizes.astype(np.float32),
            keypoints,
            shapes,
        )

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def most(self) -> int:
        """The largest number in one image."""
        return int(np.diff(self.ends).max(initial=0))

    def take(self, ids: np.ndarray) -> Instances:
        """Objects of the given images."""
        ids = np.asarray(ids, np.int64)
        counts = self.ends[ids + 1] - self.ends[ids]
        rows = np.repeat(self.ends[ids] - np.cumsum(counts) + counts, counts) + np.arange(
            counts.sum()
        )
        sizes = None if self.sizes is None else self.sizes[ids].astype(np.float64)
        points = None if self.keypoints is None else self.keypoints[rows].astype(np.float64)
        boxes = self.boxes[rows].astype(np.float64)
        labels = self.labels[rows].astype(np.int64)
        shapes = None if self.shapes is None else self.shapes.take(rows)
        return Instances(boxes, labels, counts, sizes, points, shapes)

    def content(self, first: int, last: int) -> tuple[Any, ...]:
        """Buffers that say all of images [first, last)."""
        own = slice(int(self.ends[first]), int(self.ends[last]))
        counts = np.diff(self.ends[first : last + 1])
        arrays = [self.boxes[own], self.labels[own], counts]
        if self.keypoints is not None:
            arrays.append(self.keypoints[own])
        shapes = () if self.shapes is None else self.shapes.content(own.start, own.stop)
        return (*(np.ascontiguousarray(array).data for array in arrays), *shapes)


def _image(ends: np.ndarray, k: int) -> int:
    """The image that object k is in."""
    return int(np.searchsorted(ends, k, side="right")) - 1


def _corners(boxes: np.ndarray, name: Callable[[int], str]) -> np.ndarray:
    """Corners of rotated boxes (m, 5), clockwise from the upper left one: float64 (m, 4, 3)."""
    for k in np.flatnonzero((boxes[:, 2:4] < 0).any(axis=1)).tolist():
        raise ConfigError(
            f"Objects: {name(k)} got {boxes[k].tolist()} as {ROTATED}: its width or height is"
            " negative",
            field="boxes",
        )
    angles = np.deg2rad(boxes[:, 4:])
    half = boxes[:, None, 2:4] / 2 * [[-1, -1], [1, -1], [1, 1], [-1, 1]]
    x = half[..., 0]
    y = half[..., 1]
    with np.errstate(invalid="ignore"):
        across = boxes[:, :1] + x * np.cos(angles) + y * np.sin(angles)
        down = boxes[:, 1:2] - x * np.sin(angles) + y * np.cos(angles)
    return np.stack([across, down, np.full_like(across, 2)], axis=2)


def _array(values: Any, shape: tuple[int, ...], i: int, where: Where, name: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:  # rows of several lengths
        array = np.empty(0, object)
    kinds = "iuf" if shape else "iu"
    if not array.size and array.dtype != object:
        return np.empty((0, *shape), np.float64 if shape else np.int64)
    if array.ndim != 1 + len(shape) or array.shape[1:] != shape or array.dtype.kind not in kinds:
        expected = f"numbers of shape (k, {shape[0]})" if shape else "integers of shape (k,)"
        raise ConfigError(
            f"Objects: {name} of {where(i)} must be {expected}, got"
            f" {array.dtype}{list(array.shape)}; an image without objects has an empty list",
            field=name,
        )
    return array.astype(np.float64 if shape else np.int64, copy=False)


def _check_counts(name: str, counts: list[int], boxes: list[np.ndarray], where: Where) -> None:
    field = name.replace(" ", "_")
    if len(counts) != len(boxes):
        raise ConfigError(
            f"Objects: {name} must be one array per sample, got {len(counts)} for {len(boxes)}",
            field=field,
        )
    for i, (count, own) in enumerate(zip(counts, boxes, strict=True)):
        if count != len(own):
            raise ConfigError(
                f"Objects: {where(i)} has {len(own)} boxes and {count} {name}", field=field
            )


def checked_sizes(sizes: Sequence[Any], samples: int, known: np.ndarray | None) -> np.ndarray:
    """Sizes of annotated images: float64 (n, 2)."""
    try:
        array = np.asarray(sizes, np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != (samples, 2) or (array <= 0).any():
        raise ConfigError(
            f"Objects: sizes must be one (height, width) above 0 per sample, {samples} of them, got"
            f" {printable(repr(sizes))}",
            field="sizes",
        )
    if known is not None and (array != known).any():
        i = int((array != known).any(axis=1).argmax())
        raise ConfigError(
            f"Objects: boxes of sample {i} are for {array[i, 0]:g}x{array[i, 1]:g} pixels (height x"
            f" width), the image has {known[i, 0]:g}x{known[i, 1]:g}; pass the size of the image",
            field="boxes",
        )
    return array


def check_format(format: str, boxes: Any, keypoints: Any, normalized: bool) -> None:
    """ConfigError for a format of boxes that does not exist or does not fit the rest."""
    if format not in (*FORMATS, ROTATED):
        known_formats = ", ".join((*FORMATS, ROTATED))
        raise ConfigError.of("Objects: format", f"one of {known_formats}", format)
    if format == ROTATED and (boxes is None or keypoints is not None or normalized):
        raise ConfigError(
            f"Objects: format={ROTATED!r} is of boxes in pixels, whose corners are the"
            " keypoints; pass boxes, and neither keypoints nor normalized=True",
            field="format",
        )


def check_presence(has_objects: bool, masks: Any, labels: Any) -> None:
    """ConfigError without objects and masks, and for labels of no objects."""
    if not has_objects and masks is None:
        raise ConfigError(
            "Objects needs boxes, keypoints or masks, got none of them; without them use the"
            " source itself",
            field="boxes",
        )
    if not has_objects and labels is not None:
        raise ConfigError(
            "Objects: labels are of boxes and keypoints, got labels without them; pass boxes,"
            " or leave labels out",
            field="labels",
        )


def check_lengths(samples: int, **options: Any) -> None:
    """ConfigError for an option that is not a list of one value per sample; None is none."""
    for option, values in options.items():
        if isinstance(values, (str, bytes, os.PathLike)):
            raise ConfigError(
                f"Objects: {option} must be a list, one per sample, got {values!r}",
                field=option,
            )
        if values is not None and len(values) != samples:
            none = "None" if option == "masks" else "an empty list"
            raise ConfigError(
                f"Objects: {option} must be one per sample, got {len(values)} for {samples}"
                f" samples; a sample without has {none}",
                field=option,
            )
