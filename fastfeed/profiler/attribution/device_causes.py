"""The other two parts of a gap: the launch call itself, and the time from its return to the op's start."""

from __future__ import annotations

import numpy as np

from fastfeed.profiler.attribution.classify import Doing
from fastfeed.profiler.attribution.dependencies import producers
from fastfeed.profiler.attribution.gaps import Gaps
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.attribution.host_causes import Pieces
from fastfeed.profiler.attribution.launches import LOADS_NS
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.intervals import overlap, spans
from fastfeed.profiler.model.trace import Kind, Trace

__all__ = ["calls_in_gaps", "queues_in_gaps"]

_NO_LATENCY_NS = 100_000  # no launch takes that long to arrive
_LEAST_NS = 10_000  # below it a queue is latency, whatever the others are


def calls_in_gaps(trace: Trace, gaps: Gaps, host: Host, busy: np.ndarray) -> list[Pieces]:
    """Why a launch call was open while the device idled: staging, loading, allocating, a full queue, or launching."""
    rows = np.flatnonzero(gaps.call_end > gaps.late_end)
    if not len(rows):
        return []
    ops, calls = trace.ops, trace.calls
    op, call, span = gaps.op[rows], gaps.call[rows], gaps.in_call[rows]
    first = host.first_use[op]
    long = host.long[call] | (first & (calls.end[call] - calls.start[call] > LOADS_NS))
    cause = np.full(len(rows), Cause.LAUNCH, np.uint8)
    cause[long & first & (ops.kind[op] != Kind.H2D)] = Cause.MODULE_LOAD
    queue = overlap(spans(calls.start[call], calls.start[call] + 1), busy) > 0
    cause[long & ~first & queue & (ops.kind[op] == Kind.COMPUTE)] = Cause.QUEUE_FULL
    thread = calls.thread[call]
    longest = np.flatnonzero(long)
    longest = longest[np.argsort(thread[longest], kind="stable")]
    for mine in np.split(longest, np.flatnonzero(np.diff(thread[longest])) + 1) if len(longest) else ():
        one = thread[mine[0]]
        inner = overlap(span[mine], host.what(int(one), Doing.ALLOC))
        cause[mine[inner * 2 > span[mine, 1] - span[mine, 0]]] = Cause.ALLOC
        inner = overlap(span[mine], host.contention(int(one)))
        cause[mine[inner * 2 > span[mine, 1] - span[mine, 0]]] = Cause.CONTENTION
    blocking = host.call_doing[call] == Doing.COPY
    cause[blocking] = Cause.COPY
    cause[(ops.kind[op] == Kind.H2D) & (ops.pageable[op] == 1)] = Cause.H2D_STAGING
    return [Pieces(span, cause, thread.astype(np.int32), calls.name[call])]


def queues_in_gaps(trace: Trace, gaps: Gaps, host: Host) -> list[Pieces]:
    """Why a launched op had not begun: the usual latency, or an order between streams or devices.

    What is longer than usual counts as held back when it was launched before the gap, so that the launch was not
    late, or when its stream had been told to wait. Work of another device that ended meanwhile holds it whatever is
    usual: where every step waits for it, the wait is what is usual.
    """
    rows = np.flatnonzero(gaps.end > gaps.call_end)
    if not len(rows):
        return []
    ops, calls = trace.ops, trace.calls
    span, op, call = gaps.queued[rows], gaps.op[rows], gaps.call[rows]
    length = span[:, 1] - span[:, 0]
    in_gap = calls.start[call] > gaps.start[rows]
    usual = max(_LEAST_NS, int(np.percentile(length[in_gap], 90)) if in_gap.any() else 0)
    held = length > usual
    asked = held | (length > _NO_LATENCY_NS)
    producer = np.full(len(rows), -1, np.int64)
    producer[asked] = producers(host, op[asked])
    cause = np.full(len(rows), Cause.LATENCY, np.uint8)
    cause[held & (~in_gap | (producer >= 0) | (length > _NO_LATENCY_NS))] = Cause.DEPENDENCY
    # one process with several devices starts a collective on all of them, or on none
    shared = np.isin(ops.process[op], _with_devices(trace))
    cause[(cause == Cause.DEPENDENCY) & (producer < 0) & shared & (ops.kind[op] == Kind.COMM)] = Cause.PEER
    known = np.flatnonzero(producer >= 0)
    ended = ops.end[producer[known]]
    inside = (ended >= span[known, 0]) & (ended <= span[known, 1])
    elsewhere = ops.device[producer[known]] != ops.device[op[known]]
    cause[known[inside & elsewhere]] = Cause.PEER
    name = np.where(producer >= 0, ops.name[producer], -1)
    return [Pieces(span, cause, calls.thread[call].astype(np.int32), name.astype(np.int32))]


def _with_devices(trace: Trace) -> np.ndarray:
    """The processes that drive several devices."""
    many = len(trace.devices) + 1
    pairs = np.unique(trace.ops.process.astype(np.int64) * many + trace.ops.device)
    process, count = np.unique(pairs // many, return_counts=True)
    return process[count > 1]
