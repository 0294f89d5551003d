"""A window split exactly: which nanoseconds a device computed, communicated, copied, or did nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fastfeed.profiler.model.intervals import intersect, measure, spans, subtract, union
from fastfeed.profiler.model.result import TimeBreakdown
from fastfeed.profiler.model.trace import Kind, Trace

__all__ = ["BUSY", "budget", "busy_sets"]

BUSY = ("compute", "comm", "h2d", "other", "overhead")  # in order of precedence, as xprof and PyTorch's plugin have it


def busy_sets(trace: Trace, device: int) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
    """Disjoint sets of nanoseconds, one of each class in BUSY; and the device's first start and last end.

    Where classes overlap the earlier one has it: a copy beside a kernel is hidden. The profiler's own overhead counts
    where the device did nothing else, between its first and its last op.
    """
    ops = trace.ops
    mine = ops.device == device
    kind, all_spans = ops.kind[mine], spans(ops.start[mine], ops.end[mine])
    by_class = {
        "compute": all_spans[(kind == Kind.COMPUTE) | (kind == Kind.GRAPH)],
        "comm": all_spans[kind == Kind.COMM],
        "h2d": all_spans[kind == Kind.H2D],
        "other": all_spans[~np.isin(kind, (Kind.COMPUTE, Kind.GRAPH, Kind.COMM, Kind.H2D))],
    }
    edges = np.array([all_spans[:, 0].min(), all_spans[:, 1].max()]) if len(all_spans) else np.zeros(2, np.int64)
    processes = np.unique(ops.process[mine])
    own = np.isin(trace.overheads.process, processes)
    within = own & (trace.overheads.start > edges[0]) & (trace.overheads.end < edges[1])
    by_class["overhead"] = spans(trace.overheads.start[within], trace.overheads.end[within])
    disjoint, taken = {}, union()
    for name in BUSY:
        whole = union(by_class[name])
        disjoint[name] = subtract(whole, taken)
        taken = union(taken, whole)
    return disjoint, edges


def budget(busy: Mapping[str, np.ndarray], window: np.ndarray) -> TimeBreakdown:
    """The parts of a window, a set of spans; they sum to it."""
    parts = {name: measure(intersect(busy[name], window)) for name in BUSY}
    whole = measure(window)
    return TimeBreakdown(window=whole, idle=whole - sum(parts.values()), **parts)
