"""The host side of an export: API and system calls, the profiler's own work, scheduling."""

from __future__ import annotations

import re

import numpy as np

from fastfeed.profiler.model.columns import distinct
from fastfeed.profiler.model.kernel_names import strip_version
from fastfeed.profiler.model.trace import RangeKind, Strings
from fastfeed.profiler.readers.nsys.database import ColumnMap, NsysDatabase
from fastfeed.profiler.readers.nsys.ops import NAME, name_indexes

_OVERHEAD_NAMES = frozenset(  # those that nsys itself counts as busy
    (
        "CUDA profiling data flush overhead",
        "CUDA profiling stop overhead",
        "CUDA profiling overhead",
    )
)
_BACKTRACES = (67, 68, 69)  # eventClass: the same call once more, with its stack
_LOADING = re.compile(r"module loading|function loading|compiler|jit", re.I)
_RUNNABLE = 1  # ENUM_SAMPLING_THREAD_STATE: it was running when its core was taken away


def raw_calls(db: NsysDatabase, names: Strings) -> ColumnMap:
    """Runtime and driver calls, which share a table."""
    table = "CUPTI_ACTIVITY_KIND_RUNTIME"
    rows = db.columns(table, ("start", "end", "globalTid", "correlationId", "nameId", "eventClass"))
    repeated = np.isin(rows.pop("eventClass"), _BACKTRACES)
    if repeated.any():
        rows = {key: column[~repeated] for key, column in rows.items()}
    rows[NAME] = name_indexes(db, rows.pop("nameId"), names, strip_version, "API call {}")
    return rows


def raw_overheads(db: NsysDatabase) -> ColumnMap:
    """The profiler at work: start, end, globalTid.

    Newer versions say what each row is in `overheadType`, and all rows of this table are the
    profiler's. Of older ones only the rows count that nsys takes for busy time.
    """
    table = "PROFILER_OVERHEAD"
    rows = db.columns(table, ("start", "end", "globalTid", "nameId", "overheadType"))
    if not db.has(table, "overheadType") and len(rows["start"]):
        texts = db.strings(distinct(rows["nameId"]))
        counted = [key for key, text in texts.items() if text in _OVERHEAD_NAMES]
        is_counted = np.isin(rows["nameId"], counted)
        rows = {key: column[is_counted] for key, column in rows.items()}
    valid = rows["end"] >= rows["start"]
    return {key: rows[key][valid] for key in ("start", "end", "globalTid")}


def raw_loads(db: NsysDatabase, names: Strings) -> ColumnMap:
    """CUDA's work inside a call: loading modules, compiling, waiting for the launch queue."""
    rows = db.columns("CUPTI_ACTIVITY_KIND_OVERHEAD", ("start", "end", "globalTid", "nameId"))
    ids = rows.pop("nameId")
    rows[NAME] = name_indexes(db, ids, names, other="CUDA overhead")
    loading = {
        index for index in distinct(rows[NAME]).tolist() if _LOADING.search(names.all[index])
    }
    rows["kind"] = np.where(
        np.isin(rows[NAME], list(loading)), RangeKind.COMPILE, RangeKind.OTHER
    ).astype(np.uint8)
    rows["domain"] = np.full(len(ids), -1, np.int32)
    return rows


def raw_system(db: NsysDatabase, names: Strings) -> ColumnMap:
    """Calls of the operating system that blocked (osrt)."""
    rows = db.columns("OSRT_API", ("start", "end", "globalTid", "nameId"), '"end" > start')
    ids = rows.pop("nameId")
    rows[NAME] = name_indexes(db, ids, names, other="system call")
    rows["kind"] = np.full(len(ids), RangeKind.SYSTEM, np.uint8)
    rows["domain"] = np.full(len(ids), -1, np.int32)
    return rows


def raw_sched(db: NsysDatabase) -> ColumnMap:
    """Threads that could run and had no core: from losing it while running to getting one again."""
    table = "SCHED_EVENTS"
    no_rows = {key: np.empty(0, np.int64) for key in ("start", "end", "globalTid")}
    if not db.has(table, "start", "isSchedIn", "globalTid", "threadState"):
        return no_rows
    rows = db.columns(table, ("start", "isSchedIn", "globalTid", "threadState"))
    order = np.lexsort((rows["start"], rows["globalTid"]))
    start, scheduled_in, tid, state = (
        rows[key][order] for key in ("start", "isSchedIn", "globalTid", "threadState")
    )
    preempted = (
        (scheduled_in[:-1] == 0)
        & np.isin(state[:-1], _runnable(db))
        & (scheduled_in[1:] == 1)
        & (tid[:-1] == tid[1:])
    )
    at = np.flatnonzero(preempted)  # rows are sorted by start, so none ends before it begins
    return {"start": start[at], "end": start[at + 1], "globalTid": tid[at]} if len(at) else no_rows


def _runnable(db: NsysDatabase) -> list[int]:
    table = "ENUM_SAMPLING_THREAD_STATE"
    if not db.has(table, "id", "name"):
        return [_RUNNABLE]
    return [
        key
        for key, name in db.records(table, ["id"], ["name"])
        if name in ("Running", "Runnable", "Ready") and key
    ]
