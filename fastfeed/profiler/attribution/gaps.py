"""Idle gaps: late (not launched yet), in the launch call, and queued (not started)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model.intervals import complement, spans, union
from fastfeed.profiler.model.trace import Trace

__all__ = ["Gaps", "find_gaps"]


@dataclass(frozen=True, slots=True)
class Gaps:
    """Columns, one row per gap, in order of time.

    Late, call and queued follow each other; each may be empty.
    """

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
    ops, calls = trace.ops, trace.calls
    rows = np.flatnonzero(ops.device == device)
    if (np.diff(ops.start[rows]) <= 0).any():
        launch_start = np.where(
            launch[rows] >= 0,
            calls.start[launch[rows]] if len(calls.start) else 0,
            np.iinfo(np.int64).max,
        )
        # of ops that start together, prefer one with a duration, then the one launched first
        rows = rows[np.lexsort((launch_start, ops.end[rows] == ops.start[rows], ops.start[rows]))]
    op = (
        rows[np.minimum(np.searchsorted(ops.start[rows], idle[:, 1]), len(rows) - 1)]
        if len(idle)
        else np.empty(0, np.int64)
    )
    call = launch[op]
    known = call >= 0
    call_start = np.where(known, calls.start[call], idle[:, 1]) if len(calls.start) else idle[:, 1]
    call_return = np.where(known, calls.end[call], idle[:, 1]) if len(calls.start) else idle[:, 1]
    is_last = ops.start[op] < idle[:, 1]  # no op follows
    late_end = np.where(is_last, idle[:, 1], np.clip(call_start, idle[:, 0], idle[:, 1]))
    call_end = np.maximum(np.clip(call_return, idle[:, 0], idle[:, 1]), late_end)
    return Gaps(idle[:, 0], idle[:, 1], op, call, late_end, call_end)
