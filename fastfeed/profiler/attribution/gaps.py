"""Busy time of a device, and its idle gaps: late, in the launch call, and queued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model.columns import pick, unique_values
from fastfeed.profiler.model.intervals import (
    complement,
    intersect,
    measure,
    spans,
    spans_at,
    subtract,
    union,
)
from fastfeed.profiler.model.result import TimeBreakdown
from fastfeed.profiler.model.trace import Kind, Trace

# in order of precedence, as in xprof and PyTorch's TensorBoard plugin
BUSY = ("compute", "comm", "h2d", "other", "overhead")


@dataclass(frozen=True, slots=True)
class Gaps:
    """One row per gap, in order of time; late, call and queued follow each other, maybe empty."""

    start: np.ndarray  # int64
    end: np.ndarray
    op: np.ndarray  # int64, index into Trace.ops of the op that ended the gap
    # int64, index into Trace.calls of that op's launch; -1 unknown: the whole gap is `late`
    call: np.ndarray
    late_end: np.ndarray  # int64: late is [start, late_end)
    call_end: np.ndarray  # int64: call is [late_end, call_end), queued is [call_end, end)

    @property
    def late(self) -> np.ndarray:
        return spans(self.start, self.late_end)

    @property
    def in_call(self) -> np.ndarray:
        return spans(self.late_end, self.call_end)

    @property
    def queued(self) -> np.ndarray:
        return spans(self.call_end, self.end)


def find_gaps(
    trace: Trace, device: int, busy: Mapping[str, np.ndarray], edges: np.ndarray, launch: np.ndarray
) -> Gaps:
    """The gaps of a device between two edges.

    The time after the last op is late as a whole, on the thread that launched that op. A gap that
    ends in profiler overhead still waits for the next op, so it is late on that op's launch.
    """
    idle = complement(union(*busy.values()), int(edges[0]), int(edges[1]))
    ops = trace.ops
    calls = trace.calls
    rows = np.flatnonzero(ops.device == device)
    if (np.diff(ops.start[rows]) <= 0).any():
        launch_start = pick(calls.start, launch[rows], np.iinfo(np.int64).max)
        # of ops that start together, prefer one with a duration, then the one launched first
        rows = rows[np.lexsort((launch_start, ops.end[rows] == ops.start[rows], ops.start[rows]))]
    op = (
        rows[np.minimum(np.searchsorted(ops.start[rows], idle[:, 1]), len(rows) - 1)]
        if len(idle)
        else np.empty(0, np.int64)
    )
    call = launch[op]
    call_start, call_return = (
        pick(column, call, idle[:, 1]) for column in (calls.start, calls.end)
    )
    is_last = ops.start[op] < idle[:, 1]  # no op follows
    late_end = np.where(is_last, idle[:, 1], np.clip(call_start, idle[:, 0], idle[:, 1]))
    call_end = np.maximum(np.clip(call_return, idle[:, 0], idle[:, 1]), late_end)
    return Gaps(idle[:, 0], idle[:, 1], op, call, late_end, call_end)


def op_edges(trace: Trace, device: int) -> np.ndarray:
    """A device's first start and last end: int64, shape (2,); zeros without ops."""
    of_device = trace.ops.device == device
    if not of_device.any():
        return np.zeros(2, np.int64)
    return np.array([trace.ops.start[of_device].min(), trace.ops.end[of_device].max()])


def busy_sets(trace: Trace, device: int, edges: np.ndarray) -> Mapping[str, np.ndarray]:
    """Disjoint sets of nanoseconds, one per class in BUSY.

    Where classes overlap, the earlier one wins: a copy that overlaps a kernel is hidden. The
    profiler's own overhead counts only while the device did nothing else, between `edges`, the
    beginning and the end of its recording.
    """
    ops = trace.ops
    of_device = ops.device == device
    kind = ops.kind[of_device]
    start = ops.start[of_device]
    end = ops.end[of_device]
    rows = {
        "compute": (kind == Kind.COMPUTE) | (kind == Kind.GRAPH),
        "comm": kind == Kind.COMM,
        "h2d": kind == Kind.H2D,
    }
    rows["other"] = ~(rows["compute"] | rows["comm"] | rows["h2d"])
    by_class = {name: spans(start[of_class], end[of_class]) for name, of_class in rows.items()}
    processes = unique_values(ops.process[of_device])
    of_process = np.isin(trace.overheads.process, processes)
    within = of_process & (trace.overheads.start > edges[0]) & (trace.overheads.end < edges[1])
    by_class["overhead"] = spans_at(trace.overheads, within)
    disjoint = {}
    covered = union()
    for name in BUSY:
        spans_of_class = union(by_class[name])
        disjoint[name] = subtract(spans_of_class, covered)
        covered = union(covered, spans_of_class) if len(spans_of_class) else covered
    return disjoint


def break_down(busy: Mapping[str, np.ndarray], window: np.ndarray) -> TimeBreakdown:
    """The parts of a window, a set of spans; they sum to it."""
    parts = {name: measure(intersect(busy[name], window)) for name in BUSY}
    length = measure(window)
    return TimeBreakdown(window=length, idle=length - sum(parts.values()), **parts)
