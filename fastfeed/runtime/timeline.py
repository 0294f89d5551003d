"""Spans of all stages over time, for the feed's statistics and for the profiler.

Spans are half-open [start_ns, end_ns) in CLOCK_MONOTONIC. The newest `capacity` spans stay in
memory; with FASTFEED_TIMELINE=path all of them also go to a file of JSON lines, appended whole
lines at a time so that several feeds and ranks may share it:

    {"fastfeed_timeline": 1, "feed": "f3a9", "pid": 411, "rank": 0, "host": "node7", ...}
    ["f3a9", "anchor", <monotonic ns>, <wall ns>]
    ["f3a9", "span", "decode", <batch>, <start ns>, <end ns>, <thread id>]

Anchors, about one per second, align the clock with those of other traces.

A feed with a helper process has a header of each process, with the same id. A file of a gibibyte
becomes PATH.1, in the place of the one before, and a new one begins, with a header of each feed
that still writes.

Where the `nvtx` package is installed each span is an NVTX range too, so Nsight Systems shows it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import secrets
import stat
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.printable import log, warn
from fastfeed.runtime.progress import BatchProgress
from fastfeed.system.clocks import steady_ns
from fastfeed.system.descriptors import APPEND, open_file
from fastfeed.system.locks import lock, unlock

_ANCHOR_NS = 1_000_000_000
_LIMIT = 1 << 30  # bytes of a file
_AT_ONCE = 64  # blocks of native spans that are added to the totals together


_FULL = (
    "the timeline %s has reached %.1f GB: it continues in a new file, this part is %s.1, and"
    " earlier parts are deleted; unset FASTFEED_TIMELINE for long runs"
)


class Span(NamedTuple):
    """One stage of one batch on one thread."""

    stage: str
    batch: int  # counted since iteration began
    start_ns: int
    end_ns: int
    thread: int  # native thread id, as the operating system and Nsight number them


@dataclass(slots=True, eq=False)
class _Block:
    """Spans of native threads in one batch.

    Tuples and totals are computed for many spans at once, or on demand.
    """

    batch: int
    stages: tuple[str, ...]
    array: np.ndarray  # as for `Timeline.record_native`

    @property
    def count(self) -> int:
        return len(self.array) * len(self.stages)

    def spans(self) -> list[Span]:
        """The stages of an entry one after the other; none for those that took no time."""
        spans = []
        for thread, begin, *durations in self.array.tolist():
            ends = accumulate(durations, initial=begin)
            for stage, (start, end) in zip(self.stages, pairwise(ends), strict=True):
                if end > start:
                    spans.append(Span(stage, self.batch, start, end, thread))
        return spans


class Timeline:
    """Records spans; cheap enough to be always on."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        rank: int = 0,
        name: str = "",
        feed: str | None = None,  # its id in the file, if another process writes for the same feed
        capacity: int = 65_536,  # spans to keep; 0: those of native threads are not recorded
        clock: Callable[[], int] = steady_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self.clock = clock
        self.progress = BatchProgress(clock)
        self.nvtx = _nvtx()
        feed = feed or secrets.token_hex(4)
        # for the timeline in a helper process
        self.helper_arguments = {
            "path": path,
            "rank": rank,
            "name": name,
            "feed": feed,
        }
        self._ring: deque[Span | _Block] = deque()
        # spans
        self._in_ring = 0
        self._capacity = capacity
        self._totals: dict[str, tuple[int, int]] = {}
        self._uncounted: dict[tuple[str, ...], list[_Block]] = {}  # by their stages
        self._lock = threading.Lock()
        self._file = _TimelineFile(path, feed, rank, name, clock, wall) if path else None
        if self._file is not None:
            self._end = weakref.finalize(self, self._file.close)  # also when the interpreter ends

    def span(self, stage: str, batch: int) -> _RunningSpan:
        """Record a span: `with timeline.span("decode", batch): ...`."""
        return _RunningSpan(self, stage, batch)

    def record(self, span: Span) -> None:
        """Add a span that was timed elsewhere."""
        with self._lock:
            self._add(span)
            if self._file is not None:
                self._file.add(span)
        self._tell()

    def record_native(self, batch: int, stages: Sequence[str], spans: np.ndarray) -> None:
        """Add spans of native threads.

        spans: int64 (n, 2 + stages), thread id, begin, and the duration of each stage.
        """
        if not len(spans) or self._capacity == 0:
            return
        block = _Block(batch, tuple(stages), spans.copy())
        with self._lock:
            self._append(block)
            uncounted = self._uncounted.setdefault(block.stages, [])
            uncounted.append(block)
            if len(uncounted) >= _AT_ONCE:
                self._count(block.stages, uncounted)
            if self._file is not None:
                for span in block.spans():
                    self._file.add(span)
        self._tell()

    def _tell(self) -> None:
        """Log without the lock: a handler of the log may ask for the totals."""
        file = self._file
        if file is not None and file.was_full:
            path = file.was_full
            file.was_full = ""
            log.warning(_FULL, path, _LIMIT / 1e9, path)

    def merge(self, spans: list[Span]) -> None:
        """Add spans of a helper process, which writes them to the file itself."""
        with self._lock:
            for span in spans:
                self._add(span)

    def drain(self) -> list[Span]:
        """Return all spans and forget them: for a helper process that passes them on."""
        with self._lock:
            spans = self._newest()
            self._ring.clear()
            self._in_ring = 0
            return spans

    def _add(self, span: Span) -> None:
        self._append(span)
        self._count_spans(span.stage, 1, span.end_ns - span.start_ns)

    def _count(self, stages: tuple[str, ...], blocks: list[_Block]) -> None:
        """Add blocks with these stages to the totals, and forget them."""
        durations = np.concatenate([block.array for block in blocks])[:, 2:]
        blocks.clear()
        for stage, used, spent in zip(
            stages,
            np.count_nonzero(durations, axis=0).tolist(),
            durations.sum(axis=0).tolist(),
            strict=True,
        ):
            if used:
                self._count_spans(stage, used, spent)

    def _count_spans(self, stage: str, spans: int, spent: int) -> None:
        count, before = self._totals.get(stage, (0, 0))
        self._totals[stage] = (count + spans, before + spent)

    def _append(self, entry: Span | _Block) -> None:
        """Add to the ring; the oldest spans make room, a block of them at a time."""
        self._ring.append(entry)
        self._in_ring += entry.count if isinstance(entry, _Block) else 1
        while self._in_ring > self._capacity:
            oldest = self._ring.popleft()
            self._in_ring -= oldest.count if isinstance(oldest, _Block) else 1

    def _newest(self) -> list[Span]:
        spans: list[Span] = []
        for entry in self._ring:
            spans += entry.spans() if isinstance(entry, _Block) else [entry]
        return spans

    def spans(self) -> list[Span]:
        """The newest spans, oldest first."""
        with self._lock:
            return self._newest()

    def totals(self) -> dict[str, tuple[int, int]]:
        """Per stage: (number of spans, nanoseconds summed over threads) since the start."""
        with self._lock:
            for stages, blocks in self._uncounted.items():
                if blocks:
                    self._count(stages, blocks)
            return dict(self._totals)

    def close(self) -> None:
        """Write pending spans and close the file; recording continues in memory."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


class _TimelineFile:
    """Appends whole lines, so that lines of several threads and processes do not mix."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        feed: str,
        rank: int,
        name: str,
        clock: Callable[[], int],
        wall: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._id = feed
        self._pid = os.getpid()
        try:
            self._fd = open_file(path, APPEND)
        except OSError as error:
            raise ConfigError(
                f"cannot write the timeline {path}: {error.strerror}; correct FASTFEED_TIMELINE",
                field="FASTFEED_TIMELINE",
            ) from error
        self._path = os.fspath(path)
        self._warned = False
        self.was_full = ""  # the path of a file that has been renamed; not logged yet
        head = {"fastfeed_timeline": 1, "feed": self._id, "pid": self._pid, "rank": rank}
        self._head = json.dumps(head | {"host": platform.node(), "name": name})
        self._lines = [self._head]
        self._anchor()

    def add(self, span: Span) -> None:
        self._lines.append(json.dumps([self._id, "span", *span]))
        if span.end_ns - self._anchored_ns >= _ANCHOR_NS:
            self._anchor()

    def close(self) -> None:
        if self._fd >= 0:
            if os.getpid() == self._pid:  # after fork() the parent writes pending spans
                self._anchor()
            os.close(self._fd)
            self._fd = -1

    def _anchor(self) -> None:
        self._anchored_ns = self._clock()
        self._rotate()
        self._lines.append(json.dumps([self._id, "anchor", self._anchored_ns, self._wall()]))
        text = ("\n".join(self._lines) + "\n").encode()
        self._lines.clear()
        try:
            os.write(self._fd, text)
        except OSError as error:  # a full disk must not end the run
            if not self._warned:
                self._warned = True
                warn(f"spans are missing from the timeline: {error}", stacklevel=2)

    def _rotate(self) -> None:
        """Continue in a new file when this one is full; another feed or rank may have begun it."""
        try:
            status = os.fstat(self._fd)
            if status.st_size < _LIMIT or not stat.S_ISREG(os.lstat(self._path).st_mode):
                return
            lock(self._fd)
            try:
                if os.path.samestat(os.lstat(self._path), status):
                    os.replace(self._path, f"{self._path}.1")
                    self.was_full = self._path
            finally:
                unlock(self._fd)
            fd = open_file(self._path, APPEND)
        except OSError:  # where a file that is open cannot be renamed it grows
            return
        os.close(self._fd)
        self._fd = fd
        if self._lines[:1] != [self._head]:
            self._lines.insert(0, self._head)


@dataclass(slots=True, eq=False)
class _RunningSpan:
    """A span that has not ended."""

    _timeline: Timeline
    _stage: str
    _batch: int
    _start: int = 0

    def __enter__(self) -> _RunningSpan:
        if self._timeline.nvtx is not None:
            self._timeline.nvtx.push_range(f"fastfeed:{self._stage}")
        self._start = self._timeline.clock()
        return self

    def __exit__(self, *_: object) -> None:
        timeline = self._timeline
        end = timeline.clock()
        if timeline.nvtx is not None:
            timeline.nvtx.pop_range()
        timeline.record(Span(self._stage, self._batch, self._start, end, threading.get_native_id()))


def _nvtx() -> Any:
    return importlib.import_module("nvtx") if importlib.util.find_spec("nvtx") else None
