"""Batches as the tuples that `fit` and the like take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fastfeed.batch import Batch
from fastfeed.feed import Feed

__all__ = ["arrays"]


def arrays(feed: Feed, batches: Iterable[Batch]) -> Iterator[tuple[Any, ...]]:
    """(images, labels) of each batch, with weights where they may differ from one.

    Padding that no other rank needs is cut off: trainers divide a batch's loss by its length, whatever the weights.
    """
    for batch in batches:
        n = len(batch)
        if feed.partial and batch.step + 1 == len(feed):
            n = feed.plan.length - batch.step * feed.plan.batch
        cut = (batch.images[:n], batch.labels[:n], batch.weights[:n])
        yield cut if feed.weighted else cut[:2]
