"""Batches of a helper process, requested ahead: `prefetch` beyond the next one, as with threads."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from dataclasses import dataclass, replace
from typing import Any

from fastfeed.errors import ConfigError, FeedClosed
from fastfeed.feed.faults.quarantine import Quarantine
from fastfeed.feed.helper_process.client import HelperClient, Inbox, end
from fastfeed.feed.helper_process.job import HelperJob, PickledJob
from fastfeed.feed.producer import BatchStream, PlaceFunction
from fastfeed.runtime.buffers import Allocate
from fastfeed.runtime.timeline import Timeline
from fastfeed.sampling.plan import Plan
from fastfeed.system.shared_memory import is_available


class HelperProducer:
    """One helper process, started with the first batch, and started again if it has died."""

    def __init__(
        self, job: HelperJob, depth: int, quarantine: Quarantine, timeline: Timeline
    ) -> None:
        if not is_available() or not sys.executable:
            raise ConfigError(
                "side_process=True needs Linux and an interpreter that can be started"
                f" (sys.executable), got {sys.platform} and {sys.executable!r}; leave it out",
                field="side_process",
            )
        self.depth = depth
        self._made_from = job
        self._job = PickledJob(job)
        self._keep = job.config.buffers
        self._quarantine = quarantine
        self._timeline = timeline
        self._client: HelperClient | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(
        self,
        epoch: int,
        step: int,
        place: PlaceFunction | None = None,
        raw: bool = False,
        epochs: int | None = None,
    ) -> BatchStream:
        return _HelperStream(self, raw, (epoch, step, epochs), place)

    def use_memory(self, allocate: Allocate) -> None:
        """Do nothing: no framework allocates memory that another process writes.

        Adapters page-lock what arrives.
        """

    def use_plan(self, plan: Plan) -> None:
        """Start a helper with this plan when batches are next asked for; close earlier streams."""
        job = self._made_from
        with self._lock:
            self._check_open()
            pickled = PickledJob(replace(job, config=replace(job.config, plan=plan)))
            if self._end is not None:
                self._end()
            self._client = None
            self._job.close()
            self._job = pickled

    @property
    def helper_pid(self) -> int:
        process = None if self._client is None else self._client.process
        return 0 if process is None else process.pid

    def client(self) -> HelperClient:
        """The helper, started on first use and again after a failure."""
        with self._lock:
            self._check_open()
            if self._client is None or (
                self._client.failure is not None and self._client.pid == os.getpid()
            ):
                if self._end is not None:
                    self._end()
                self._client = HelperClient(self._job, self._keep, self._quarantine, self._timeline)
                self._end = weakref.finalize(self, end, self._client)  # also at interpreter exit
            if not self._client.is_started:
                self._client.start_thread()
            return self._client

    def _check_open(self) -> None:
        if self._closed:
            raise FeedClosed("this feed is closed; create a new one")

    def close(self) -> None:
        """End the helper process for good."""
        with self._lock:
            self._closed = True
            if self._end is not None:
                self._end()
            self._job.close()


@dataclass(eq=False)
class _HelperStream:
    """Holds its producer, so it outlives the feed that started it."""

    _producer: HelperProducer
    _raw: bool
    _start: tuple[int, int, int | None]
    _place: PlaceFunction | None
    _client: HelperClient | None = None
    _number: int = -1
    _requested: int = 0
    _ended: bool = False
    _closed: bool = False

    def __post_init__(self) -> None:
        self._inbox = Inbox(self._place)

    def __next__(self) -> Any:
        if self._client is not None and self._client.is_ending:
            raise FeedClosed("this feed is closed; create a new one")
        if self._closed:
            raise FeedClosed(
                "these batches were closed, or ended by an error; begin a new iteration"
            )
        try:
            if not self._ended:
                self._request(self._producer.depth + 1)
                kind, result = self._inbox.results.get()
                if kind == "batch":
                    self._requested -= 1
                    return result
                if kind == "error":
                    try:
                        raise result
                    # an error holds its frames, and these hold this object: leave no cycle
                    finally:
                        del result
                self._ended = True
        except BaseException:
            # also Ctrl-C between two lines: a half-done step must not be continued
            self.close()
            raise
        raise StopIteration

    def _request(self, count: int) -> None:
        """Make sure that `count` batches are requested or have arrived."""
        if self._client is None:
            client = self._producer.client()
            self._check(client)
            self._number, self._inbox = client.open_stream(self._raw, self._start, self._place)
            self._client = client
            # not of the inbox: its `place` and results may hold this object
            weakref.finalize(self, client.close_stream, self._number).atexit = False
        self._check(self._client)
        if self._requested < count:
            self._requested, more = count, count - self._requested
            self._client.post("more", self._number, more)

    def _check(self, client: HelperClient) -> None:
        if client.pid != os.getpid():
            raise FeedClosed(
                "this feed was started before fork(), its helper process belongs to the parent; "
                "create the feed in the child"
            )

    @property
    def ready(self) -> int:
        return self._inbox.results.qsize()

    @property
    def closed(self) -> bool:
        return self._closed or (self._client is not None and self._client.is_ending)

    def close(self) -> None:
        self._closed = True
        if self._client is not None:
            self._client.close_stream(self._number)
            self._inbox.discard()
            self._client.post("free")
