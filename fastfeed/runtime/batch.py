"""What a feed yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Batch", "Boxes"]


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Where objects are in n images: places for the same number in each, of which the first `counts` are taken, in the
    source's order."""

    boxes: np.ndarray  # float32 (n, most, 4): left, top, right, bottom in pixels of the image; 0 where there is none
    labels: np.ndarray  # int64 (n, most); -1 where there is none
    counts: np.ndarray  # int64 (n,)

    @classmethod
    def none(cls, n: int, most: int) -> Boxes:
        """Places, all free."""
        return cls(np.zeros((n, most, 4), np.float32), np.full((n, most), -1, np.int64), np.zeros(n, np.int64))

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, rows: Any) -> Boxes:
        return Boxes(self.boxes[rows], self.labels[rows], self.counts[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One step's samples of one rank: n = the batch per rank, the same for every step."""

    images: np.ndarray  # (n, *program.shape), spec.dtype
    labels: np.ndarray  # int64 (n,); float32 (n, classes) where the list makes them soft
    weights: np.ndarray  # float32 (n,): 0 for padding and masked samples, else 1, or what the source says
    ids: np.ndarray  # int64 (n,): a substitute shows the id it really is
    epoch: int
    step: int
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)  # what else the source says of each sample
    views: tuple[np.ndarray, ...] = ()  # per size of views: (n, views, *spec.shape); `images` is the first
    objects: Boxes | None = None  # of sources that say where things are
    masks: np.ndarray | None = None  # uint8 (n, height, width): class of each pixel, 255 where it is not known

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.images.shape))
        return f"Batch(epoch {self.epoch}, step {self.step}: {self.images.dtype}[{shape}])"
