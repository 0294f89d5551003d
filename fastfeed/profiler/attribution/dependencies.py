"""What a launched op was held back by: the work behind which an event was recorded that its stream had to wait for."""

from __future__ import annotations

import numpy as np

from fastfeed.profiler.attribution.host import Host

__all__ = ["producers"]


def producers(host: Host, op: np.ndarray) -> np.ndarray:
    """Index into Trace.ops of what each of these ops waited for: int64, shape (len(op),); -1 unknown.

    The latest wait of the op's stream before its launch names an event and the stream it was recorded on; the producer
    is the last op launched on that stream before the recording.
    """
    trace = host.trace
    found = np.full(len(op), -1, np.int64)
    waits, ops, calls = trace.waits, trace.ops, trace.calls
    if not len(waits.corr) or not len(calls.start) or not len(op):
        return found
    waiting, recording = host.wait_calls()
    told = np.where(waiting >= 0, calls.start[waiting], -1)
    recorded = np.where(recording >= 0, calls.start[recording], told)  # else: by the time of the wait
    launched = np.where(host.launch >= 0, calls.start[host.launch], ops.start)
    streams = np.unique(np.concatenate([ops.stream, waits.stream, waits.on_stream]))

    def lane(process: np.ndarray, stream: np.ndarray) -> np.ndarray:
        return process.astype(np.int64) * len(streams) + np.searchsorted(streams, stream)

    usable = np.flatnonzero((waiting >= 0) & (waits.on_stream >= 0))
    wait = _last_before(
        lane(waits.process[usable], waits.stream[usable]), told[usable],
        lane(ops.process[op], ops.stream[op]), launched[op],
    )  # fmt: skip
    asking = np.flatnonzero(wait >= 0)
    wait = usable[wait[asking]]
    source = lane(waits.process[wait], waits.on_stream[wait])
    of = lane(ops.process, ops.stream)
    near = np.flatnonzero(np.isin(of, source))
    last = _last_before(of[near], launched[near], source, recorded[wait])
    found[asking[last >= 0]] = near[last[last >= 0]]
    return found


def _last_before(lane: np.ndarray, at: np.ndarray, asked: np.ndarray, before: np.ndarray) -> np.ndarray:
    """For each `asked` lane the index of its latest row with `at` less than `before`: int64, -1 none."""
    found = np.full(len(asked), -1, np.int64)
    if not len(lane) or not len(asked):
        return found
    times, rank = np.unique(np.concatenate([at, before]), return_inverse=True)
    keys = lane * len(times) + rank[: len(at)]
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys[order], asked * len(times) + rank[len(at) :]) - 1
    there = np.flatnonzero((place >= 0) & (lane[order[place]] == asked))
    found[there] = order[place[there]]
    return found
