"""A cause for every idle nanosecond of one device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.attribution.device_causes import launch_call_causes, queue_causes
from fastfeed.profiler.attribution.drains import with_drains
from fastfeed.profiler.attribution.gaps import Gaps, find_gaps
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.attribution.host_causes import AttributedSpans, host_causes, in_time_order
from fastfeed.profiler.attribution.time_breakdown import break_down, busy_sets, op_edges
from fastfeed.profiler.model.causes import INPUT_CAUSES, Cause
from fastfeed.profiler.model.columns import distinct
from fastfeed.profiler.model.intervals import (
    by_start,
    empty,
    intersect,
    measure,
    overlap,
    spans,
    spans_at,
    subtract,
    union,
)
from fastfeed.profiler.model.result import InputWait, Period, Slices
from fastfeed.profiler.model.trace import Trace

__all__ = ["Attribution", "attribute_device", "spans_with_cause", "summarize_period"]

_RAMP = (Cause.LAUNCH, Cause.FRAMEWORK, Cause.GC, Cause.GIL, Cause.PYTHON, Cause.LAUNCH_LATENCY)


@dataclass(frozen=True, slots=True)
class Attribution:
    """Work of a device from its first op to its last, and the causes of the gaps."""

    busy: Mapping[str, np.ndarray]  # disjoint sets, see time_breakdown.BUSY
    covered: np.ndarray  # set: all of these
    edges: np.ndarray  # [beginning, end] of the recording of the device
    gaps: Gaps
    slices: Slices
    waits: np.ndarray  # set: the launching or main threads waited for input
    ramp: np.ndarray  # set: idle launch time while the queue refilled after a wait
    rows: np.ndarray  # int64, the device's ops in Trace.ops, by start
    launch: np.ndarray  # int64, the launch call of each row; -1 unknown


def attribute_device(
    trace: Trace, device: int, host: Host, edges: np.ndarray | None = None
) -> Attribution:
    """Give every idle nanosecond of a device between two edges one cause.

    The default edges are its first op and its last. The slices are disjoint and sum to the idle
    time: asserted, because the whole report depends on it.
    """
    launch = host.launch
    edges = op_edges(trace, device) if edges is None else edges
    busy = busy_sets(trace, device, edges)
    covered = union(*busy.values())
    gaps = find_gaps(trace, device, busy, edges, launch)
    rows = np.flatnonzero(trace.ops.device == device)
    rows = by_start(trace.ops, rows)
    is_known = gaps.call >= 0
    processes = distinct(trace.ops.process[rows])
    thread = np.where(
        is_known, trace.calls.thread[gaps.call] if len(trace.calls.thread) else -1, -1
    )
    of_device = np.isin(trace.overheads.process, processes)
    overhead = union(spans_at(trace.overheads, of_device))
    parts = [AttributedSpans.of(gaps.late[~is_known], Cause.NO_LAUNCH)]
    parts += host_causes(
        host, gaps.late[is_known], thread[is_known], trace.ops.process[gaps.op[is_known]], overhead
    )
    parts += launch_call_causes(trace, gaps, host, covered)
    parts += queue_causes(trace, gaps, host)
    joined = with_drains(host, gaps, rows, in_time_order(parts))
    start, end = joined.span[:, 0], joined.span[:, 1]
    # slices of one gap touch, and gaps do not
    is_new = np.concatenate([[False], start[1:] != end[:-1]])
    slices = Slices(
        start=start,
        end=end,
        cause=joined.cause,
        gap=np.cumsum(is_new[: len(start)], dtype=np.int32),
        thread=joined.thread,
        name=joined.name,
    )
    idle, attributed = int((gaps.end - gaps.start).sum()), measure(joined.span)
    disjoint = bool((slices.start[1:] >= slices.end[:-1]).all())
    if attributed != idle or not disjoint:
        raise AssertionError(
            f"{attributed} ns of {idle} ns idle have a cause; disjoint: {disjoint}"
        )
    row_launch = launch[rows]
    waits, ramp = _waits(trace, host, processes, row_launch), _ramp(trace, slices, rows, row_launch)
    return Attribution(busy, covered, edges, gaps, slices, waits, ramp, rows, row_launch)


def _waits(trace: Trace, host: Host, processes: np.ndarray, launch: np.ndarray) -> np.ndarray:
    """Input waits of the threads that launch, and of the main threads of their processes."""
    callers = (
        distinct(trace.calls.thread[launch[launch >= 0]])
        if len(trace.calls.thread)
        else np.empty(0, np.int32)
    )
    main_threads = [host.main_thread(int(process)) for process in processes]
    threads = {*map(int, callers), *main_threads} - {-1}
    return union(
        *(union(host.input_spans(thread), host.tf_data_waits(thread)) for thread in threads)
    )


def _ramp(trace: Trace, slices: Slices, rows: np.ndarray, launch: np.ndarray) -> np.ndarray:
    """Idle launch time after each input wait until the host is as far ahead as usual."""
    waited = slices.end[np.isin(slices.cause, INPUT_CAUSES)]
    is_known = launch >= 0
    if not len(waited) or not is_known.any():
        return empty()
    start = trace.ops.start[rows[is_known]]
    lead = start - trace.calls.end[launch[is_known]]
    ahead = start[lead >= np.median(lead)]
    until = np.concatenate([ahead, [start[-1]]])
    ends = until[np.searchsorted(ahead, waited)]
    after = union(spans(waited, np.maximum(waited, ends)))
    return intersect(spans_with_cause(slices, *_RAMP), after)


def spans_with_cause(slices: Slices, *causes: Cause) -> np.ndarray:
    """The set of idle nanoseconds with one of these causes."""
    rows = np.isin(slices.cause, causes)
    return union(spans_at(slices, rows))


def summarize_period(attribution: Attribution, window: np.ndarray) -> Period:
    """The time breakdown of a window (a set of spans), and the causes of its idle time."""
    parts = break_down(attribution.busy, window)
    slices = attribution.slices
    length = overlap(spans_at(slices), window)
    sums = _exact_sums(slices.cause, length)
    causes = {cause: int(sums[cause]) for cause in Cause if sums[cause]}
    if sum(causes.values()) != parts.idle:
        raise AssertionError(f"causes sum to {sum(causes.values())} ns, idle is {parts.idle} ns")
    return Period(window, parts, causes, _input_wait(attribution, window))


def _exact_sums(cause: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Exact sums per cause: bincount would sum in floating point."""
    sums = np.zeros(len(Cause), np.int64)
    np.add.at(sums, cause, length)
    return sums


def _input_wait(attribution: Attribution, window: np.ndarray) -> InputWait:
    waits = intersect(attribution.waits, window)
    length = waits[:, 1] - waits[:, 0]
    busy = attribution.covered
    hidden = measure(intersect(waits, busy))
    return InputWait(
        total=int(length.sum()),
        exposed=measure(subtract(waits, busy)),
        hidden=hidden,
        ramp=measure(intersect(attribution.ramp, window)),
        waits=len(waits),
        longest=int(length.max(initial=0)),
    )
