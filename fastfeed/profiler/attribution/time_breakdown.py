"""Splits a window exactly into time the device computed, communicated, copied, or was idle."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fastfeed.profiler.model.columns import distinct
from fastfeed.profiler.model.intervals import intersect, measure, spans, spans_at, subtract, union
from fastfeed.profiler.model.result import TimeBreakdown
from fastfeed.profiler.model.trace import Kind, Trace

__all__ = ["BUSY", "break_down", "busy_sets", "op_edges"]

# in order of precedence, as in xprof and PyTorch's TensorBoard plugin
BUSY = ("compute", "comm", "h2d", "other", "overhead")


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
    kind, start, end = ops.kind[of_device], ops.start[of_device], ops.end[of_device]
    rows = {
        "compute": (kind == Kind.COMPUTE) | (kind == Kind.GRAPH),
        "comm": kind == Kind.COMM,
        "h2d": kind == Kind.H2D,
    }
    rows["other"] = ~(rows["compute"] | rows["comm"] | rows["h2d"])
    by_class = {name: spans(start[of_class], end[of_class]) for name, of_class in rows.items()}
    processes = distinct(ops.process[of_device])
    of_process = np.isin(trace.overheads.process, processes)
    within = of_process & (trace.overheads.start > edges[0]) & (trace.overheads.end < edges[1])
    by_class["overhead"] = spans_at(trace.overheads, within)
    disjoint, covered = {}, union()
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
