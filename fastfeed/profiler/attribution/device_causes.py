"""Causes of idle time during launch calls, and from their return to the op's start."""

from __future__ import annotations

import re

import numpy as np

from fastfeed.profiler.attribution.classify import Activity
from fastfeed.profiler.attribution.gaps import Gaps
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.attribution.host_causes import AttributedSpans
from fastfeed.profiler.attribution.launches import LOADS_NS
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.columns import distinct
from fastfeed.profiler.model.intervals import overlap, spans
from fastfeed.profiler.model.trace import Kind, Trace

_MAX_LATENCY_NS = 100_000  # no launch takes longer than this to reach the device
_MIN_QUEUE_NS = 10_000  # a shorter queue is always latency
_MIN_USUAL = 3  # gaps; fewer do not show which latency is usual
_HOLDS_STREAM = re.compile(
    r"launchhostfunc|streamaddcallback|stream(waitvalue|batchmem)|waitexternalsemaphore", re.I
)
_GRAPH = re.compile(r"graphlaunch", re.I)  # its nodes may wait for each other, and for the host


def launch_call_causes(
    trace: Trace, gaps: Gaps, host: Host, busy: np.ndarray
) -> list[AttributedSpans]:
    """Idle time during launch calls: staging, loading, allocating, a full queue, or launching."""
    rows = np.flatnonzero(gaps.call_end > gaps.late_end)
    if not len(rows):
        return []
    ops, calls = trace.ops, trace.calls
    op, call, span = gaps.op[rows], gaps.call[rows], spans(gaps.late_end[rows], gaps.call_end[rows])
    is_first = host.is_first_use[op]
    is_long = host.is_long_call[call] | (
        is_first & (calls.end[call] - calls.start[call] > LOADS_NS)
    )
    cause = np.full(len(rows), Cause.LAUNCH, np.uint8)
    cause[is_long & is_first & (ops.kind[op] != Kind.H2D)] = Cause.MODULE_LOAD
    device_busy = overlap(spans(calls.start[call], calls.start[call] + 1), busy) > 0
    cause[is_long & ~is_first & device_busy & (ops.kind[op] == Kind.COMPUTE)] = Cause.QUEUE_FULL
    thread = calls.thread[call]
    long_rows = np.flatnonzero(is_long)
    for number in distinct(thread[long_rows]).tolist():
        own = long_rows[thread[long_rows] == number]
        half = (span[own, 1] - span[own, 0]) / 2
        allocating = overlap(span[own], host.spans_of(number, Activity.ALLOC))
        cause[own[allocating > half]] = Cause.ALLOC
        cause[own[overlap(span[own], host.contention(number)) > half]] = Cause.CPU_CONTENTION
    cause[host.call_activity[call] == Activity.COPY] = Cause.COPY
    cause[(ops.kind[op] == Kind.H2D) & (ops.pageable[op] == 1)] = Cause.H2D_STAGING
    return [AttributedSpans(span, cause, thread.astype(np.int32), calls.name[call])]


def queue_causes(trace: Trace, gaps: Gaps, host: Host) -> list[AttributedSpans]:
    """Idle time with an op launched: the usual latency, or an order between streams or devices.

    A queue that is longer than usual is a dependency if the op was launched before the gap (so the
    launch was not late) or if its stream was waiting for an event. If no stream can be waiting, the
    GPU was not available to this process. Work of another device that ended in the meantime is the
    cause whatever is usual: if every step waits for it, that wait is the usual length.
    """
    rows = np.flatnonzero(gaps.end > gaps.call_end)
    if not len(rows):
        return []
    ops, calls = trace.ops, trace.calls
    span, op, call = spans(gaps.call_end[rows], gaps.end[rows]), gaps.op[rows], gaps.call[rows]
    length = span[:, 1] - span[:, 0]
    in_gap = calls.start[call] > gaps.start[rows]
    usual = max(
        _MIN_QUEUE_NS, int(np.percentile(length[in_gap], 90)) if in_gap.sum() >= _MIN_USUAL else 0
    )
    is_longer = length > usual
    needs_producer = is_longer | (length > _MAX_LATENCY_NS)
    producer = np.full(len(rows), -1, np.int64)
    producer[needs_producer] = producers(host, op[needs_producer])
    cause = np.full(len(rows), Cause.LAUNCH_LATENCY, np.uint8)
    cause[is_longer & (~in_gap | (producer >= 0) | (length > _MAX_LATENCY_NS))] = Cause.DEPENDENCY
    # a process with several devices starts a collective on all of them or on none
    peers = np.flatnonzero((cause == Cause.DEPENDENCY) & (producer < 0))
    peers = peers[ops.kind[op[peers]] == Kind.COMM]
    if len(peers):
        cause[peers[np.isin(ops.process[op[peers]], _multi_device_processes(trace))]] = Cause.PEER
    alone = np.flatnonzero((cause == Cause.DEPENDENCY) & (producer < 0))
    alone = alone[_cannot_wait(trace, op[alone], call[alone])]
    cause[alone] = Cause.GPU_SHARED
    loads = host.is_first_use[op[alone]] & (length[alone] > _MAX_LATENCY_NS)
    cause[alone[loads & (ops.kind[op[alone]] == Kind.COMPUTE)]] = Cause.MODULE_LOAD
    known_rows = np.flatnonzero(producer >= 0)
    ended = ops.end[producer[known_rows]]
    inside = (ended >= span[known_rows, 0]) & (ended <= span[known_rows, 1])
    elsewhere = ops.device[producer[known_rows]] != ops.device[op[known_rows]]
    cause[known_rows[inside & elsewhere]] = Cause.PEER
    name = np.full(len(rows), -1, np.int32)
    name[known_rows] = ops.name[producer[known_rows]]
    return [AttributedSpans(span, cause, calls.thread[call].astype(np.int32, copy=False), name)]


def _cannot_wait(trace: Trace, op: np.ndarray, call: np.ndarray) -> np.ndarray:
    """Mask of ops that, by the record, wait for no stream, host function or graph node: (n,)."""
    ops, waits, calls = trace.ops, trace.waits, trace.calls
    streams = np.unique(np.column_stack([ops.process, ops.device, ops.stream]), axis=0)
    with_several = streams[:-1, 0][streams[1:, 0] == streams[:-1, 0]]
    unseen = np.setdiff1d(with_several, waits.process)
    held = trace.process_of(calls.thread[trace.matches(calls.name, _HOLDS_STREAM)])
    may_wait = np.isin(
        ops.process[op], np.concatenate([unseen, held, _multi_device_processes(trace)])
    )
    waiting_streams = np.unique(np.column_stack([waits.process, waits.stream]), axis=0)
    for process, stream in waiting_streams.tolist():
        may_wait |= (ops.process[op] == process) & ((ops.stream[op] == stream) | (stream < 0))
    return ~(may_wait | trace.matches(calls.name[call], _GRAPH))


def _multi_device_processes(trace: Trace) -> np.ndarray:
    """Processes that drive several devices."""
    width = len(trace.devices) + 1
    pairs = distinct(trace.ops.process.astype(np.int64) * width + trace.ops.device)
    process, count = np.unique(pairs // width, return_counts=True)
    return process[count > 1]


def producers(host: Host, op: np.ndarray) -> np.ndarray:
    """Index into Trace.ops of the op each of these waited for: int64, shape (len(op),); or -1.

    The latest wait of the op's stream before its launch identifies an event and the stream it was
    recorded on. The producer is the last op launched on that stream before the recording.
    """
    trace = host.trace
    result = np.full(len(op), -1, np.int64)
    waits, ops, calls = trace.waits, trace.ops, trace.calls
    if not len(waits.corr) or not len(calls.start) or not len(op):
        return result
    waiting, recording = host.wait_calls()
    wait_start = np.where(waiting >= 0, calls.start[waiting], -1)
    # else the time of the wait
    record_start = np.where(recording >= 0, calls.start[recording], wait_start)
    launch_start = np.where(host.launch >= 0, calls.start[host.launch], ops.start)
    streams = np.unique(np.concatenate([ops.stream, waits.stream, waits.on_stream]))

    def stream_key(process: np.ndarray, stream: np.ndarray) -> np.ndarray:
        return process.astype(np.int64) * len(streams) + np.searchsorted(streams, stream)

    usable = np.flatnonzero((waiting >= 0) & (waits.on_stream >= 0))
    wait = _last_before(
        stream_key(waits.process[usable], waits.stream[usable]),
        wait_start[usable],
        stream_key(ops.process[op], ops.stream[op]),
        launch_start[op],
    )
    with_wait = np.flatnonzero(wait >= 0)
    wait = usable[wait[with_wait]]
    source_key = stream_key(waits.process[wait], waits.on_stream[wait])
    op_key = stream_key(ops.process, ops.stream)
    candidates = np.flatnonzero(np.isin(op_key, source_key))
    last = _last_before(
        op_key[candidates], launch_start[candidates], source_key, record_start[wait]
    )
    result[with_wait[last >= 0]] = candidates[last[last >= 0]]
    return result


def _last_before(
    key: np.ndarray, at: np.ndarray, target: np.ndarray, limit: np.ndarray
) -> np.ndarray:
    """Index of each target key's latest row with `at` less than `limit`: int64, or -1."""
    result = np.full(len(target), -1, np.int64)
    if not len(key) or not len(target):
        return result
    times, rank = np.unique(np.concatenate([at, limit]), return_inverse=True)
    keys = key * len(times) + rank[: len(at)]
    order = np.argsort(keys, kind="stable")
    position = np.searchsorted(keys[order], target * len(times) + rank[len(at) :]) - 1
    matches = np.flatnonzero((position >= 0) & (key[order[position]] == target))
    result[matches] = order[position[matches]]
    return result
