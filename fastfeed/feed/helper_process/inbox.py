"""What came for one walk and has not been taken yet."""

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

__all__ = ["CLOSED", "Inbox"]

_IMAGES = 4  # axes of a batch of images; one more where each sample has several views
CLOSED = "the feed was closed while a batch was waited for"


class Inbox:
    """In order. The walk holds it, the receiving thread does not: `place` may hold the feed."""

    def __init__(self, place: PlaceFunction | None) -> None:
        self._place, self._placed = place, 0
        # ("batch", placed), ("error", exception), ("end", None)
        self.results: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def add(self, images: np.ndarray, rest: Batch, timeline: Timeline) -> None:
        """A batch, the rest of which came beside its images; placed here and now."""
        several = (images, *rest.views) if images.ndim > _IMAGES else ()
        batch = replace(rest, images=images, views=several)
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

    def drop(self) -> None:
        """Let go of batches; a consumer that waits is told."""
        with suppress(queue.Empty):
            while True:
                self.results.get_nowait()
        self.results.put(("error", FeedClosed(CLOSED)))
