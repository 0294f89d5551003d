"""Inputs of blocks: batches of a mode, from steps whose files are warm or cold."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.feed.producer import PlaceFunction
from fastfeed.feed.session import FeedSession
from fastfeed.proof.measure.batches import Batches, Busy, Cached, Real, Resident
from fastfeed.proof.measure.block_sizes import settling_steps
from fastfeed.proof.measure.modes import Mode
from fastfeed.proof.measure.page_cache import ColdCheck, FilePages
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.thread_pool import ThreadPool


class Inputs:
    """The inputs of one feed.

    `finished` are batches in their own memory; the first block needs one when it begins.
    """

    def __init__(self, feed: FeedSession, pages: FilePages, finished: list[Batch]) -> None:
        self._feed = feed
        self._pages = pages
        self._finished = finished
        self._pool = ThreadPool(1, name="fastfeed-proof")
        self._place: PlaceFunction | None = None
        self._raw = False
        self._resident: Any = None
        self._windows = 0
        # steps of the plan, counted from epoch 0, that the blocks of this round read
        self._window = range(0)

    def place_with(self, place: PlaceFunction | None, raw: bool) -> None:
        """Place batches with this function from now on."""
        self._place = place
        self._raw = raw
        self._resident = None

    def check_cold(self) -> ColdCheck:
        """Try on a few files if they can be made cold."""
        return self._pages.check(self._ids(range(settling_steps(self._feed.prefetch) + 5)))

    @property
    def longest_cold(self) -> int:
        """Steps of the longest block that reads no file twice."""
        return self._feed.plan.steps - self._margin

    def begin_round(self, block: int) -> None:
        """Take other steps of the plan for the next blocks, within one epoch if it has enough."""
        length, steps = block + self._margin, self._feed.plan.steps
        whole = steps // length
        epoch, number = divmod(self._windows, whole) if whole else (0, self._windows)
        first = epoch * steps + number * length
        self._window = range(first, first + length)
        self._windows += 1

    def open(self, mode: Mode) -> Batches:
        """Batches of this mode; those of a round read the same files."""
        feed, depth = self._feed, self._feed.prefetch
        if mode is Mode.RESIDENT:
            if self._resident is None:
                self._resident = (
                    self._finished[0] if self._place is None else self._place(self._finished[0])
                )
            return Resident(self._resident)
        if mode is Mode.CACHED:
            return Cached(self._pool, self._finished, self._place, depth)
        ids = self._ids(self._window)
        if mode is Mode.COLD:
            self._pages.drop(ids)
        else:
            self._pages.warm(ids)
        epoch, step = divmod(self._window[0], feed.plan.steps)
        if mode is Mode.BUSY:
            cached = Cached(self._pool, self._finished, self._place, depth)
            return Busy(cached, feed.producer.start(epoch, step, None, self._raw), depth)
        return Real(feed.cursor.open(epoch, step, self._place, self._raw))

    def close(self) -> None:
        """End the thread that places finished batches, and let go of them."""
        self._pool.close()
        self._resident = None

    @property
    def _margin(self) -> int:
        """Steps that a block's feed may read beyond those that the trainer takes."""
        return self._feed.prefetch + 2

    def _ids(self, steps: range) -> np.ndarray:
        """Samples of this rank in these steps."""
        plan = self._feed.plan
        return np.concatenate([plan.ids(*divmod(step, plan.steps)) for step in steps])
