"""Recordings that a profiler with a schedule wrote of one process, one file per cycle."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.profiler.model.format import plural
from fastfeed.profiler.model.trace import Device, Process, Strings, Table, Thread, Trace

__all__ = ["join_cycles"]

# PyTorch's tensorboard_trace_handler: worker.<time>.pt.trace.json
_TIMESTAMP = re.compile(r"\.(\d{13,19})(?=\.|$)")
_TABLES = ("ops", "calls", "ranges", "waits", "overheads", "sched")
_Row = TypeVar("_Row", Process, Thread, Device)


def join_cycles(traces: Sequence[Trace]) -> list[Trace]:
    """Join traces whose files differ in their time stamp only; return the others as they are.

    Raises:
        TraceError: Files of one worker are of different processes: of several runs, one of which
            must be chosen.
    """
    workers: dict[str, list[Trace]] = {}
    for number, trace in enumerate(traces):
        path = Path(trace.origin.path)
        stamped = _TIMESTAMP.search(path.name)
        key = str(path.with_name(_TIMESTAMP.sub("", path.name))) if stamped else str(number)
        workers.setdefault(key, []).append(trace)
    return [_joined(cycles) if len(cycles) > 1 else cycles[0] for cycles in workers.values()]


def _joined(cycles: Sequence[Trace]) -> Trace:
    """One trace of the cycles of one process, in order of time and on the clock of the first."""
    named = ", ".join(Path(trace.origin.path).name for trace in cycles[:3])
    pids = {tuple(sorted(process.pid for process in trace.processes)) for trace in cycles}
    if len(pids) > 1:
        raise TraceError(
            f"{plural(len(cycles), 'recording')} of one worker are of different processes: {named};"
            " pass those of one run"
        )
    cycles = sorted(cycles, key=_begin)
    first = cycles[0]
    names = Strings()
    processes: dict[Process, int] = {}
    threads: dict[Thread, int] = {}
    devices: dict[Device, int] = {}
    parts: dict[str, list[Any]] = {name: [] for name in _TABLES}
    corr = 0
    for trace in cycles:
        name = _numbers([names[text] for text in trace.names])
        process = _indexes(processes, trace.processes)
        thread = _indexes(
            threads, [replace(row, process=process[row.process]) for row in trace.threads]
        )
        device = _indexes(
            devices, [replace(row, process=process[row.process]) for row in trace.devices]
        )
        shift = (trace.origin.wall_ns or 0) - (first.origin.wall_ns or 0)
        change: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            **dict.fromkeys(("start", "end"), lambda times, shift=shift: times + shift),
            **dict.fromkeys(("name", "domain", "group"), lambda rows, name=name: name[rows]),
            **dict.fromkeys(
                ("corr", "on_corr"), lambda ids, corr=corr: np.where(ids >= 0, ids + corr, ids)
            ),
            "process": lambda rows, process=process: process[rows],
            "thread": lambda rows, thread=thread: thread[rows],
            "device": lambda rows, device=device: device[rows],
        }
        for table in _TABLES:
            parts[table].append(_changed(getattr(trace, table), change))
        corr += 1 + max(int(ids.max(initial=0)) for ids in (trace.ops.corr, trace.calls.corr))
    origins = [trace.origin for trace in cycles]
    note = (
        f"{plural(len(cycles), 'recording')} of one process are read one after the other: {named}."
    )
    origin = replace(
        first.origin,
        host_calls=all(origin.host_calls for origin in origins),
        dropped=sum(origin.dropped for origin in origins),
        sampled=any(origin.sampled for origin in origins),
        incomplete=next((origin.incomplete for origin in origins if origin.incomplete), ""),
        notes=tuple(dict.fromkeys([note, *(text for origin in origins for text in origin.notes)])),
    )
    pauses = tuple(_begin(trace) - (first.origin.wall_ns or 0) for trace in cycles[1:])
    tables: dict[str, Any] = {table: _concatenated(rows) for table, rows in parts.items()}
    return replace(
        first,
        origin=origin,
        names=tuple(names.all),
        processes=tuple(processes),
        threads=tuple(threads),
        devices=tuple(devices),
        metadata={**first.metadata, "pauses": pauses},
        **tables,
    )


def _begin(trace: Trace) -> int:
    """Nanoseconds since 1970 of the first event, else on the trace's clock."""
    starts = [getattr(trace, table).start for table in ("ops", "calls", "ranges")]
    return (trace.origin.wall_ns or 0) + min(
        (int(start.min()) for start in starts if len(start)), default=0
    )


def _indexes(known: dict[_Row, int], rows: Sequence[_Row]) -> np.ndarray:
    """Indexes of these rows among the known ones, with new ones added; the last is -1."""
    return _numbers([known.setdefault(row, len(known)) for row in rows])


def _numbers(indexes: Sequence[int]) -> np.ndarray:
    return np.array([*indexes, -1], np.int64)


def _changed(table: Table, change: Mapping[str, Callable[[np.ndarray], np.ndarray]]) -> Table:
    columns = {field.name: getattr(table, field.name) for field in fields(table)}
    return type(table)(
        **{
            name: change[name](column).astype(column.dtype) if name in change else column
            for name, column in columns.items()
        }
    )


def _concatenated(parts: Sequence[Table]) -> Table:
    columns = [field.name for field in fields(parts[0])]
    return type(parts[0])(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
    )
