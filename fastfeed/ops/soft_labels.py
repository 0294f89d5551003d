"""Soft labels: a weight for every class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Targets"]


@dataclass(frozen=True, slots=True)
class Targets:
    """Soft labels: float32 (n, classes)."""

    classes: int
    smoothing: float = 0.0  # share spread evenly over all classes

    def of(self, labels: np.ndarray) -> np.ndarray:
        """Soft labels of int64 (n,) labels; a row of zeros for an unknown class, such as -1."""
        out = np.full((len(labels), self.classes), self.smoothing / self.classes, np.float32)
        known = (labels >= 0) & (labels < self.classes)
        out[~known] = 0
        rows = np.flatnonzero(known)
        out[rows, labels[rows]] += np.float32(1 - self.smoothing)
        return out
