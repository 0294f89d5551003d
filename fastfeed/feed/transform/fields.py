"""The values that come with the items of one call: labels, objects, masks and columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.faults import Failure
from fastfeed.ops.function import ANNOTATIONS
from fastfeed.sources.annotations.boxes import BoxLists
from fastfeed.sources.annotations.keypoints import checked_pairs
from fastfeed.sources.annotations.masks import Masks, make_masks
from fastfeed.sources.base import Instances
from fastfeed.sources.column_arrays import as_array
from fastfeed.spec import PLAIN_OBJECTS, ObjectSpec
from fastfeed.storage.reads import Unread
from fastfeed.storage.storage import open_storage

Rows = np.ndarray | slice


class ItemFields:
    """Fields of n items, as a source of samples has them whose ids are rows."""

    object_classes = ()

    def __init__(
        self,
        fields: Mapping[str, Any],
        n: int,
        uri: Callable[[int], str],
        objects: ObjectSpec = PLAIN_OBJECTS,
    ) -> None:
        """Check the fields; objects: rules for them. ConfigError names the field that is wrong."""
        self.uri = uri
        self.object_spec = objects
        self._boxes: BoxLists | None = None
        self._masks: Masks | None = None
        self._columns: dict[str, np.ndarray] = {}
        if not isinstance(fields, Mapping):
            raise ConfigError.of("fields", "a mapping of names to values", fields)
        for name, values in fields.items():
            _check_length(name, values, n)
        others = {name: fields[name] for name in fields if name not in ("label", *ANNOTATIONS)}
        self._columns = {name: _column(values) for name, values in others.items()}
        self._label = _labels(fields["label"]) if "label" in fields else unlabeled(n)
        alone = not {"keypoints", "instance_masks", "polygons"}.isdisjoint(fields)
        if ("boxes" in fields) != ("box_labels" in fields) and not alone:
            raise ConfigError(
                "boxes and box_labels go together, got one of them; label every box", field="fields"
            )
        try:
            if "boxes" in fields or alone:
                self._boxes = self._objects(fields)
            if "masks" in fields:
                self._masks = make_masks(fields["masks"], uri, open_storage(None, None))
        except ConfigError as error:  # in words for the source Objects
            text = str(error).removeprefix("Objects: ")
            raise ConfigError(f"fields: {text}", field="fields") from None

    def _objects(self, fields: Mapping[str, Any]) -> BoxLists:
        drawn = [name for name in ("instance_masks", "polygons") if name in fields]
        if len(drawn) > 1:
            raise ConfigError(
                "instance_masks and polygons are both made of outlines, got both; pass one of them",
                field="fields",
            )
        names = ("boxes", "box_labels", "keypoints", *drawn)
        boxes, labels, points, *outlines = map(fields.get, names)
        lists = BoxLists.of(
            boxes,
            labels,
            "xyxy",
            0,
            self.uri,
            keypoints=points,
            instance_masks=outlines[0] if outlines else None,
        )
        room = None
        if lists.shapes is not None and "polygons" in fields:
            room = lists.shapes.polygon_room(lists.ends)
            if lists.shapes.heights.any():
                raise ConfigError(
                    "polygons must be lists of rings, got runs or pixels; pass these as"
                    " instance_masks",
                    field="fields",
                )
        k = 0 if lists.keypoints is None else lists.keypoints.shape[1]
        pairs = checked_pairs("flip_pairs", self.object_spec.flip_pairs, k) if k else None
        self.object_spec = self.object_spec._replace(
            keypoints=k,
            flip_pairs=pairs,
            has_boxes=boxes is not None or lists.shapes is not None,
            instance_masks="instance_masks" in fields,
            polygons=room,
        )
        return lists

    @property
    def has_annotations(self) -> bool:
        """True if there are objects or masks."""
        return self._boxes is not None or self._masks is not None

    @property
    def most(self) -> int:
        """Room for boxes per image."""
        return 0 if self._boxes is None else max(1, self._boxes.most)

    def label(self, rows: Rows) -> np.ndarray:
        """Labels of items, -1 for none."""
        return self._label[rows]

    def columns(self, rows: Rows) -> dict[str, np.ndarray]:
        """Other fields of items by name."""
        return {name: values[rows] for name, values in self._columns.items()}

    def values(self, rows: np.ndarray, names: Collection[str]) -> dict[str, np.ndarray]:
        """Labels and columns of items by name."""
        values = {"label": self._label} | self._columns
        return {name: values[name][rows] for name in names}

    def objects(self, rows: np.ndarray) -> Instances | None:
        """Boxes, keypoints and outlines of items."""
        return None if self._boxes is None else self._boxes.take(rows)

    def masks(self, rows: Sequence[int]) -> list[Any] | None:
        """Masks of items, not decoded yet."""
        if self._masks is None:
            return None
        masks = zip(rows, self._masks.read(rows), strict=True)
        return [self._mask(row, mask) for row, mask in masks]

    def _mask(self, row: int, mask: Any) -> Any:
        if not isinstance(mask, Unread):
            return mask
        detail = f"its mask: {mask.detail}" if mask.detail else "its mask"
        return Failure(row, self.uri(row), "read", mask.reason, detail)


def unlabeled(n: int) -> np.ndarray:
    """Labels of n items without any."""
    labels = np.empty(n, np.int64)
    labels.fill(-1)
    return labels


def _check_length(name: Any, values: Any, n: int) -> None:
    advice = "pass one value per item"
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        got = type(values).__name__
    elif len(values) != n:
        got = f"{len(values)} for {n} items"
    else:
        return
    raise ConfigError(f"fields[{name!r}] must be a list, got {got}; {advice}", field="fields")


def _column(values: Any) -> np.ndarray:
    """Numbers of one shape as an array, other values as objects."""
    try:
        column = np.asarray(values)
    except ValueError:  # of several shapes
        return as_array(list(values))
    return column if column.dtype.kind in "biuf" else as_array(list(values))


def _labels(values: Any) -> np.ndarray:
    """Labels as a source gives them: integers, floats of any shape, or texts."""
    try:
        labels = np.asarray(values)
    except ValueError:
        labels = np.empty(0, object)
    if labels.dtype.kind in "iu" and labels.ndim == 1:
        return labels.astype(np.int64)
    if labels.dtype.kind in "biuf":
        return labels.astype(np.float32)
    if labels.dtype.kind in "UO" and all(isinstance(label, str) for label in labels.tolist()):
        return labels.astype(object)
    raise ConfigError(
        f"fields['label'] must be integers, numbers of one shape or texts, got {labels.dtype}",
        field="fields",
    )
