"""Splits a window exactly into time the device computed, communicated, copied, or was idle."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fastfeed.profiler.model.intervals import intersect, measure, spans, subtract, union
from fastfeed.profiler.model.result import TimeBreakdown
from fastfeed.profiler.model.trace import Kind, Trace

__all__ = ["BUSY", "break_down", "busy_sets"]

# in order of precedence, as in xprof and PyTorch's TensorBoard plugin
BUSY = ("compute", "comm", "h2d", "other", "overhead")


def busy_sets(trace: Trace, device: int) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
    """Disjoint sets of nanoseconds, one per class in BUSY, and the device's first start and last end.

    Where classes overlap, the earlier one wins: a copy that overlaps a kernel is hidden. The profiler's own overhead
    counts only while the device did nothing else, between its first and its last op.
    """
    ops = trace.ops
    of_device = ops.device == device
    kind, all_spans = ops.kind[of_device], spans(ops.start[of_device], ops.end[of_device])
    by_class = {
        "compute": all_spans[(kind == Kind.COMPUTE) | (kind == Kind.GRAPH)],
        "comm": all_spans[kind == Kind.COMM],
        "h2d": all_spans[kind == Kind.H2D],
        "other": all_spans[~np.isin(kind, (Kind.COMPUTE, Kind.GRAPH, Kind.COMM, Kind.H2D))],
    }
    edges = np.array([all_spans[:, 0].min(), all_spans[:, 1].max()]) if len(all_spans) else np.zeros(2, np.int64)
    processes = np.unique(ops.process[of_device])
    of_process = np.isin(trace.overheads.process, processes)
    within = of_process & (trace.overheads.start > edges[0]) & (trace.overheads.end < edges[1])
    by_class["overhead"] = spans(trace.overheads.start[within], trace.overheads.end[within])
    disjoint, covered = {}, union()
    for name in BUSY:
        spans_of_class = union(by_class[name])
        disjoint[name] = subtract(spans_of_class, covered)
        covered = union(covered, spans_of_class)
    return disjoint, edges


def break_down(busy: Mapping[str, np.ndarray], window: np.ndarray) -> TimeBreakdown:
    """The parts of a window, a set of spans; they sum to it."""
    parts = {name: measure(intersect(busy[name], window)) for name in BUSY}
    length = measure(window)
    return TimeBreakdown(window=length, idle=length - sum(parts.values()), **parts)
