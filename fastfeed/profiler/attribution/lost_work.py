"""Contradictions in a recording: launches without device work, and impossible overlaps."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from fastfeed.profiler.attribution.attribution import Attribution
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.columns import unique_values
from fastfeed.profiler.model.intervals import (
    by_start,
    clip,
    intersect,
    measure,
    overlap,
    spans,
    spans_at,
    union,
)
from fastfeed.profiler.model.result import Period
from fastfeed.profiler.model.trace import Trace

# calls that start a kernel, a copy or a graph; memsets often have no operation: the driver may
# leave them out
STARTS_WORK = re.compile(r"launch(?!host)|memcpy", re.I)
# what is launched in between becomes part of a graph
_CAPTURE = re.compile(r"stream(begin|end)capture", re.I)
_CAPTURE_BEGIN = re.compile("begin", re.I)
_SYNC = re.compile(r"(device|ctx|stream)synchronize", re.I)
# percentile of the time from a launch to its start: launches that wait longer count as lost
_PENDING = 99
# calls that launch several operations at once
_STARTS_MANY = re.compile(r"graph|batch|multidevice|group", re.I)


def lost_launches(
    trace: Trace, launch: np.ndarray, processes: np.ndarray, window: np.ndarray
) -> tuple[int, int]:
    """Count the launches of these processes inside a set of spans: without operation, and all.

    `launch` is from `launch_calls`. A recording may end before the device runs the last launches: one
    counts if a later launch by the same call of the same thread ran, and if it had as much time as
    others took.
    """
    calls = trace.calls
    is_start = trace.matches(calls.name, STARTS_WORK)
    has_op = np.zeros(len(calls.start), bool)
    known = np.flatnonzero(launch >= 0)
    has_op[launch[known]] = True
    rows = np.flatnonzero(is_start & (calls.corr >= 0))
    if not len(known) or has_op[rows].all():
        return 0, len(rows)
    rows = rows[np.isin(trace.thread_processes(calls.thread[rows]), processes)]
    delay = trace.ops.start[known] - calls.start[launch[known]]
    until = int(trace.ops.start.max()) - max(int(np.percentile(delay, _PENDING)), 0)
    rows = rows[calls.start[rows] <= np.minimum(_last_run(trace, rows, has_op), until)]
    rows = rows[overlap(spans(calls.start[rows], calls.start[rows] + 1), window) > 0]
    lost = rows[~has_op[rows]]
    if len(lost):
        lost = lost[
            ~_is_captured(trace, lost) & ~_nests(trace, lost, np.flatnonzero(is_start & has_op))
        ]
    return len(lost), int(has_op[rows].sum()) + len(lost)


def _last_run(trace: Trace, rows: np.ndarray, has_op: np.ndarray) -> np.ndarray:
    """Time of the last launch known to have run of each kind, else of the last sync: (n,)."""
    calls = trace.calls
    _, group = np.unique(
        calls.thread[rows].astype(np.int64) * (len(trace.names) + 1) + calls.name[rows],
        return_inverse=True,
    )
    never = np.iinfo(np.int64).min
    last = np.full(int(group.max(initial=-1)) + 1, never)
    np.maximum.at(last, group[has_op[rows]], calls.start[rows[has_op[rows]]])
    last = last[group]
    if (last == never).any():
        syncs = np.flatnonzero(trace.matches(calls.name, _SYNC))
        # the last is for calls whose thread is not known
        synced = np.full(len(trace.threads) + 1, never)
        np.maximum.at(synced, calls.thread[syncs], calls.start[syncs])
        last = np.where(last == never, synced[calls.thread[rows]], last)
    return last


def _is_captured(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Mask of calls during which their thread captured a graph: bool, shape (n,)."""
    calls = trace.calls
    marks = np.flatnonzero(trace.matches(calls.name, _CAPTURE))
    marks = by_start(calls, marks)
    captured = np.zeros(len(rows), bool)
    for thread in unique_values(calls.thread[marks]):
        own = marks[calls.thread[marks] == thread]
        at = np.flatnonzero(calls.thread[rows] == thread)
        last = np.searchsorted(calls.start[own], calls.start[rows[at]], side="right") - 1
        captured[at] = (last >= 0) & trace.matches(calls.name[own], _CAPTURE_BEGIN)[last]
    return captured


def _nests(trace: Trace, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Mask of calls inside or around one of the others, as runtime and driver calls are: (n,)."""
    calls = trace.calls
    nested = np.zeros(len(rows), bool)
    for thread in unique_values(calls.thread[rows]):
        own = others[calls.thread[others] == thread]
        at = np.flatnonzero(calls.thread[rows] == thread)
        if not len(own):
            continue
        own = by_start(calls, own)
        start = calls.start[rows[at]]
        end = calls.end[rows[at]]
        before = np.searchsorted(calls.start[own], start, side="right") - 1
        reach = np.maximum.accumulate(calls.end[own])
        inside = (before >= 0) & (reach[before] >= end) & (reach[before] > start)
        after = np.searchsorted(calls.start[own], start, side="left")
        around = (after < len(own)) & (calls.end[own[np.minimum(after, len(own) - 1)]] <= end)
        nested[at] = inside | (around & (calls.start[own[np.minimum(after, len(own) - 1)]] < end))
    return nested


def consistency_metrics(attribution: Attribution, judged: Period) -> Mapping[str, float]:
    """Metrics to compare with the possible range.

    `longest_op_share`: the longest operation's share of the time from the first to the last.
    `longest_op_overlap`: the share of it in which other operations of the same stream ran.
    `shared_launches`: the share of the operations whose launch call also launched another.
    `contradicted_ms`: idle time with work launched and nothing that held it back, while a launching
    or main thread waited for input. `lost_launches`: launches in the judged time without an
    operation, of `checked_launches`.
    """
    trace = attribution.trace
    host = attribution.host
    rows = attribution.rows
    ops = trace.ops
    length = ops.end[rows] - ops.start[rows]
    metrics = {"longest_op_share": 0.0, "longest_op_overlap": 0.0}
    if len(rows):
        longest = int(rows[np.argmax(length)])
        window = max(int(attribution.edges[1] - attribution.edges[0]), 1)
        metrics["longest_op_share"] = int(length.max()) / window
        start = int(ops.start[longest])
        end = int(ops.end[longest])
        others = rows[(ops.start[rows] < end) & (ops.end[rows] > start) & (rows != longest)]
        others = others[ops.stream[others] == ops.stream[longest]]
        inside = clip(union(spans_at(ops, others)), start, end)
        metrics["longest_op_overlap"] = measure(inside) / max(int(length.max()), 1)
    metrics["shared_launches"] = _shared_launches(attribution)
    slices = attribution.slices
    held = np.isin(slices.cause, (Cause.DEPENDENCY, Cause.GPU_SHARED)) & (slices.name < 0)
    held_spans = union(spans_at(slices, held))
    metrics["contradicted_ms"] = (
        measure(intersect(intersect(held_spans, attribution.waits), judged.spans)) / 1e6
    )
    lost, checked = lost_launches(
        trace, host.launch, unique_values(ops.process[rows]), judged.spans
    )
    return metrics | {"lost_launches": float(lost), "checked_launches": float(checked)}


def _shared_launches(attribution: Attribution) -> float:
    trace = attribution.trace
    launch = attribution.launch[attribution.launch >= 0]
    if not len(launch):
        return 0.0
    launch = launch[~trace.matches(trace.calls.name[launch], _STARTS_MANY)]
    # np.unique takes ten times as long
    different = np.count_nonzero(np.bincount(launch)) if len(launch) else 0
    return 1 - different / len(launch) if len(launch) else 0.0
