"""What a launched op was held back by: the work behind which an event was recorded that its stream had to wait for."""

from __future__ import annotations

import numpy as np

from fastfeed.profiler.launches import calls_of
from fastfeed.profiler.trace import Trace

__all__ = ["producers"]


def producers(trace: Trace, op: np.ndarray, launch: np.ndarray) -> np.ndarray:
    """Index of the op that each of these waited for: int64, -1 unknown.

    The latest wait of the op's stream before its launch names an event and the stream it was recorded on; the producer
    is the last op launched on that stream before the recording. `launch` is what `launches` gives.
    """
    found = np.full(len(op), -1, np.int64)
    waits, ops, calls = trace.waits, trace.ops, trace.calls
    if not len(waits.corr) or not len(calls.start):
        return found
    waiting = calls_of(trace, waits.process, waits.corr)
    recording = calls_of(trace, waits.process, waits.on_corr)
    told = np.where(waiting >= 0, calls.start[waiting], -1)
    recorded = np.where(recording >= 0, calls.start[recording], told)  # else: by the time of the wait
    launched = np.where(launch >= 0, calls.start[launch], ops.start)
    for process, stream in np.unique(np.column_stack([ops.process[op], ops.stream[op]]), axis=0):
        asking = np.flatnonzero((ops.process[op] == process) & (ops.stream[op] == stream))
        mine = np.flatnonzero(
            (waits.process == process) & (waits.stream == stream) & (told >= 0) & (waits.on_stream >= 0)
        )
        if not len(mine):
            continue
        mine = mine[np.argsort(told[mine], kind="stable")]
        at = np.searchsorted(told[mine], launched[op[asking]]) - 1
        asking, wait = asking[at >= 0], mine[at[at >= 0]]
        for on_stream in np.unique(waits.on_stream[wait]):
            rows = np.flatnonzero((ops.process == process) & (ops.stream == on_stream))
            rows = rows[np.argsort(launched[rows], kind="stable")]
            these = waits.on_stream[wait] == on_stream
            before = np.searchsorted(launched[rows], recorded[wait[these]]) - 1
            there = before >= 0
            found[asking[these][there]] = rows[before[there]]
    return found
