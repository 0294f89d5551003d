"""The first steps of a proof: real batches, until compilers and caches have settled.

Some are kept, and steps timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastfeed.feed.producer import BatchStream, PlaceFunction
from fastfeed.feed.session import FeedSession
from fastfeed.proof.measure.batches import copied
from fastfeed.proof.measure.block_sizes import settling_steps
from fastfeed.runtime.batch import Batch

_SETTLE = 10  # steps, at least
_TIMED = 5  # of these, the last ones tell how long a step takes


class Warmup:
    """Batches from the feed's beginning on, each placed when it is asked for."""

    def __init__(self, feed: FeedSession, synchronize: Callable[[], None]) -> None:
        self._feed = feed
        self._synchronize = synchronize
        self._steps = max(_SETTLE, settling_steps(feed.prefetch) + _TIMED)
        self._stream: BatchStream | None = None
        self._taken = 0
        self._since_ns = 0
        self.batches: list[Batch] = []  # copies, apart from the feed's buffers
        self.step_s: float | None = None  # of a step; None until the first steps are done

    def next(self, place: PlaceFunction | None, raw: bool) -> Any:
        """A batch; None where the first steps are done."""
        if self._taken == self._steps - _TIMED:
            self._since_ns = self._now()
        elif self._taken == self._steps:
            self.step_s = (self._now() - self._since_ns) / _TIMED / 1e9
            self.close()
            return None
        if self._stream is None:
            self._stream = self._feed.producer.start(0, 0, None, raw)
        batch: Batch = next(self._stream)
        if len(self.batches) < self._feed.prefetch + 2:
            self.batches.append(copied(batch, self._feed.allocate))
        self._taken += 1
        return batch if place is None else place(batch)

    def close(self) -> None:
        """End the threads' work for them."""
        if self._stream is not None:
            self._stream.close()
        self._stream = None

    def _now(self) -> int:
        self._synchronize()
        return self._feed.timeline.clock()
