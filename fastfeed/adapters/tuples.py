"""Batches as the tuples that `fit` and the like take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.batch import Batch
from fastfeed.feed import Feed

__all__ = ["Parts", "label_spec"]


def label_spec(feed: Feed) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of one label: an integer, or a share of every class."""
    soft = feed.program.targets
    return ((), "int64") if soft is None else ((soft.classes,), "float32")


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """(images, labels) of a batch, with weights where they may differ from one.

    Padding that no other rank needs is cut off: trainers divide a batch's loss by its length, whatever the weights.
    Holds nothing of the feed, which holds what is done with its batches: threads end when the last user lets go of it.
    """

    weighted: bool
    last: int  # the step whose padding is cut off, -1 for none
    length: int  # of that step's batch
    factors: np.ndarray | None = None  # of the weights, by label; 1 for labels beyond, and for none; float32

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
            weights = weights * _factors(self.factors, labels)
        return (images, labels, weights) if self.weighted else (images, labels)


def _factors(factors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Of each label; soft labels have the mean of their classes' factors, by share."""
    if labels.ndim == 2:
        named = min(len(factors), labels.shape[1])
        return 1 + labels[:, :named] @ (factors[:named] - 1)
    return np.append(factors, np.float32(1))[np.minimum(labels, len(factors))]
