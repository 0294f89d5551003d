"""Batches as the tuples that `fit` and the like take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.batch import Batch
from fastfeed.feed import Feed

__all__ = ["Parts"]


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """(images, labels) of a batch, with weights where they may differ from one.

    Padding that no other rank needs is cut off: trainers divide a batch's loss by its length, whatever the weights.
    Holds nothing of the feed, which holds what is done with its batches: threads end when the last user lets go of it.
    """

    weighted: bool
    last: int  # the step whose padding is cut off, -1 for none
    length: int  # of that step's batch
    factors: np.ndarray | None = None  # of the weights, by label; 1 for labels beyond; float32

    @classmethod
    def of(cls, feed: Feed, padded: bool = False, factors: np.ndarray | None = None) -> Parts:
        """`padded`: padding stays and the weights tell, for frameworks that compile anew for every shape."""
        plan, cut = feed.plan, feed.partial and not padded
        weighted = feed.weighted or factors is not None or (padded and feed.partial)
        return cls(weighted, plan.steps - 1 if cut else -1, plan.length % plan.batch, factors)

    def __call__(self, batch: Batch) -> tuple[Any, ...]:
        images, labels, weights = batch.images, batch.labels, batch.weights
        if batch.step == self.last:
            images, labels, weights = images[: self.length], labels[: self.length], weights[: self.length]
        if self.factors is not None:
            weights = weights * np.append(self.factors, np.float32(1))[np.minimum(labels, len(self.factors))]
        return (images, labels, weights) if self.weighted else (images, labels)
