"""The batches that a feed yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Batch", "Boxes"]


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Boxes of the objects in n images, padded to the same number in each: the first `counts` are real, in the source's
    order."""

    boxes: np.ndarray  # float32 (n, boxes, 4): left, top, right, bottom in pixels of the image; 0 for padding
    labels: np.ndarray  # int64 (n, boxes); -1 for padding
    counts: np.ndarray  # int64 (n,)

    @classmethod
    def none(cls, n: int, boxes: int) -> Boxes:
        """Padding only, for this number of boxes in each image."""
        return cls(np.zeros((n, boxes, 4), np.float32), np.full((n, boxes), -1, np.int64), np.zeros(n, np.int64))

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, rows: Any) -> Boxes:
        return Boxes(self.boxes[rows], self.labels[rows], self.counts[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One step's samples of one rank: n = the batch per rank, the same for every step."""

    images: np.ndarray  # (n, *program.shape), spec.dtype
    labels: np.ndarray  # int64 (n,); float32 (n, classes) where an op makes them soft
    weights: np.ndarray  # float32 (n,): 0 for padding and masked samples, else 1, or the source's weight
    ids: np.ndarray  # int64 (n,): of a substitute, its own id
    epoch: int
    step: int
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)  # further values of the source for each sample
    views: tuple[np.ndarray, ...] = ()  # per size of views: (n, views, *spec.shape); `images` is the first
    objects: Boxes | None = None  # of sources with boxes
    masks: np.ndarray | None = None  # uint8 (n, height, width): class of each pixel, 255 where unknown

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.images.shape))
        return f"Batch(epoch {self.epoch}, step {self.step}: {self.images.dtype}[{shape}])"
