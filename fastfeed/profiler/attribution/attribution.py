"""One device: what it did, and a cause for every nanosecond in which it did nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.attribution.classify import Doing
from fastfeed.profiler.attribution.device_causes import calls_in_gaps, queues_in_gaps
from fastfeed.profiler.attribution.gaps import Gaps, find_gaps
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.attribution.host_causes import Pieces, attribute, join
from fastfeed.profiler.attribution.time_breakdown import budget, busy_sets
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.intervals import empty, intersect, measure, overlap, spans, subtract, union
from fastfeed.profiler.model.result import InputWait, Period, Slices
from fastfeed.profiler.model.trace import Trace

__all__ = ["Attribution", "attribute_device", "caused", "period"]

_RAMP = (Cause.LAUNCH, Cause.FRAMEWORK, Cause.GC, Cause.GIL, Cause.PYTHON, Cause.LATENCY)


@dataclass(frozen=True, slots=True)
class Attribution:
    """What a device did from its first op to its last, and why not more."""

    busy: Mapping[str, np.ndarray]  # disjoint sets, see budget.BUSY
    edges: np.ndarray  # [start of the first op, end of the last]
    gaps: Gaps
    slices: Slices
    waits: np.ndarray  # set: the threads that launch, or drive, waited for input
    ramp: np.ndarray  # set: idle launch time in which the queue filled up again after a wait
    rows: np.ndarray  # int64, the device's ops in Trace.ops, by start
    launch: np.ndarray  # int64, the call of each of them; -1 unknown


def attribute_device(trace: Trace, device: int, host: Host) -> Attribution:
    """Give every idle nanosecond of a device one cause.

    The slices are disjoint and sum to the idle time: asserted, for the whole report stands on it.
    """
    launch = host.launch
    busy, edges = busy_sets(trace, device)
    gaps = find_gaps(trace, device, busy, edges, launch)
    rows = np.flatnonzero(trace.ops.device == device)
    rows = rows[np.argsort(trace.ops.start[rows], kind="stable")]
    known = gaps.call >= 0
    processes = trace.ops.process[gaps.op]
    thread = np.where(known, trace.calls.thread[gaps.call] if len(trace.calls.thread) else -1, -1)
    mine = np.isin(trace.overheads.process, np.unique(trace.ops.process[rows]))
    overhead = union(spans(trace.overheads.start[mine], trace.overheads.end[mine]))
    pieces = [Pieces.of(gaps.late[~known], Cause.NO_LAUNCH)]
    pieces += attribute(host, gaps.late[known], thread[known], processes[known], overhead)
    pieces += calls_in_gaps(trace, gaps, host, union(*busy.values()))
    pieces += queues_in_gaps(trace, gaps, host)
    whole = join(pieces)
    slices = Slices(
        start=whole.span[:, 0],
        end=whole.span[:, 1],
        cause=whole.cause,
        gap=(np.searchsorted(gaps.start, whole.span[:, 0], side="right") - 1).astype(np.int32),
        thread=whole.thread,
        name=whole.name,
    )
    idle, found = int((gaps.end - gaps.start).sum()), measure(whole.span)
    disjoint = bool((slices.start[1:] >= slices.end[:-1]).all())
    if found != idle or not disjoint:
        raise AssertionError(f"{found} ns of {idle} ns idle have a cause; disjoint: {disjoint}")
    of_rows = launch[rows]
    waits = _waits(trace, host, rows, of_rows)
    return Attribution(busy, edges, gaps, slices, waits, _ramp(trace, slices, rows, of_rows), rows, of_rows)


def _waits(trace: Trace, host: Host, rows: np.ndarray, launch: np.ndarray) -> np.ndarray:
    """When a thread that launches, or drives a process that does, waited for input."""
    callers = np.unique(trace.calls.thread[launch[launch >= 0]]) if len(trace.calls.thread) else np.empty(0, np.int32)
    drivers = [host.driver(int(process)) for process in np.unique(trace.ops.process[rows])]
    threads = {*map(int, callers), *drivers} - {-1}
    return union(*(union(host.what(thread, Doing.INPUT), host.iterators(thread)) for thread in threads))


def _ramp(trace: Trace, slices: Slices, rows: np.ndarray, launch: np.ndarray) -> np.ndarray:
    """Idle launch time from the end of an input wait until the host is as far ahead of the device as it usually is."""
    waited = slices.end[slices.cause == Cause.INPUT]
    known = launch >= 0
    if not len(waited) or not known.any():
        return empty()
    start = trace.ops.start[rows[known]]
    lead = start - trace.calls.end[launch[known]]
    ahead = start[lead >= np.median(lead)]
    until = np.concatenate([ahead, [start[-1]]])
    ends = until[np.searchsorted(ahead, waited)]
    after = union(spans(waited, np.maximum(waited, ends)))
    return intersect(caused(slices, *_RAMP), after)


def caused(slices: Slices, *causes: Cause) -> np.ndarray:
    """The set of idle nanoseconds with one of these causes."""
    rows = np.isin(slices.cause, causes)
    return union(spans(slices.start[rows], slices.end[rows]))


def period(found: Attribution, window: np.ndarray) -> Period:
    """The budget of a window, a set of spans, and the causes of its idle time."""
    parts = budget(found.busy, window)
    slices = found.slices
    length = overlap(spans(slices.start, slices.end), window)
    sums = _sums(slices.cause, length)
    causes = {cause: int(sums[cause]) for cause in Cause if sums[cause]}
    if sum(causes.values()) != parts.idle:
        raise AssertionError(f"causes sum to {sum(causes.values())} ns, idle is {parts.idle} ns")
    return Period(window, parts, causes, _input(found, window))


def _sums(cause: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Exact sums per cause: bincount's weights are floating-point."""
    sums = np.zeros(len(Cause), np.int64)
    np.add.at(sums, cause, length)
    return sums


def _input(found: Attribution, window: np.ndarray) -> InputWait:
    waits = intersect(found.waits, window)
    length = waits[:, 1] - waits[:, 0]
    busy = union(*found.busy.values())
    hidden = measure(intersect(waits, busy))
    return InputWait(
        total=int(length.sum()),
        exposed=measure(subtract(waits, busy)),
        hidden=hidden,
        ramp=measure(intersect(found.ramp, window)),
        waits=len(waits),
        longest=int(length.max(initial=0)),
    )
