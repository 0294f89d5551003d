"""Idle time after a synchronization has returned: the host must get ahead of the device again.

The same recording is played again without the time that the host spent in synchronizing calls.
Every launch then comes earlier by the time in such calls before it, and an operation starts when
it is launched and the one before it has ended:

    start[j] = max(launch[j] - synchronized(launch[j]), end[j - 1])
    end[j] = start[j] + busy[j]

where `busy[j]` is what operation j adds to the time in which the device is busy. Idle time that
remains in the replay is not synchronization's: the host would be as late without it.
"""

from __future__ import annotations

import re

import numpy as np

from fastfeed.profiler.attribution.classify import Activity
from fastfeed.profiler.attribution.gaps import Gaps
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.attribution.host_causes import AttributedSpans
from fastfeed.profiler.attribution.host_code.names import parse
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.columns import distinct
from fastfeed.profiler.model.intervals import union

__all__ = ["with_drains"]

_CATCHING_UP = (Cause.LAUNCH, Cause.FRAMEWORK, Cause.PYTHON, Cause.LAUNCH_LATENCY)
_LONGEST_NS = 500_000  # what the host does for longer, in one piece, is a cause of its own
# of the time from the first operation to the last: less is harmless, and stays with what is done
_MIN_SHARE = 0.05
_OPERATOR = re.compile(r"^\w+::(?!_)")  # aten::item, not the aten::_local_scalar_dense inside of it


def with_drains(
    host: Host, gaps: Gaps, rows: np.ndarray, causes: AttributedSpans
) -> AttributedSpans:
    """Charge synchronization with the idle time that would not be there without it.

    Args:
        host: The host's activity.
        gaps: Idle gaps of the device.
        rows: The device's operations in Trace.ops, by start: int64, shape (n,).
        causes: All idle time, in order of time.

    Returns:
        The same idle time; slices may be split. Those of synchronization are named by their call
        site.
    """
    threads = _driving_threads(host, rows)
    synchronized = union(*(host.spans_of(thread, Activity.SYNC) for thread in threads))
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
    first_op, last_op = host.trace.ops.start[rows[0]], host.trace.ops.end[rows].max()
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
    main = {host.main_thread(int(process)) for process in distinct(trace.ops.process[rows])}
    return (busiest | main) - {-1}


def _avoidable(host: Host, gaps: Gaps, rows: np.ndarray, synchronized: np.ndarray) -> np.ndarray:
    """Part of each gap between two operations that the replay lacks: int64 ns, shape (gaps,)."""
    ops, calls = host.trace.ops, host.trace.calls
    start, end = ops.start[rows], ops.end[rows]
    reach = np.maximum.accumulate(end)
    busy = np.diff(reach, prepend=start[0]) - np.maximum(
        start - np.concatenate([start[:1], reach[:-1]]), 0
    )
    launch = host.launch[rows]
    ready = np.where(launch >= 0, calls.end[launch], start) if len(calls.end) else start
    ready = np.minimum(ready, start)
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
    for thread in distinct(causes.thread[is_sync]):
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
    names = distinct(host.name[functions])
    users = names[[parse(host.trace.name(name)).is_users for name in names.tolist()]]
    functions = functions[np.isin(host.name[functions], users)]
    for rows in (operators, functions):
        row = host.innermost_row(rows, at)
        sites[row >= 0] = host.name[row[row >= 0]]
    return sites
