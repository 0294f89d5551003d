"""Which call launched which op."""

from __future__ import annotations

import numpy as np

from fastfeed.profiler.model.trace import Trace

__all__ = ["LOADS_NS", "calls_of", "first_use", "launches", "long_calls"]

LOADS_NS = 1_000_000  # a first launch that takes longer loads its kernel
_LONG = 10  # times the median of its API: such a call did more than launch


def launches(trace: Trace) -> np.ndarray:
    """Index into `trace.calls` of each op's launch: int64, shape (len(ops),); -1 where it is not recorded."""
    return calls_of(trace, trace.ops.process, trace.ops.corr)


def calls_of(trace: Trace, process: np.ndarray, corr: np.ndarray) -> np.ndarray:
    """Index into `trace.calls` of the call with this correlation id in this process: int64, -1 for none.

    Ids are unique per process only, so both are compared. Of several calls with one id (the runtime's, and the driver's
    below it) the outermost counts, which is the one that began first.
    """
    calls = trace.calls
    found = np.full(len(corr), -1, np.int64)
    usable = np.flatnonzero(calls.corr >= 0)
    if not len(usable) or not len(corr):
        return found
    process_of = np.array([*(thread.process for thread in trace.threads), -2], np.int64)  # a thread of -1 is nobody's
    wanted, given = corr, calls.corr[usable]
    if max(given.max(), wanted.max()) >= 1 << 40:  # some are addresses: number them, so that the keys fit
        _, numbered = np.unique(np.concatenate([given, wanted]), return_inverse=True)
        given, wanted = numbered[: len(given)], np.where(wanted >= 0, numbered[len(given) :], -1)
    width = int(max(given.max(), wanted.max())) + 2
    keys = process_of[calls.thread[usable]] * width + given
    order = np.lexsort((calls.start[usable], keys))
    usable, keys = usable[order], keys[order]
    new = np.concatenate([[True], keys[1:] != keys[:-1]])
    usable, keys = usable[new], keys[new]
    asked = process.astype(np.int64) * width + wanted
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    same = (keys[at] == asked) & (wanted >= 0)
    found[same] = usable[at[same]]
    return found


def first_use(trace: Trace) -> np.ndarray:
    """Is this the first op of its name on its device? bool, shape (len(ops),). Drivers load kernels that late."""
    ops = trace.ops
    key = ops.device.astype(np.int64) * (len(trace.names) + 1) + ops.name
    key -= key.min(initial=0)
    order = np.argsort(ops.start, kind="stable")[::-1]
    first = np.full(int(key.max(initial=-1)) + 1, -1, np.int64)
    first[key[order]] = order  # of several rows with one key the last that is written stays: the earliest
    found = np.zeros(len(key), bool)
    found[first[first >= 0]] = True
    return found


def long_calls(trace: Trace) -> np.ndarray:
    """Did this call take more than ten times the median of its API? bool, shape (len(calls),)."""
    calls = trace.calls
    length = calls.end - calls.start
    order = np.lexsort((length, calls.name))
    names, first, count = np.unique(calls.name[order], return_index=True, return_counts=True)
    median = length[order][first + count // 2] if len(names) else np.empty(0, np.int64)
    return length > _LONG * median[np.searchsorted(names, calls.name)]
