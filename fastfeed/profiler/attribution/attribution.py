"""A cause for every idle nanosecond of one device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.attribution.classify import Activity
from fastfeed.profiler.attribution.gaps import Gaps, break_down, busy_sets, find_gaps, op_edges
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.attribution.host_causes import AttributedSpans, host_causes, in_time_order
from fastfeed.profiler.attribution.host_code.names import parse
from fastfeed.profiler.attribution.launches import LOADS_NS
from fastfeed.profiler.model.causes import INPUT_CAUSES, Cause
from fastfeed.profiler.model.columns import pick, unique_values
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
from fastfeed.profiler.model.trace import Kind, Trace

_RAMP = (Cause.LAUNCH, Cause.FRAMEWORK, Cause.GC, Cause.GIL, Cause.PYTHON, Cause.LAUNCH_LATENCY)
_CATCHING_UP = (Cause.LAUNCH, Cause.FRAMEWORK, Cause.PYTHON, Cause.LAUNCH_LATENCY)
_LONGEST_NS = 500_000  # what the host does for longer, in one piece, is a separate cause
# of the time from the first operation to the last: less is harmless, and stays with what is done
_MIN_SHARE = 0.05
_OPERATOR = re.compile(r"^\w+::(?!_)")  # aten::item, not the aten::_local_scalar_dense inside of it
_MAX_LATENCY_NS = 100_000  # no launch takes longer than this to reach the device
_MIN_QUEUE_NS = 10_000  # a shorter queue is always latency
_MIN_USUAL = 3  # gaps; fewer do not show which latency is usual
_HOLDS_STREAM = re.compile(
    r"launchhostfunc|streamaddcallback|stream(waitvalue|batchmem)|waitexternalsemaphore", re.I
)
_GRAPH = re.compile(r"graphlaunch", re.I)  # its nodes may wait for each other, and for the host


@dataclass(frozen=True, slots=True)
class Attribution:
    """Work of a device from its first op to its last, and the causes of the gaps."""

    host: Host
    device: int  # index into Trace.devices
    busy: Mapping[str, np.ndarray]  # disjoint sets, see gaps.BUSY
    covered: np.ndarray  # set: all of these
    edges: np.ndarray  # [beginning, end] of the recording of the device
    gaps: Gaps
    slices: Slices
    waits: np.ndarray  # set: the launching or main threads waited for input
    ramp: np.ndarray  # set: idle launch time while the queue refilled after a wait
    rows: np.ndarray  # int64, the device's ops in Trace.ops, by start
    launch: np.ndarray  # int64, the launch call of each row; -1 unknown

    @property
    def trace(self) -> Trace:
        return self.host.trace


def attribute_device(host: Host, device: int, edges: np.ndarray | None = None) -> Attribution:
    """Give every idle nanosecond of a device between two edges one cause.

    The default edges are its first op and its last. The slices are disjoint and sum to the idle
    time: asserted, because the whole report depends on it.
    """
    trace = host.trace
    launch = host.launch
    edges = op_edges(trace, device) if edges is None else edges
    busy = busy_sets(trace, device, edges)
    covered = union(*busy.values())
    gaps = find_gaps(trace, device, busy, edges, launch)
    rows = by_start(trace.ops, np.flatnonzero(trace.ops.device == device))
    is_known = gaps.call >= 0
    processes = unique_values(trace.ops.process[rows])
    thread = pick(trace.calls.thread, gaps.call, -1)
    of_device = np.isin(trace.overheads.process, processes)
    overhead = union(spans_at(trace.overheads, of_device))
    parts = [AttributedSpans.of(gaps.late[~is_known], Cause.NO_LAUNCH)]
    parts += host_causes(
        host, gaps.late[is_known], thread[is_known], trace.ops.process[gaps.op[is_known]], overhead
    )
    parts += [launch_call_causes(host, gaps, covered), queue_causes(host, gaps)]
    joined = _with_drains(host, gaps, rows, in_time_order(parts))
    start = joined.span[:, 0]
    end = joined.span[:, 1]
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
    idle = int((gaps.end - gaps.start).sum())
    attributed = measure(joined.span)
    disjoint = bool((slices.start[1:] >= slices.end[:-1]).all())
    if attributed != idle or not disjoint:
        raise AssertionError(
            f"{attributed} ns of {idle} ns idle have a cause; disjoint: {disjoint}"
        )
    row_launch = launch[rows]
    waits = _waits(host, processes, row_launch)
    ramp = _ramp(trace, slices, rows, row_launch)
    return Attribution(
        host, device, busy, covered, edges, gaps, slices, waits, ramp, rows, row_launch
    )


def _waits(host: Host, processes: np.ndarray, launch: np.ndarray) -> np.ndarray:
    """Input waits of the threads that launch, and of the main threads of their processes."""
    callers = unique_values(host.trace.calls.thread[launch[launch >= 0]])
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


def _with_drains(
    host: Host, gaps: Gaps, rows: np.ndarray, causes: AttributedSpans
) -> AttributedSpans:
    """Charge synchronization with the idle time that would not be there without it.

    The host must get ahead of the device again after a synchronization has returned. The same
    recording is therefore played again without the time in synchronizing calls: every launch comes
    earlier by the time in such calls before it, and an operation starts when it is launched and the
    one before it has ended:

        start[j] = max(launch[j] - synchronized(launch[j]), end[j - 1])
        end[j] = start[j] + busy[j]

    where `busy[j]` is what operation j adds to the time in which the device is busy. Idle time that
    remains in the replay is not synchronization's. `rows` are the device's operations in Trace.ops
    by start, `causes` all idle time in order; slices of synchronization are named by their call
    site.
    """
    threads = _driving_threads(host, rows)
    synchronized = union(*(host.activity_spans(thread, Activity.SYNC) for thread in threads))
    if not len(synchronized) or not len(gaps.start):
        return causes
    length = causes.span[:, 1] - causes.span[:, 0]
    gap = np.searchsorted(gaps.start, causes.span[:, 0], side="right") - 1
    catching_up = [*_CATCHING_UP]
    if any(len(host.rows(thread, Activity.INPUT)) for thread in threads):
        # where waits for input are recorded, it is not one of them
        catching_up.append(Cause.HOST_UNKNOWN)
    avoidable = _avoidable(host, gaps, rows, synchronized)
    is_sync = causes.cause == Cause.SYNC
    np.subtract.at(avoidable, gap[is_sync], length[is_sync])
    catches_up = np.isin(causes.cause, catching_up) & (length < _LONGEST_NS)
    reach = np.cumsum(np.where(catches_up, length, 0))
    first = np.searchsorted(gap, np.arange(len(gaps.start)))
    before = reach - np.where(catches_up, length, 0)
    charged = np.clip(
        avoidable[gap] - (before - before[np.minimum(first[gap], len(gap) - 1)]), 0, length
    )
    charged[~catches_up] = 0
    first_op = host.trace.ops.start[rows[0]]
    last_op = host.trace.ops.end[rows].max()
    if charged.sum() < _MIN_SHARE * (last_op - first_op):
        charged[:] = 0
    return _named(host, _split(causes, charged))


def _driving_threads(host: Host, rows: np.ndarray) -> set[int]:
    """The main thread of each process, and the thread that launches most of these operations."""
    trace = host.trace
    launch = host.launch[rows]
    callers = trace.calls.thread[launch[launch >= 0]]
    callers = callers[callers >= 0]
    busiest = {int(np.argmax(np.bincount(callers)))} if len(callers) else set()
    main = {host.main_thread(int(process)) for process in unique_values(trace.ops.process[rows])}
    return (busiest | main) - {-1}


def _avoidable(host: Host, gaps: Gaps, rows: np.ndarray, synchronized: np.ndarray) -> np.ndarray:
    """Part of each gap between two operations that the replay lacks: int64 ns, shape (gaps,)."""
    ops = host.trace.ops
    calls = host.trace.calls
    start = ops.start[rows]
    end = ops.end[rows]
    reach = np.maximum.accumulate(end)
    busy = np.diff(reach, prepend=start[0]) - np.maximum(
        start - np.concatenate([start[:1], reach[:-1]]), 0
    )
    launch = host.launch[rows]
    ready = np.minimum(pick(calls.end, launch, start), start)
    between = np.flatnonzero((gaps.start >= start[0]) & (gaps.end <= start[-1]))
    ends_gap = np.searchsorted(start, gaps.end[between])
    # its latency, and what else kept it from starting, stay as they are
    ready[ends_gap] = start[ends_gap]
    ready = ready - _measure_before(synchronized, ready)
    idle = np.maximum.accumulate(ready - np.concatenate([[0], np.cumsum(busy)[:-1]]))
    until = idle[ends_gap] - idle[0]
    avoidable = np.zeros(len(gaps.start), np.int64)
    avoidable[between] = np.maximum((gaps.end - gaps.start)[between] - np.diff(until, prepend=0), 0)
    return avoidable


def _measure_before(covered: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Nanoseconds of a set of spans before each instant: int64."""
    total = np.concatenate([[0], np.cumsum(covered[:, 1] - covered[:, 0])])
    row = np.searchsorted(covered[:, 0], at, side="right") - 1
    inside = np.minimum(at, covered[row, 1]) - covered[row, 0]
    return np.where(row >= 0, total[row] + inside, 0)


def _split(causes: AttributedSpans, charged: np.ndarray) -> AttributedSpans:
    """Give the first `charged` nanoseconds of each slice to synchronization."""
    middle = causes.span[:, 0] + charged
    span = np.stack([causes.span[:, 0], middle, middle, causes.span[:, 1]], axis=1).reshape(-1, 2)
    cause = np.stack([np.full(len(middle), Cause.SYNC, np.uint8), causes.cause], axis=1).ravel()
    kept = span[:, 1] > span[:, 0]
    return AttributedSpans(
        span[kept], cause[kept], causes.thread.repeat(2)[kept], causes.name.repeat(2)[kept]
    )


def _named(host: Host, causes: AttributedSpans) -> AttributedSpans:
    """Name slices of synchronization by the call site of the thread's latest synchronizing call."""
    name = causes.name.copy()
    is_sync = causes.cause == Cause.SYNC
    for thread in unique_values(causes.thread[is_sync]):
        calls = host.rows(int(thread), Activity.SYNC)
        rows = np.flatnonzero(is_sync & (causes.thread == thread))
        latest = np.searchsorted(host.start[calls], causes.span[rows, 0], side="right") - 1
        rows = rows[latest >= 0]
        used, inverse = np.unique(latest[latest >= 0], return_inverse=True)
        site = _call_sites(host, int(thread), host.start[calls[used]])
        name[rows] = np.where(site >= 0, site, host.name[calls[used]])[inverse]
    return AttributedSpans(causes.span, causes.cause, causes.thread, name)


def _call_sites(host: Host, thread: int, at: np.ndarray) -> np.ndarray:
    """The innermost frame of the program, else operator, at each instant: int32, or -1."""
    sites = np.full(len(at), -1, np.int32)
    operators = host.rows(thread, Activity.FRAMEWORK)
    operators = operators[host.trace.matches(host.name[operators], _OPERATOR)]
    functions = host.rows(thread, Activity.PYTHON)
    names = unique_values(host.name[functions])
    users = names[[parse(host.trace.name(name)).is_users for name in names.tolist()]]
    functions = functions[np.isin(host.name[functions], users)]
    for rows in (operators, functions):
        row = host.innermost_row(rows, at)
        sites[row >= 0] = host.name[row[row >= 0]]
    return sites


def launch_call_causes(host: Host, gaps: Gaps, busy: np.ndarray) -> AttributedSpans:
    """Idle time during launch calls: staging, loading, allocating, a full queue, or launching."""
    rows = np.flatnonzero(gaps.call_end > gaps.late_end)
    ops = host.trace.ops
    calls = host.trace.calls
    op = gaps.op[rows]
    call = gaps.call[rows]
    span = spans(gaps.late_end[rows], gaps.call_end[rows])
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
    for number in unique_values(thread[long_rows]).tolist():
        own = long_rows[thread[long_rows] == number]
        half = (span[own, 1] - span[own, 0]) / 2
        allocating = overlap(span[own], host.activity_spans(number, Activity.ALLOC))
        cause[own[allocating > half]] = Cause.ALLOC
        cause[own[overlap(span[own], host.contention(number)) > half]] = Cause.CPU_CONTENTION
    cause[host.call_activity[call] == Activity.COPY] = Cause.COPY
    cause[(ops.kind[op] == Kind.H2D) & (ops.pageable[op] == 1)] = Cause.H2D_STAGING
    return AttributedSpans(span, cause, thread.astype(np.int32), calls.name[call])


def queue_causes(host: Host, gaps: Gaps) -> AttributedSpans:
    """Idle time with an op launched: the usual latency, or an order between streams or devices.

    A queue that is longer than usual is a dependency if the op was launched before the gap (so the
    launch was not late) or if its stream was waiting for an event. If no stream can be waiting, the
    GPU was not available to this process. Work of another device that ended in the meantime is the
    cause whatever is usual: if every step waits for it, that wait is the usual length.
    """
    rows = np.flatnonzero(gaps.end > gaps.call_end)
    trace = host.trace
    ops = host.trace.ops
    calls = host.trace.calls
    span = spans(gaps.call_end[rows], gaps.end[rows])
    op = gaps.op[rows]
    call = gaps.call[rows]
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
    return AttributedSpans(span, cause, calls.thread[call].astype(np.int32, copy=False), name)


def _cannot_wait(trace: Trace, op: np.ndarray, call: np.ndarray) -> np.ndarray:
    """Mask of ops that, by the record, wait for no stream, host function or graph node: (n,)."""
    ops = trace.ops
    waits = trace.waits
    calls = trace.calls
    streams = np.unique(np.column_stack([ops.process, ops.device, ops.stream]), axis=0)
    with_several = streams[:-1, 0][streams[1:, 0] == streams[:-1, 0]]
    unseen = np.setdiff1d(with_several, waits.process)
    held = trace.thread_processes(calls.thread[trace.matches(calls.name, _HOLDS_STREAM)])
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
    pairs = unique_values(trace.ops.process.astype(np.int64) * width + trace.ops.device)
    process, count = np.unique(pairs // width, return_counts=True)
    return process[count > 1]


def producers(host: Host, op: np.ndarray) -> np.ndarray:
    """Index into Trace.ops of the op each of these waited for: int64, shape (len(op),); or -1.

    The latest wait of the op's stream before its launch identifies an event and the stream it was
    recorded on. The producer is the last op launched on that stream before the recording.
    """
    trace = host.trace
    result = np.full(len(op), -1, np.int64)
    waits = trace.waits
    ops = trace.ops
    calls = trace.calls
    if not len(waits.corr) or not len(calls.start) or not len(op):
        return result
    waiting, recording = host.wait_calls
    wait_start = pick(calls.start, waiting, -1)
    record_start = pick(calls.start, recording, wait_start)  # else the time of the wait
    launch_start = pick(calls.start, host.launch, ops.start)
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
