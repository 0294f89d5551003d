"""Batches of one stream that have arrived and have not been taken yet."""

from __future__ import annotations

import queue
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from fastfeed.errors import FeedClosed
from fastfeed.feed.producer import PlaceFunction
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.timeline import Timeline

_IMAGES = 4  # axes of a batch of images; one more where each sample has several views
CLOSED = "the feed was closed while waiting for a batch"


class Inbox:
    """A queue in order.

    The stream holds it, the receiving thread does not: `place` may hold the feed.
    """

    def __init__(self, place: PlaceFunction | None) -> None:
        self._place = place
        self._placed = 0
        # ("batch", placed), ("error", exception), ("end", None)
        self.results: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def add(self, images: np.ndarray, rest: Batch, timeline: Timeline) -> None:
        """Assemble a batch from its images and its other arrays, and place it."""
        views = (images, *rest.views) if images.ndim > _IMAGES or rest.image_names else ()
        batch = replace(rest, images=images, views=views)
        if self._place is None:
            self.results.put(("batch", batch))
            return
        try:
            with timeline.span("place", self._placed):
                placed = self._place(batch)
        except BaseException as error:  # raised at its batch's turn
            self.results.put(("error", error))
        else:
            self.results.put(("batch", placed))
        self._placed += 1

    def discard(self) -> None:
        """Drop all batches and wake a waiting consumer with an error."""
        with suppress(queue.Empty):
            while True:
                self.results.get_nowait()
        self.results.put(("error", FeedClosed(CLOSED)))
