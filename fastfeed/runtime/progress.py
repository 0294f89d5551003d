"""Counters and current stages of a feed's threads, for its live page."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from fastfeed.system.clocks import steady_ns


class CurrentStage(NamedTuple):
    """The current stage of the next batch."""

    stage: str
    where: str  # the endpoint or folder that it is read from; empty: none
    since_ns: int


class BatchProgress:
    """Counters, and stages of batches in progress, for use by many threads."""

    def __init__(self, clock: Callable[[], int] = steady_ns) -> None:
        self.read_bytes = 0  # of samples
        self.retries = 0  # reads that were repeated
        # called with the time by a thread that waits for a batch
        self.on_wait: Callable[[int], None] | None = None
        self._clock = clock
        # (number of the batch, thread) -> stage, where, since
        self._doing: dict[tuple[int, int], tuple[str, Callable[[], str] | None, int]] = {}
        self._drained = (0, 0)
        self._lock = threading.Lock()

    def count(self, read_bytes: int = 0, retries: int = 0) -> None:
        """Add bytes and retries to the counters."""
        if read_bytes or retries:
            with self._lock:
                self.read_bytes += read_bytes
                self.retries += retries

    def enter(self, batch: int, stage: str, where: Callable[[], str] | None = None) -> None:
        """This thread is at a stage of a batch now; `where` is called only by `current`."""
        key = (batch, threading.get_ident())
        with self._lock:
            self._doing[key] = (stage, where, self._clock())

    def leave(self, batch: int) -> None:
        """This thread has done its part of a batch."""
        with self._lock:
            self._doing.pop((batch, threading.get_ident()), None)

    def report_wait(self) -> None:
        """Report that a thread still waits for a batch."""
        on_wait = self.on_wait
        if on_wait is not None:
            on_wait(self._clock())

    def current(self) -> CurrentStage | None:
        """The longest running stage of the next batch; None: this process makes no batch."""
        with self._lock:
            if not self._doing:
                return None
            first = min(batch for batch, _ in self._doing)
            entries = [entry for (batch, _), entry in self._doing.items() if batch == first]
        stage, where, since_ns = min(entries, key=lambda entry: entry[2])
        return CurrentStage(stage, where() if where is not None else "", since_ns)

    def drain(self) -> tuple[int, int]:
        """(bytes, retries) since the last call: for a helper process that passes them on."""
        with self._lock:
            before = self._drained
            self._drained = (self.read_bytes, self.retries)
            return self._drained[0] - before[0], self._drained[1] - before[1]
