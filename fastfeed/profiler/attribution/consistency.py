"""Contradictions in the recording of a device: what no driver and no stream does."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from fastfeed.profiler.attribution.attribution import Attribution
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.attribution.lost_work import lost_launches
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.columns import distinct
from fastfeed.profiler.model.intervals import clip, intersect, measure, spans_at, union
from fastfeed.profiler.model.result import Period
from fastfeed.profiler.model.trace import Trace

__all__ = ["consistency_metrics"]

# calls that launch several operations at once
_STARTS_MANY = re.compile(r"graph|batch|multidevice|group", re.I)


def consistency_metrics(
    trace: Trace, host: Host, attribution: Attribution, judged: Period
) -> Mapping[str, float]:
    """Metrics to compare with what is possible.

    `longest_op_share`: the longest operation's share of the time from the first to the last.
    `longest_op_overlap`: the share of it in which other operations of the same stream ran.
    `shared_launches`: the share of the operations whose launch call also launched another.
    `contradicted_ms`: idle time with work launched and nothing that held it back, while a launching
    or main thread waited for input. `lost_launches`: launches in the judged time without an
    operation, of `checked_launches`.
    """
    ops, rows = trace.ops, attribution.rows
    length = ops.end[rows] - ops.start[rows]
    metrics = {"longest_op_share": 0.0, "longest_op_overlap": 0.0}
    if len(rows):
        longest = int(rows[np.argmax(length)])
        window = max(int(attribution.edges[1] - attribution.edges[0]), 1)
        metrics["longest_op_share"] = int(length.max()) / window
        start, end = int(ops.start[longest]), int(ops.end[longest])
        others = rows[(ops.start[rows] < end) & (ops.end[rows] > start) & (rows != longest)]
        others = others[ops.stream[others] == ops.stream[longest]]
        inside = clip(union(spans_at(ops, others)), start, end)
        metrics["longest_op_overlap"] = measure(inside) / max(int(length.max()), 1)
    metrics["shared_launches"] = _shared_launches(trace, attribution)
    slices = attribution.slices
    held = np.isin(slices.cause, (Cause.DEPENDENCY, Cause.GPU_SHARED)) & (slices.name < 0)
    held_spans = union(spans_at(slices, held))
    metrics["contradicted_ms"] = (
        measure(intersect(intersect(held_spans, attribution.waits), judged.spans)) / 1e6
    )
    lost, checked = lost_launches(trace, host.launch, distinct(ops.process[rows]), judged.spans)
    return metrics | {"lost_launches": float(lost), "checked_launches": float(checked)}


def _shared_launches(trace: Trace, attribution: Attribution) -> float:
    launch = attribution.launch[attribution.launch >= 0]
    if not len(launch):
        return 0.0
    launch = launch[~trace.matches(trace.calls.name[launch], _STARTS_MANY)]
    # np.unique takes ten times as long
    different = np.count_nonzero(np.bincount(launch)) if len(launch) else 0
    return 1 - different / len(launch) if len(launch) else 0.0
