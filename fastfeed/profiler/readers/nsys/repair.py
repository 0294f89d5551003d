"""Repairs or drops rows without a start, ending before they begin, or without a process."""

from __future__ import annotations

import numpy as np

from fastfeed.profiler.model.columns import distinct
from fastfeed.profiler.model.format import plural
from fastfeed.profiler.readers.nsys.database import ColumnMap
from fastfeed.profiler.readers.nsys.identity import process_of

__all__ = ["close_open_ranges", "drop_invalid", "left_out", "owners_of"]


def drop_invalid(rows: ColumnMap, noun: str, notes: list[str]) -> ColumnMap:
    """Rows with a start and no earlier end; like nsys, without those that start at 0."""
    valid = (rows["start"] > 0) & (rows["end"] >= rows["start"])
    if valid.all():
        return rows
    notes.append(left_out(int((~valid).sum()), noun, "without a valid start and end"))
    return {key: column[valid] for key, column in rows.items()}


def close_open_ranges(rows: ColumnMap, last: int, notes: list[str]) -> ColumnMap:
    """Ranges open at the end of the recording end with it; those that end too early are dropped."""
    last = max(last, int(rows["start"].max(initial=0)))
    rows = {**rows, "end": np.where(rows["end"] == -1, last, rows["end"])}
    valid = rows["end"] >= rows["start"]
    if valid.all():
        return rows
    notes.append(left_out(int((~valid).sum()), "range", "with an end before the start"))
    return {key: column[valid] for key, column in rows.items()}


def left_out(count: int, noun: str, which: str) -> str:
    """A note for the user."""
    return f"{plural(count, noun)} {which} {'is' if count == 1 else 'are'} left out"


def owners_of(ops: ColumnMap, calls: ColumnMap) -> np.ndarray:
    """globalPid of each op.

    Some exports lack it: then that of the call with its correlation id, where one process alone has
    such a call; what is left belongs to the only process, or to process 0, which stands for an
    unknown one.
    """
    pids = ops["globalPid"]
    missing = pids == -1
    if not missing.any():
        return pids
    caller = process_of(calls["globalTid"])
    processes = distinct(caller[caller != -1])
    if len(processes) == 1:
        return np.where(missing, processes[0], pids)
    order = np.lexsort((caller, calls["correlationId"]))
    corr, caller = calls["correlationId"][order], caller[order]
    first = np.searchsorted(corr, ops["correlationId"][missing], side="left")
    last = np.searchsorted(corr, ops["correlationId"][missing], side="right")
    has_call = last > first
    begin, end = np.where(has_call, first, 0), np.where(has_call, last - 1, 0)
    owner = np.zeros(len(first), np.int64)
    if len(caller):
        owner = np.where(
            has_call & (caller[begin] == caller[end]) & (caller[begin] != -1), caller[begin], 0
        )
    filled = pids.copy()
    filled[missing] = owner
    return filled
