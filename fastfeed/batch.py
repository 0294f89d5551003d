"""What a feed yields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Batch"]


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

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.images.shape))
        return f"Batch(epoch {self.epoch}, step {self.step}: {self.images.dtype}[{shape}])"
