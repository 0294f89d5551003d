"""What a recording holds, in no dialect: plain rows with texts in place, times in nanoseconds since
the run began.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import Kind, RangeKind

US = 1_000
MS = 1_000_000
STARTED_NS = 1_760_000_000_123_456_789  # nanoseconds since 1970 of time 0


@dataclass(slots=True)
class Op:
    """Device work. Of a collective `end` is known once every rank has launched."""

    host: int  # index into Run.hosts
    gpu: int  # index of the physical device
    stream: int
    kind: Kind
    name: str
    corr: int
    submitted: int  # when the call that launched it returned
    visible: int  # when the device had it in its queue
    start: int
    end: int
    # what an event that kept it from starting stands for: DEPENDENCY, PEER, or LATENCY
    held: Cause | None = None
    bytes: int = -1
    pageable: int = -1
    group: str = ""
    seq: int = -1
    graph: bool = False  # one node of a CUDA graph


@dataclass(frozen=True, slots=True)
class Call:
    start: int
    end: int
    host: int
    thread: int  # tid
    name: str
    corr: int


@dataclass(frozen=True, slots=True)
class Range:
    start: int
    end: int
    host: int
    thread: int
    name: str
    kind: RangeKind


@dataclass(frozen=True, slots=True)
class Wait:
    """cudaStreamWaitEvent."""

    host: int
    gpu: int
    corr: int
    stream: int
    on_gpu: int
    on_stream: int
    on_corr: int  # of cudaEventRecord


@dataclass(frozen=True, slots=True)
class Runnable:
    """A thread that wanted a core and had none."""

    start: int
    end: int
    host: int
    thread: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A span of the feed's own timeline."""

    start: int
    end: int
    host: int
    thread: int
    stage: str
    batch: int


@dataclass(frozen=True, slots=True)
class Idle:
    """The truth: why this device did nothing from start to end."""

    start: int
    end: int
    gpu: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Proxy:
    """The truth: inside of a collective `victim` waited for `culprit`, which arrived last.

    Ranks.
    """

    victim: int
    culprit: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Host:
    """A process."""

    pid: int
    name: str
    rank: int
    threads: dict[int, str]  # tid -> name; the first is the main thread
    gpus: tuple[int, ...]
    skew_ns: int = 0  # its clock is ahead by this much


@dataclass(frozen=True, slots=True)
class Run:
    hosts: tuple[Host, ...]
    ops: tuple[Op, ...]
    calls: tuple[Call, ...]
    ranges: tuple[Range, ...]
    waits: tuple[Wait, ...]
    sched: tuple[Runnable, ...]
    stages: tuple[Stage, ...]
    idle: tuple[Idle, ...]
    proxies: tuple[Proxy, ...] = field(default=())
    steps: int = 0

    def of(self, host: int) -> Run:
        """What a profiler in this one process records. The truth stays whole."""
        tables = ("ops", "calls", "ranges", "waits", "sched", "stages")
        mine: dict[str, Any] = {
            table: tuple(row for row in getattr(self, table) if row.host == host)
            for table in tables
        }
        return replace(self, hosts=(self.hosts[host],), **mine)
