"""Plan of a mixing op that combines n samples, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["AS_IS", "BLEND", "MOSAIC", "PASTE", "MixPlan"]

AS_IS, BLEND, PASTE, MOSAIC = range(4)


@dataclass(frozen=True, slots=True, eq=False)
class MixPlan:
    """Mixing of n samples. A sample's group is itself (member 0), then its partners."""

    # int64 (n,): AS_IS; BLEND: shares of members 0 and 1; PASTE: member 1 in a box; MOSAIC: four
    # members
    how: np.ndarray
    # float64 (n, group): of each member in the image and in the label; rows sum to 1
    shares: np.ndarray
    # int64 (n, 4): top, left, height, width of PASTE; for MOSAIC row and column of its center, 0, 0
    box: np.ndarray

    def __getitem__(self, rows: Any) -> MixPlan:
        return MixPlan(self.how[rows], self.shares[rows], self.box[rows])
