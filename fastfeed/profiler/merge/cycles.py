"""Recordings that a profiler with a schedule wrote of one process, one file per cycle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.printable import plural
from fastfeed.profiler.model.trace import Device, Process, Strings, Thread, Trace, concatenated

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
    wall = first.origin.wall_ns or 0
    interned = _Interned()
    tables = [interned.tables(trace, (trace.origin.wall_ns or 0) - wall) for trace in cycles]
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
    joined: dict[str, Any] = {
        name: concatenated(*(part[name] for part in tables)) for name in _TABLES
    }
    return replace(
        first,
        origin=origin,
        names=tuple(interned.names.all),
        processes=tuple(interned.processes),
        threads=tuple(interned.threads),
        devices=tuple(interned.devices),
        metadata={**first.metadata, "pauses": tuple(_begin(trace) - wall for trace in cycles[1:])},
        **joined,
    )


class _Interned:
    """Names, processes, threads and devices of several recordings, each once."""

    def __init__(self) -> None:
        self.names = Strings()
        self.processes: dict[Process, int] = {}
        self.threads: dict[Thread, int] = {}
        self.devices: dict[Device, int] = {}
        self._corr = 0  # first correlation id of the next recording

    def tables(self, trace: Trace, shift: int) -> dict[str, Any]:
        """The tables of a recording with common indexes, times moved by `shift` nanoseconds."""
        name = _numbers([self.names[text] for text in trace.names])
        process = _indexes(self.processes, trace.processes)
        threads = [replace(row, process=process[row.process]) for row in trace.threads]
        devices = [replace(row, process=process[row.process]) for row in trace.devices]
        indexes = {
            **dict.fromkeys(("name", "domain", "group"), name),
            "process": process,
            "thread": _indexes(self.threads, threads),
            "device": _indexes(self.devices, devices),
        }

        def changed(column: str, values: np.ndarray) -> np.ndarray:
            if column in ("start", "end"):
                return values + shift
            if column in ("corr", "on_corr"):
                return np.where(values >= 0, values + self._corr, values)
            return indexes[column][values].astype(values.dtype) if column in indexes else values

        tables = {}
        for kind in _TABLES:
            rows = getattr(trace, kind)
            columns = [field.name for field in fields(rows)]
            tables[kind] = type(rows)(**{at: changed(at, getattr(rows, at)) for at in columns})
        self._corr += 1 + max(int(ids.max(initial=0)) for ids in (trace.ops.corr, trace.calls.corr))
        return tables


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
