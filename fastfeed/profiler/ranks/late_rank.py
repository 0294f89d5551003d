"""The rank that the others wait for, and signs of why: slower kernels, or no rank in particular."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import ABSENT_RANKS, Charge, LateRank
from fastfeed.profiler.model.trace import Kind, Trace

__all__ = ["compute_rows", "kernel_ratios", "late_ranks"]

_ALIKE = 0.1  # difference of the counts of a kernel on two ranks that do the same work
_COMPARED = 0.5  # of the computing time of each rank, in kernels that all of them run
_ALWAYS = 2 / 3  # of the waiting: a rank that causes less is not the late one in most steps


def compute_rows(trace: Trace, device: int, judged: np.ndarray) -> np.ndarray:
    """Index into Trace.ops of a device's kernels that start within the spans: int64, (n,)."""
    ops = trace.ops
    rows = np.flatnonzero(
        (ops.device == device) & ((ops.kind == Kind.COMPUTE) | (ops.kind == Kind.GRAPH))
    )
    return rows[
        intervals.overlap(intervals.spans(ops.start[rows], ops.start[rows] + 1), judged) > 0
    ]


def kernel_ratios(members: Sequence[tuple[Trace, np.ndarray]]) -> tuple[float | None, ...]:
    """Time that the same kernels take on each member, relative to the median of all members.

    Per member, the median over kernels of its mean time by that of the median member, weighted by
    time. None for all if they do not run the same kernels equally often.

    Args:
        members: The trace and the rows of the kernels of each; see `compute_rows`.
    """
    nothing = (None,) * len(members)
    totals = [_by_name(trace, rows) for trace, rows in members]
    names = sorted(set.intersection(*(set(total) for total in totals))) if len(totals) > 1 else []
    if not names:
        return nothing
    count = np.array([[total[name][0] for name in names] for total in totals], float)
    spent = np.array([[total[name][1] for name in names] for total in totals], float)
    usual = np.median(count, axis=0)
    is_same = (np.abs(count - usual) <= _ALIKE * usual).all(axis=0) & (spent > 0).all(axis=0)
    whole = np.array([sum(ns for _, ns in total.values()) for total in totals], float)
    if not is_same.any() or (spent[:, is_same].sum(axis=1) < _COMPARED * whole).any():
        return nothing
    mean = spent[:, is_same] / count[:, is_same]
    median = np.median(mean, axis=0)
    weight = median * usual[is_same]
    return tuple(_weighted_median(row / median, weight) for row in mean)


def _by_name(trace: Trace, rows: np.ndarray) -> dict[str, tuple[int, int]]:
    """Number of runs of each kernel, and their nanoseconds in all."""
    ops = trace.ops
    names, inverse = np.unique(ops.name[rows], return_inverse=True)
    spent = np.zeros(len(names), np.int64)
    np.add.at(spent, inverse, ops.end[rows] - ops.start[rows])
    count = np.bincount(inverse, minlength=len(names))
    return {
        trace.name(name): (number, ns)
        for name, number, ns in zip(names.tolist(), count.tolist(), spent.tolist(), strict=True)
    }


def _weighted_median(values: np.ndarray, weight: np.ndarray) -> float:
    order = np.argsort(values, kind="stable")
    reach = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(reach, reach[-1] / 2)])


def late_ranks(
    charges: Sequence[Sequence[Charge]], kernels: Mapping[str, float | None]
) -> tuple[LateRank | None, ...]:
    """The late rank as each member sees it, or None.

    That is the one that costs all of them most, unless a member waits mostly for another.

    Args:
        charges: The waits of each member.
        kernels: By each member's label, its kernels' time relative to the others'.
    """
    common = _late_rank([charge for own in charges for charge in own], kernels)
    if common is None or common.changes:
        return (common,) * len(charges)
    result = []
    for own in charges:
        late = _late_rank(own, kernels)
        result.append(common if late is None or late.label == common.label else late)
    return tuple(result)


def _late_rank(charges: Sequence[Charge], kernels: Mapping[str, float | None]) -> LateRank | None:
    """The rank that these charges name most; None if it is not in the analysis."""
    by_culprit: dict[str, int] = {}
    by_cause: dict[tuple[str, Cause | None], int] = {}
    for charge in charges:
        if charge.culprit != ABSENT_RANKS:
            by_culprit[charge.culprit] = by_culprit.get(charge.culprit, 0) + charge.ns
            key = charge.culprit, charge.cause
            by_cause[key] = by_cause.get(key, 0) + charge.ns
    waited = sum(by_culprit.values())
    if not waited:
        return None
    label = max(by_culprit, key=lambda culprit: by_culprit[culprit])
    cause = max((key for key in by_cause if key[0] == label), key=lambda key: by_cause[key])[1]
    return LateRank(
        label=label,
        cause=cause,
        waited_ns=by_culprit[label],
        share=by_culprit[label] / waited,
        changes=by_culprit[label] < _ALWAYS * waited,
        kernels=kernels.get(label),
    )
