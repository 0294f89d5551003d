"""Producers: the ops that launched ops wait for, by the events of their streams."""

from __future__ import annotations

import numpy as np

from fastfeed.profiler.attribution.host import Host

__all__ = ["producers"]


def producers(host: Host, op: np.ndarray) -> np.ndarray:
    """Index into Trace.ops of the op each of these waited for: int64, shape (len(op),); or -1.

    The latest wait of the op's stream before its launch identifies an event and the stream it was
    recorded on. The producer is the last op launched on that stream before the recording.
    """
    trace = host.trace
    result = np.full(len(op), -1, np.int64)
    waits, ops, calls = trace.waits, trace.ops, trace.calls
    if not len(waits.corr) or not len(calls.start) or not len(op):
        return result
    waiting, recording = host.wait_calls()
    wait_start = np.where(waiting >= 0, calls.start[waiting], -1)
    # else the time of the wait
    record_start = np.where(recording >= 0, calls.start[recording], wait_start)
    launch_start = np.where(host.launch >= 0, calls.start[host.launch], ops.start)
    streams = np.unique(np.concatenate([ops.stream, waits.stream, waits.on_stream]))

    def stream_key(process: np.ndarray, stream: np.ndarray) -> np.ndarray:
        return process.astype(np.int64) * len(streams) + np.searchsorted(streams, stream)

    usable = np.flatnonzero((waiting >= 0) & (waits.on_stream >= 0))
    wait = _last_before(
        stream_key(waits.process[usable], waits.stream[usable]),
        wait_start[usable],
        stream_key(ops.process[op], ops.stream[op]),
        launch_start[op],
    )
    with_wait = np.flatnonzero(wait >= 0)
    wait = usable[wait[with_wait]]
    source_key = stream_key(waits.process[wait], waits.on_stream[wait])
    op_key = stream_key(ops.process, ops.stream)
    candidates = np.flatnonzero(np.isin(op_key, source_key))
    last = _last_before(
        op_key[candidates], launch_start[candidates], source_key, record_start[wait]
    )
    result[with_wait[last >= 0]] = candidates[last[last >= 0]]
    return result


def _last_before(
    key: np.ndarray, at: np.ndarray, target: np.ndarray, limit: np.ndarray
) -> np.ndarray:
    """Index of each target key's latest row with `at` less than `limit`: int64, or -1."""
    result = np.full(len(target), -1, np.int64)
    if not len(key) or not len(target):
        return result
    times, rank = np.unique(np.concatenate([at, limit]), return_inverse=True)
    keys = key * len(times) + rank[: len(at)]
    order = np.argsort(keys, kind="stable")
    position = np.searchsorted(keys[order], target * len(times) + rank[len(at) :]) - 1
    matches = np.flatnonzero((position >= 0) & (key[order[position]] == target))
    result[matches] = order[position[matches]]
    return result
