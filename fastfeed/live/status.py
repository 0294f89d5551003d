"""Live status of a feed, published once or twice per batch for `fastfeed watch`.

The page is created by the first batch, in the process that takes it, and removed when the feed is
closed or collected and when the interpreter exits. If no page can be created the feed runs without
one; `problem` says why.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from fastfeed.live.folder import folders, process_identity, writable_folder
from fastfeed.live.meter import Meter
from fastfeed.live.page import COUNTERS, IDLE, TRAINING, WAITING, Page, PageWriter
from fastfeed.printable import log
from fastfeed.runtime.progress import CurrentStage
from fastfeed.system.processes import has_owners

_STAGES_NS = 1_000_000_000  # stage times, which take longer to add up, are written this often


_STEPS = 31  # whose median is published


class SlowCounts(NamedTuple):
    """Counts that take longer to collect."""

    stages: Mapping[str, tuple[int, int]] = {}  # stage -> (spans, nanoseconds)
    bad: int = 0
    helper_pid: int = 0
    read_bytes: int = 0
    retries: int = 0
    doing: CurrentStage | None = None


class Closable(Protocol):
    """Batches that may have been closed."""

    @property
    def closed(self) -> bool: ...


class LiveStatus:
    """Counts the figures that the meter does not, and publishes both.

    Never raises: a run must not end because of it.
    """

    def __init__(
        self, meter: Meter, identity: Mapping[str, Any], slow: Callable[[], SlowCounts]
    ) -> None:
        """Start without a page; `slow` is called about once a second for the slower counts."""
        self._meter = meter
        self._identity = identity
        self._slow = slow
        self._feed = secrets.token_hex(4)
        self._phase = IDLE
        self._since = 0
        self._failed = 0
        self._position = (0, 0)
        self._framework = (0, 0)
        self._stages_ns = 0
        self._stages_images = 0
        self._counted = SlowCounts()
        # of the newest steps, and of those that a callback has timed: lists, which another thread
        # may append to while they are sorted
        self._steps_ns: list[int] = []
        self._framework_steps_ns: list[int] = []
        self._medians = (0, 0)
        self._last_step = 0
        self._leader: Callable[[], Closable | None] = lambda: None
        self._page: PageWriter | None = None
        self._end: Any = None
        self._pid = 0  # of the process that has tried to create a page
        self._closed = False
        self.problem = ""  # why there is no page
        self._lock = threading.Lock()  # of the page: two threads may take batches

    @property
    def path(self) -> str | None:
        """The path of the live page, while there is one."""
        return None if self._page is None else self._page.path

    def set_leader(self, batches: Closable) -> None:
        """Let only these batches move the page's position and phase, until closed or collected."""
        self._leader = weakref.ref(batches)

    def is_led_by(self, batches: Closable) -> bool:
        """True for the training loop's batches, and for any batches while it has no open ones."""
        leader = self._leader()
        return leader is None or leader is batches or leader.closed

    def requested(self, now_ns: int, ready: int, leads: bool = True) -> None:
        """Record a request for a batch; published only if the trainer has to wait.

        Args:
            now_ns: Time of the request, in nanoseconds.
            ready: Number of batches ready.
            leads: True if the trainer makes the request.
        """
        self._meter.record_ready(ready)
        if leads and not ready:
            self._phase = WAITING
            self._since = now_ns
            self._publish(now_ns)

    def waits(self, now_ns: int) -> None:
        """Publish the stage of the awaited batch while the trainer waits."""
        if self._phase == WAITING and now_ns - self._stages_ns >= _STAGES_NS:
            self._publish(now_ns)

    def delivered(self, now_ns: int, position: tuple[int, int]) -> None:
        """Record a delivered batch; `position` is the (epoch, step) of the next."""
        if self._last_step:
            _append(self._steps_ns, now_ns - self._last_step)
        self._last_step = now_ns
        self._phase = TRAINING
        self._since = now_ns
        self._position = position
        self._failed = 0
        self._publish(now_ns)

    def paused(self, now_ns: int, failed: bool = False) -> None:
        """Record a pause: the epoch has ended, or an error has ended the iteration."""
        self._phase = IDLE
        self._since = now_ns
        self._failed = int(failed)
        self._last_step = 0
        self._stages_ns = 0  # write the stage times of what was done until now
        if self._page is not None:
            self._publish(now_ns)

    def timed_steps(self, steps: int, ns: int) -> None:
        """Add training steps timed by a framework's callback; written with the next batch."""
        self._framework = (self._framework[0] + steps, self._framework[1] + ns)
        _append(self._framework_steps_ns, ns // steps)

    def page(self) -> Page:
        """The page as a reader would see it now, even if none is written."""
        counted = self._slow()
        counters = dict(zip(COUNTERS, self._counters(self._since, counted), strict=True))
        return Page(
            self._identity, counters | {"stages_images": counters["images"]}, dict(counted.stages)
        )

    def close(self) -> None:
        """Remove the page of this feed."""
        self._closed = True
        if self._end is not None:
            self._end()
        self._page = None

    def _publish(self, now_ns: int) -> None:
        # a thread that comes meanwhile leaves it at that: the next batch brings its counts. Never
        # waits, as a lock may have been copied by fork() while it was held
        if self._lock.acquire(blocking=False):
            try:
                self._write(now_ns)
            finally:
                self._lock.release()

    def _write(self, now_ns: int) -> None:
        page = self._page
        if page is None or not page.is_own:
            page = self._open()
            if page is None:
                return
        meter = self._meter
        if now_ns - self._stages_ns >= _STAGES_NS or not self._stages_ns:
            self._counted = counted = self._slow()
            self._medians = (_median(self._steps_ns), _median(self._framework_steps_ns))
            page.set_stages(counted.stages)
            page.set_doing(*(("", "") if counted.doing is None else counted.doing[:2]))
            self._stages_ns = now_ns
            self._stages_images = meter.images
        page.write(self._counters(now_ns, self._counted))

    def _counters(self, now_ns: int, counted: SlowCounts) -> list[int]:
        """Values of all counters, in the order of COUNTERS."""
        meter = self._meter
        return [
            meter.asked,
            meter.batches,
            meter.images,
            meter.wait_ns,
            meter.consumer_ns,
            self._phase,
            self._since,
            now_ns,
            *self._position,
            counted.bad,
            self._failed,
            self._stages_ns,
            self._stages_images,
            counted.helper_pid,
            *self._framework,
            *self._medians,
            counted.read_bytes,
            counted.retries,
            0 if counted.doing is None else counted.doing.since_ns,
            *meter.ready_counts,
        ]

    def _open(self) -> PageWriter | None:
        """Open the page, once per process: a forked child gets a separate page."""
        if self._closed or self._pid == os.getpid():
            return None
        self._pid = os.getpid()
        self._page = None
        if self._end is not None:
            self._end.detach()  # the parent removes its page
        if not folders():
            self.problem = "no live page: FASTFEED_LIVE is off"
            return None
        if not has_owners():
            self.problem = (
                "no live page, `fastfeed watch` will not see this feed: it needs Linux or macOS"
            )
            log.info(self.problem)
            return None
        try:
            process = process_identity()
            identity = {**process, "feed": self._feed, "created": time.time(), **self._identity}
            host = re.sub(r"[^A-Za-z0-9._]", "_", process["host"])
            name = f"{host}-{process['pid']}-{self._feed}.live"
            self._page = page = _create(name, identity)
        except (OSError, ValueError) as error:
            self.problem = f"no live page, `fastfeed watch` will not see this feed: {error}"
            log.log(
                logging.WARNING if os.environ.get("FASTFEED_LIVE") else logging.INFO, self.problem
            )
            return None
        self._end = weakref.finalize(self, page.close)  # also at interpreter exit
        return page


def _append(newest: list[int], value: int) -> None:
    newest.append(value)
    del newest[:-_STEPS]


def _median(values: Iterable[int]) -> int:
    """The middle one; 0 of none."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0


def _create(name: str, identity: Mapping[str, Any]) -> PageWriter:
    problem = OSError("there is no folder for it")
    for folder in folders():
        try:
            return PageWriter(os.path.join(writable_folder(folder), name), identity)
        except OSError as error:
            problem = error
    raise problem
