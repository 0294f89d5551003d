"""Beginning and end of the recording of a device, also by marked steps."""

from __future__ import annotations

import numpy as np

from fastfeed.profiler.attribution.lost_work import lost_launches
from fastfeed.profiler.attribution.time_breakdown import op_edges
from fastfeed.profiler.model.intervals import spans
from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.steps.marks import Rounds, is_open_ended, marked_steps

__all__ = ["recorded_edges"]

# of the usual launches per step: a step with fewer is not recorded from its beginning
_SIMILAR = 0.95


def recorded_edges(
    trace: Trace, device: int, process: int, launch: np.ndarray, waits: np.ndarray | None = None
) -> np.ndarray:
    """Beginning and end of what is known about a device: int64 nanoseconds, shape (2,).

    These are its first start and last end. A step that the host marks is known from its mark on:
    the device was idle until the first operation, provided that the recording has the launch of
    that operation, inside the step, and as many launches in this step as in the others. The last
    step is known up to the end of its mark in the same way.

    Args:
        trace: The recording.
        device: Index into `trace.devices`.
        process: Index into `trace.processes`: whose marks count.
        launch: The launch call of each operation, from `launch_calls`.
        waits: A set of spans in which the main thread of the process waits for input, or None.
    """
    edges = op_edges(trace, device)
    marked = marked_steps(trace, process, waits)
    rows = np.flatnonzero((trace.ops.device == device) & (trace.ops.process == process))
    if marked is None or not len(rows):
        return edges
    step = _step_of_launch(trace, marked, launch[rows])
    first = int(step[np.argmin(trace.ops.start[rows])])
    last = int(step[np.argmax(trace.ops.end[rows])])
    count = np.bincount(step[step >= 0], minlength=len(marked.labels))
    begin = int(marked.spans[first, 0])
    end = int(marked.spans[-1, 1])
    if (
        first >= 0
        and _has_usual_count(count, first)
        and _is_known(trace, launch, process, begin, edges[0])
    ):
        edges[0] = min(edges[0], begin)
    is_last_mark = (
        last == len(marked.labels) - 1 and marked.has_end and not is_open_ended(trace, marked.spans)
    )
    if is_last_mark and _is_known(trace, launch, process, edges[1], end):
        edges[1] = max(edges[1], end)
    return edges


def _step_of_launch(trace: Trace, marked: Rounds, launch: np.ndarray) -> np.ndarray:
    """The marked step in which each of these calls began: int64, -1 for none."""
    if not len(trace.calls.start):
        return np.full(len(launch), -1, np.int64)
    at = trace.calls.start[launch]
    step = np.searchsorted(marked.spans[:, 0], at, side="right") - 1
    is_inside = (launch >= 0) & (step >= 0) & (at < marked.spans[step, 1])
    return np.where(is_inside, step, -1)


def _has_usual_count(count: np.ndarray, step: int) -> bool:
    others = np.delete(count, step)
    others = others[others > 0]
    return not len(others) or count[step] >= _SIMILAR * np.median(others)


def _is_known(trace: Trace, launch: np.ndarray, process: int, start: int, end: int) -> bool:
    """True if the operation of every launch in this time is in the recording."""
    lost, _ = lost_launches(
        trace, launch, np.array([process]), spans(np.array([start]), np.array([end]))
    )
    return not lost
