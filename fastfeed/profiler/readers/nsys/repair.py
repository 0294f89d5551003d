"""Rows of an export that cannot be as they are: without a start, ending before they begin, of no process."""

from __future__ import annotations

import numpy as np

from fastfeed.profiler.readers.nsys.database import Columns
from fastfeed.profiler.readers.nsys.identity import distinct, process_of

__all__ = ["closed", "ordered", "owners"]


def ordered(rows: Columns, what: str, notes: list[str]) -> Columns:
    """The rows that have a start and do not end before it. nsys, too, leaves out what starts at 0."""
    good = (rows["start"] > 0) & (rows["end"] >= rows["start"])
    if good.all():
        return rows
    notes.append(f"{int((~good).sum())} {what} have no valid start and end and are left out")
    return {key: column[good] for key, column in rows.items()}


def closed(rows: Columns, last: int, notes: list[str]) -> Columns:
    """Ranges that were open at the end of the recording end with it; what ends before it begins is left out."""
    last = max(last, int(rows["start"].max(initial=0)))
    rows = {**rows, "end": np.where(rows["end"] == -1, last, rows["end"])}
    good = rows["end"] >= rows["start"]
    if good.all():
        return rows
    notes.append(f"{int((~good).sum())} ranges end before they begin and are left out")
    return {key: column[good] for key, column in rows.items()}


def owners(ops: Columns, calls: Columns) -> np.ndarray:
    """globalPid of each op. Some exports lack it: then that of the call with its correlation id, where one process
    alone has such a call; what is left belongs to the only process, or to process 0, which is nobody.
    """
    pids = ops["globalPid"]
    lost = pids == -1
    if not lost.any():
        return pids
    caller = process_of(calls["globalTid"])
    everyone = distinct(caller[caller != -1])
    if len(everyone) == 1:
        return np.where(lost, everyone[0], pids)
    order = np.lexsort((caller, calls["correlationId"]))
    corr, caller = calls["correlationId"][order], caller[order]
    first = np.searchsorted(corr, ops["correlationId"][lost], side="left")
    last = np.searchsorted(corr, ops["correlationId"][lost], side="right")
    clear = last > first
    begin, end = np.where(clear, first, 0), np.where(clear, last - 1, 0)
    found = np.zeros(len(first), np.int64)
    if len(caller):
        found = np.where(clear & (caller[begin] == caller[end]) & (caller[begin] != -1), caller[begin], 0)
    filled = pids.copy()
    filled[lost] = found
    return filled
