"""Causes of late launches, by the activity of the launching thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.attribution.classify import Activity
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.columns import factorize, unique_values
from fastfeed.profiler.model.intervals import empty, intersect, subtract, union

# Before WAITING: what a parked thread is known to wait for. After it: what it merely happens to be
# in.
_BEFORE_WAITING = tuple(activity for activity in Activity if activity <= Activity.IO)
# What another thread does that a synchronizing thread waits for. Not for input: that is read ahead
# all the time.
_FEEDING = (
    Activity.COMPILE,
    Activity.LOAD,
    Activity.ALLOC,
    Activity.COPY,
    Activity.LAUNCH,
    Activity.FRAMEWORK,
)
# from the end of the work to the return of the call that waited for it, at most
_RETURN_NS = 1_000_000
_AFTER_WAITING = (
    Activity.LAUNCH,
    Activity.GC,
    Activity.GIL,
    Activity.PROFILER,
    Activity.HOST_CODE,
    Activity.FRAMEWORK,
    Activity.PYTHON,
)


@dataclass(frozen=True, slots=True)
class AttributedSpans:
    """Idle time with a cause: the columns of `result.Slices` except the gap."""

    span: np.ndarray  # int64, shape (n, 2)
    cause: np.ndarray  # uint8
    thread: np.ndarray  # int32
    name: np.ndarray  # int32

    @classmethod
    def of(
        cls,
        span: np.ndarray,
        cause: int,
        thread: int | np.ndarray = -1,
        name: int | np.ndarray = -1,
    ) -> AttributedSpans:
        """Spans of one cause; scalars are broadcast."""
        count = len(span)
        columns = (
            np.broadcast_to(np.asarray(column, np.int32), count) for column in (thread, name)
        )
        return cls(span, np.full(count, cause, np.uint8), *columns)


def in_time_order(parts: list[AttributedSpans]) -> AttributedSpans:
    """All parts as one, in order of time."""
    parts = [part for part in parts if len(part.span)]
    span = np.concatenate([empty().T, *(part.span.T for part in parts)], 1)
    order = np.argsort(span[0], kind="stable")
    columns = [
        np.concatenate([np.empty(0, kind), *(getattr(part, name) for part in parts)])[order]
        for name, kind in (("cause", np.uint8), ("thread", np.int32), ("name", np.int32))
    ]
    return AttributedSpans(span[:, order].T, *columns)


def host_causes(
    host: Host, late: np.ndarray, thread: np.ndarray, process: np.ndarray, overhead: np.ndarray
) -> list[AttributedSpans]:
    """Split late spans, disjoint and in order, (n, 2), by cause; the parts cover them exactly.

    `thread` launched the op the gap waited for, -1 unknown; the main thread of `process` explains
    what that thread does not. `overhead` is the profiler's own time, a set.
    """
    parts: list[AttributedSpans] = []
    processes, inverse = factorize(process)
    main = np.array([host.main_thread(int(number)) for number in processes], np.int64)[inverse]
    thread = np.where(thread >= 0, thread, main)
    # a thread that only copies batches to the device works ahead: the GPU waits for what the main
    # thread waits for
    feeds = ~np.isin(thread, host.working) & np.isin(main, host.working)
    thread, main = np.where(feeds, main, thread), np.where(feeds, thread, main)
    many = len(host.trace.threads) + 1
    pairs = (thread + 1) * many + main + 1
    nonempty = np.flatnonzero(late[:, 1] > late[:, 0])
    for pair in unique_values(pairs[nonempty]).tolist():
        launcher, main_thread = (number - 1 for number in divmod(pair, many))
        rest = late[nonempty[pairs[nonempty] == pair]]
        parts.append(AttributedSpans.of(intersect(rest, overhead), Cause.PROFILER, launcher))
        rest = subtract(rest, overhead)
        rest, parked = _explain(host, rest, launcher, parts, is_last=launcher == main_thread)
        rest = union(rest, parked)
        if main_thread not in (launcher, -1):
            rest = union(*_explain(host, rest, main_thread, parts, is_last=True))
        # TensorFlow runs ops on any free thread, so any may be waiting for the iterator
        waiting = host.tf_data_waits(launcher)
        parts.append(AttributedSpans.of(intersect(rest, waiting), Cause.INPUT, launcher))
        rest = subtract(rest, waiting)
        # a parked thread was inside something too: better than no cause
        for activity in _AFTER_WAITING:
            rest = _take_activity(host, rest, launcher, activity, parts)
        parts.append(AttributedSpans.of(rest, Cause.HOST_UNKNOWN, launcher))
    return parts


def _explain(
    host: Host, rest: np.ndarray, thread: int, parts: list[AttributedSpans], is_last: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Append what this thread explains; return what it does not, and when it was parked."""
    for activity in _BEFORE_WAITING:
        if activity is Activity.SYNC:
            rest = _explain_idle_syncs(host, rest, thread, parts)
        rest = _take_activity(host, rest, thread, activity, parts)
    contention = host.contention(thread)
    parts.append(AttributedSpans.of(intersect(rest, contention), Cause.CPU_CONTENTION, thread))
    rest = subtract(rest, contention)
    waiting = empty() if is_last else host.activity_spans(thread, Activity.WAITING)
    parked = intersect(rest, waiting)
    rest = subtract(rest, waiting)
    for activity in _AFTER_WAITING:
        rest = _take_activity(host, rest, thread, activity, parts)
    return rest, parked


def _explain_idle_syncs(
    host: Host, rest: np.ndarray, thread: int, parts: list[AttributedSpans]
) -> np.ndarray:
    """Explain syncs with idle devices by the threads that feed the devices, if they do."""
    syncing = (
        intersect(rest, host.activity_spans(thread, Activity.SYNC)) if thread >= 0 else empty()
    )
    if not len(syncing):
        return rest
    in_vain = subtract(syncing, host.device_work(host.trace.threads[thread].process))
    in_vain = in_vain[in_vain[:, 1] - in_vain[:, 0] > _RETURN_NS]
    before = len(parts)
    for activity in _FEEDING:
        for other in host.feeding_threads(thread) if len(in_vain) else ():
            covered = host.feeding_spans(other, activity)
            explained = intersect(in_vain, covered)
            if len(explained):
                name = host.innermost_name(other, activity, explained[:, 0])
                parts.append(AttributedSpans.of(explained, activity.cause, other, name))
                in_vain = subtract(in_vain, covered)
    return subtract(rest, union(*(part.span for part in parts[before:])))


def _take_activity(
    host: Host, rest: np.ndarray, thread: int, activity: Activity, parts: list[AttributedSpans]
) -> np.ndarray:
    covered = host.activity_spans(thread, activity) if len(rest) else empty()
    explained = intersect(rest, covered)
    if not len(explained):
        return rest
    name = host.innermost_name(thread, activity, explained[:, 0])
    parts.append(AttributedSpans.of(explained, activity.cause, thread, name))
    return subtract(rest, covered)
