"""GPUs, streams, and a host with threads: what takes how long, and what waits for what.

A host is one baton that goes from thread to thread: the thread that holds it launches next, and
`now` is its time. Every nanosecond of a host is in `diary` with what it was spent on; the truth
about idle devices is read there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import Kind, RangeKind
from helpers.profiler.simulator.events import US, Call, Op, Range, Run, Runnable, Stage, Wait
from helpers.profiler.simulator.events import Host as Process

DEPTH = 1024  # launches that a device takes before the next one blocks


@dataclass(frozen=True, slots=True)
class Event:
    done: int  # when the device passes it
    stream: Stream
    corr: int


@dataclass(slots=True)
class Stream:
    gpu: int
    number: int
    tail: int = 0  # when all work so far is done
    free: int = 0  # not before this, because of events
    held: Cause = Cause.DEPENDENCY


@dataclass(slots=True)
class Host:
    """One process; `index` is its place in the run."""

    index: int
    pid: int
    gpus: Sequence[int]
    seed: int
    rank: int = 0
    skew_ns: int = 0
    is_python_recorded: bool = True
    lazy_ns: int = 0  # what the first use of each kernel costs; 0 where the run is warm
    now: int = 0
    ops: list[Op] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    sched: list[Runnable] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    diary: list[tuple[int, int, Cause]] = field(default_factory=list)
    threads: dict[int, str] = field(default_factory=dict)
    streams: dict[tuple[int, int], Stream] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)

    _corr: int = 100
    _thread: int = 0
    _left: dict[int, int] = field(default_factory=dict)  # thread -> when it passed the baton on
    _cause: Cause = Cause.PYTHON
    _rng: np.random.Generator = field(init=False)
    # gpu -> when its last DEPTH launches started
    _queued: dict[int, deque[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.threads[self.pid] = "python"
        self._rng = np.random.default_rng([self.seed, self.index])

    def about(self, ns: int, spread: float = 0.15) -> int:
        """A time near this one."""
        return max(1, int(ns * (1 + spread * (2 * self._rng.random() - 1))))

    def stream(self, number: int, gpu: int | None = None) -> Stream:
        gpu = self.gpus[0] if gpu is None else gpu
        return self.streams.setdefault((gpu, number), Stream(gpu, number))

    # ---- time

    def until(self, when: int, cause: Cause | None = None) -> None:
        """Stay where the program is until then."""
        if when > self.now:
            self.diary.append((self.now, when, self._cause if cause is None else cause))
            self.now = when

    def spend(self, ns: int, cause: Cause | None = None) -> None:
        self.until(self.now + self.about(ns), cause)

    @contextmanager
    def doing(self, cause: Cause) -> Iterator[None]:
        """What the time until the end of the block is spent on."""
        before, self._cause = self._cause, cause
        yield
        self._cause = before

    @contextmanager
    def on(self, thread: int, name: str) -> Iterator[None]:
        """Pass the baton to another thread; this one waits for it."""
        before, self._thread = self._thread, thread
        self.threads.setdefault(self.pid + thread, name)
        if thread in self._left:
            self._blocked(thread, self._left[thread])
        start = self.now
        yield
        self._thread, self._left[thread] = before, self.now
        self._blocked(before, start)

    def _blocked(self, thread: int, since: int) -> None:
        """This thread had nothing to do until now."""
        row = Range(
            since, self.now, self.index, self.pid + thread, "pthread_cond_wait", RangeKind.SYSTEM
        )
        self.ranges.append(row)

    @contextmanager
    def inside(self, name: str, kind: RangeKind, cause: Cause | None = None) -> Iterator[None]:
        """A range around the block."""
        start, thread = self.now, self.pid + self._thread
        with self.doing(self._cause if cause is None else cause):
            yield
        if kind is not RangeKind.PYTHON or self.is_python_recorded:
            self.ranges.append(Range(start, self.now, self.index, thread, name, kind))

    def preempted(self, ns: int) -> None:
        """The operating system gives the core to somebody else."""
        start = self.now
        self.spend(ns, Cause.CPU_CONTENTION)
        self.sched.append(Runnable(start, self.now, self.index, self.pid + self._thread))

    # ---- API calls

    @contextmanager
    def call(self, name: str) -> Iterator[int]:
        """An API call around the block; gives its correlation id."""
        self._corr += 1
        corr, start = self._corr, self.now
        yield corr
        self.calls.append(Call(start, self.now, self.index, self.pid + self._thread, name, corr))

    def launch(
        self,
        stream: Stream,
        name: str,
        ns: int,
        kind: Kind = Kind.COMPUTE,
        *,
        api: str = "cudaLaunchKernel",
        takes: int = 4 * US,
        size: int = -1,
        pageable: int = -1,
        group: str = "",
        seq: int = -1,
    ) -> Op:
        """One op through one call, which blocks while the queue of the device is full."""
        with self.call(api) as corr:
            self._place(stream.gpu)
            if (
                self.lazy_ns and name not in self.loaded and kind is not Kind.H2D
            ):  # copies have no kernel
                self.spend(self.lazy_ns, Cause.MODULE_LOAD)
            self.loaded.add(name)
            self.spend(takes, Cause.LAUNCH)
        return self.enqueue(stream, name, ns, kind, corr, self._seen(), size, pageable, group, seq)

    def staged_copy(self, stream: Stream, size: int, staging: int, ns: int) -> Op:
        """A copy from pageable memory: the call returns when the driver has staged it, just after
        the copy starts.
        """
        with self.call("cudaMemcpyAsync") as corr:
            self.spend(staging, Cause.H2D_STAGING)
            op = self.enqueue(
                stream,
                "Memcpy HtoD (Pageable -> Device)",
                ns,
                Kind.H2D,
                corr,
                self.now,
                size,
                pageable=1,
            )
            self.spend(2 * US, Cause.H2D_STAGING)
            op.submitted = self.now
        return op

    def graph(self, stream: Stream, nodes: Sequence[tuple[str, int]]) -> list[Op]:
        """A CUDA graph: one call, and its nodes run back to back."""
        with self.call("cudaGraphLaunch") as corr:
            self._place(stream.gpu)
            self.spend(12 * US, Cause.LAUNCH)
        visible = self._seen()
        ops = [self.enqueue(stream, name, ns, Kind.COMPUTE, corr, visible) for name, ns in nodes]
        for op in ops:
            op.graph = True
        return ops

    def record(self, stream: Stream) -> Event:
        with self.call("cudaEventRecord") as corr:
            self.spend(1 * US, Cause.LAUNCH)
        return Event(stream.tail, stream, corr)

    def wait_event(self, stream: Stream, event: Event, slow: int = 0) -> None:
        """Work of this stream from now on waits for the event; `slow` is what passing it on takes
        beyond the usual.
        """
        with self.call("cudaStreamWaitEvent") as corr:
            self.spend(1 * US, Cause.LAUNCH)
        free = event.done + self.about(1 * US + slow)
        if free >= stream.free:
            stream.free, stream.held = free, Cause.DEPENDENCY if slow else Cause.LAUNCH_LATENCY
            if event.stream.gpu != stream.gpu:
                stream.held = Cause.PEER
        self.waits.append(
            Wait(
                self.index,
                stream.gpu,
                corr,
                stream.number,
                event.stream.gpu,
                event.stream.number,
                event.corr,
            )
        )

    def sync(
        self,
        *streams: Stream,
        wake: int = 3 * US,
        api: str = "cudaStreamSynchronize",
        cause: Cause = Cause.SYNC,
    ) -> None:
        """Wait until these streams are done; the thread runs again `wake` later."""
        with self.call(api), self.doing(cause):
            self.spend(1 * US)
            self.until(max(stream.tail for stream in streams))
            self.spend(wake)

    def allocate(self, api: str, ns: int) -> None:
        """cudaMalloc or cudaFree; the latter waits for the device first."""
        with self.call(api), self.doing(Cause.ALLOC):
            if api == "cudaFree":
                self.until(max(stream.tail for stream in self.streams.values()))
            self.spend(ns)

    def _seen(self) -> int:
        """When the device sees what the call that just returned gave it: often a little before it
        returned.
        """
        return self.now - 2 * US + self.about(5 * US, 0.9)

    def _place(self, gpu: int) -> None:
        queued = self._queued.setdefault(gpu, deque(maxlen=DEPTH))
        if len(queued) == DEPTH:
            self.until(queued[0], Cause.QUEUE_FULL)

    def enqueue(
        self,
        stream: Stream,
        name: str,
        ns: int,
        kind: Kind,
        corr: int,
        visible: int,
        size: int = -1,
        pageable: int = -1,
        group: str = "",
        seq: int = -1,
    ) -> Op:
        """Give the device an op that the call `corr`, which is still open or has just returned, is
        for.
        """
        start = max(visible, stream.tail, stream.free)
        held = stream.held if stream.free > max(visible, stream.tail) else None
        end = start + self.about(ns, 0.05)
        op = Op(
            self.index,
            stream.gpu,
            stream.number,
            kind,
            name,
            corr,
            self.now,
            visible,
            start,
            end,
            held,
            size,
            pageable,
            group,
            seq,
        )
        stream.tail = end
        self._queued.setdefault(stream.gpu, deque(maxlen=DEPTH)).append(start)
        self.ops.append(op)
        return op

    def process(self) -> Process:
        return Process(
            self.pid, "python train.py", self.rank, self.threads, tuple(self.gpus), self.skew_ns
        )


def recorded(hosts: Sequence[Host], idle: Sequence, proxies: Sequence, steps: int) -> Run:
    """All that happened, in the order of time."""

    def rows(table: str) -> tuple:
        return tuple(
            sorted(
                (row for host in hosts for row in getattr(host, table)), key=lambda row: row.start
            )
        )

    waits = tuple(wait for host in hosts for wait in host.waits)
    return Run(
        tuple(host.process() for host in hosts),
        rows("ops"),
        rows("calls"),
        rows("ranges"),
        waits,
        rows("sched"),
        rows("stages"),
        tuple(idle),
        tuple(proxies),
        steps,
    )
