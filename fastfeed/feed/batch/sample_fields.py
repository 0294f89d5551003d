"""Fields of samples for users' functions on single images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.feed.batch.annotations import Annotations, clear, write_boxes

__all__ = ["SampleFields"]


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
        objects, masks = self.before.objects, self.before.masks
        taken = dict(self.values)
        if objects is not None:
            count = int(objects.counts[0])
            taken["boxes"] = objects.boxes[0, :count].copy()
            taken["box_labels"] = objects.labels[0, :count].copy()
        if masks is not None:
            taken["masks"] = masks[0].copy()
        return {name: taken[name] for name in names}

    def put(self, results: Mapping[str, Any]) -> None:
        """Set boxes and masks of one sample. ValueError says which results these must be."""
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
            clear(Annotations(self.after.objects))
            write_boxes(boxes, labels, np.zeros(len(boxes), np.int64), self.after.objects)
        if "masks" in results and self.after.masks is not None:
            mask, shape = np.asarray(results["masks"]), self.after.masks.shape[1:]
            if mask.shape != shape or mask.dtype != np.uint8:
                raise ValueError(
                    f"masks uint8{list(shape)}, returned {mask.dtype}{list(mask.shape)}"
                )
            self.after.masks[0] = mask
