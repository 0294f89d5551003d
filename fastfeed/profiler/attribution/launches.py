"""Matches device ops with the API calls that launched them."""

from __future__ import annotations

import numpy as np

from fastfeed.profiler.model.columns import factorize, pick
from fastfeed.profiler.model.trace import Trace

LOADS_NS = 1_000_000  # a first launch that takes longer than this loads its kernel
_SPREAD = 4  # ids per call up to which a table of all ids is small
_LONG = 10  # times the median of the same API: such a call did more than launch


def launch_calls(trace: Trace) -> np.ndarray:
    """Index into `trace.calls` of each op's launch: int64, shape (len(ops),); -1 unknown."""
    return calls_by_id(trace, trace.ops.process, trace.ops.corr)


def launch_times(
    trace: Trace, launch: np.ndarray, rows: np.ndarray | slice = slice(None)
) -> np.ndarray:
    """Launch of these ops, else their start: int64. `launch` has their calls, -1 for unknown."""
    return pick(trace.calls.start, launch, trace.ops.start[rows])


def calls_by_id(trace: Trace, process: np.ndarray, corr: np.ndarray) -> np.ndarray:
    """Index into `trace.calls` of each process and id's first call: int64, -1 for none."""
    calls = trace.calls
    result = np.full(len(corr), -1, np.int64)
    usable = np.argsort(calls.start, kind="stable")
    usable = usable[calls.corr[usable] >= 0]
    if not len(usable) or not len(corr):
        return result
    target = corr
    ids = calls.corr[usable]
    if (
        max(ids.max(), target.max()) >= 1 << 40
    ):  # some ids are addresses: renumber them so that the keys fit in int64
        _, codes = np.unique(np.concatenate([ids, target]), return_inverse=True)
        ids, target = codes[: len(ids)], np.where(target >= 0, codes[len(ids) :], -1)
    width = int(max(ids.max(), target.max())) + 2
    keys = trace.thread_processes(calls.thread[usable]) * width + ids
    target_keys = process.astype(np.int64) * width + target
    rows = np.flatnonzero((target >= 0) & (target_keys >= keys.min()) & (target_keys <= keys.max()))
    result[rows] = _first_with(keys, usable, target_keys[rows])
    return result


def _first_with(keys: np.ndarray, rows: np.ndarray, target: np.ndarray) -> np.ndarray:
    """First of these rows with each target's key: int64, or -1; targets are in range."""
    low = int(keys.min())
    high = int(keys.max())
    if high - low <= _SPREAD * len(
        keys
    ):  # ids count up: a table takes a third of the time of sorting
        row_of = np.full(high - low + 1, -1, np.int64)
        row_of[keys[::-1] - low] = rows[::-1]  # the last write per key wins: the first row
        return row_of[target - low]
    order = np.argsort(keys, kind="stable")
    position = np.searchsorted(keys[order], target)
    return np.where(keys[order][position] == target, rows[order][position], -1)


def is_first_use(trace: Trace) -> np.ndarray:
    """Mask of the first op of each name on each device, which loads its kernel."""
    ops = trace.ops
    key = ops.device.astype(np.int64) * (len(trace.names) + 1) + ops.name
    key -= key.min(initial=0)
    order = np.argsort(ops.start, kind="stable")[::-1]
    first = np.full(int(key.max(initial=-1)) + 1, -1, np.int64)
    first[key[order]] = order  # the last write per key wins: the earliest op
    is_first = np.zeros(len(key), bool)
    is_first[first[first >= 0]] = True
    return is_first


def is_long_call(trace: Trace) -> np.ndarray:
    """Mask of calls longer than ten times the median of their API: shape (len(calls),)."""
    calls = trace.calls
    length = calls.end - calls.start
    names, number = factorize(calls.name)
    order = np.lexsort((length, number))
    count = np.bincount(number, minlength=len(names))
    median = length[order][np.cumsum(count) - count + count // 2] if len(names) else length
    return length > _LONG * median[number]
