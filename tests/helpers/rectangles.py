"""Images with one bright rectangle each, and the boxes and masks that say where it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.feed.feed import Feed
from fastfeed.runtime.batch import Batch
from fastfeed.sources import Arrays, Objects

KINDS = 5
BEHIND = 7  # class of what is no rectangle, in masks


def rectangles(
    n: int, size: tuple[int, int] = (60, 90), seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """uint8 (n, height, width, 3), and its boxes as left, top, right, bottom: float64 (n, 4)."""
    rng = np.random.default_rng(seed)
    images, boxes = np.zeros((n, *size, 3), np.uint8), np.empty((n, 4))
    for image, box in zip(images, boxes, strict=True):
        (top, bottom), (left, right) = (
            np.sort(rng.choice(side - 12, 2, replace=False)) for side in size
        )
        bottom, right = bottom + 12, right + 12
        image[top:bottom, left:right] = 255
        box[:] = left, top, right, bottom
    return images, boxes


def located(
    n: int, size: tuple[int, int] = (60, 90), masks: bool = True, most: int | None = None
) -> Objects:
    """A sample's class is its number modulo KINDS, of its box and in its mask."""
    images, boxes = rectangles(n, size)
    kinds = np.arange(n) % KINDS
    classes = np.where(images[..., 0] > 0, kinds[:, None, None], BEHIND).astype(np.uint8)
    return Objects(
        Arrays(images),
        boxes[:, None],
        kinds[:, None],
        list(classes) if masks else None,
        classes=[f"kind {i}" for i in range(KINDS)],
        most=most,
    )


def seen(image: np.ndarray) -> np.ndarray | None:
    """Left, top, right, bottom of what is bright; None where nothing is."""
    rows, columns = (np.flatnonzero((image[..., 0] > 127).any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return None
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], np.float64)


def content(batch: Batch, row: int) -> tuple[Any, ...]:
    """All that a batch says of one sample, comparable."""
    assert batch.objects is not None
    masks = b"" if batch.masks is None else batch.masks[row].tobytes()
    marks = (
        batch.objects.boxes[row].tobytes(),
        batch.objects.labels[row].tobytes(),
        int(batch.objects.counts[row]),
    )
    return (batch.images[row].tobytes(), masks, *marks)


def samples(feed: Feed, epoch: int = 0, start: int = 0) -> list[tuple[int, int, tuple[Any, ...]]]:
    """(step, id, content) of every sample of an epoch."""
    with feed:
        return [
            (batch.step, int(id), content(batch, row))
            for batch in feed.batches(epoch, start)
            for row, id in enumerate(batch.ids)
        ]
