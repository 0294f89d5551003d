"""What every reader owes for any file: a trace that is sound in itself, or a TraceError of one
sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.profiler.model.trace import Kind, RangeKind, Trace


def outcome(path: Path, read: Callable[[Path], Trace]) -> Trace | None:
    try:
        trace = read(path)
    except TraceError as error:
        text = str(error)
        assert path.name in text and "\n" not in text and 20 < len(text) < 800, text
        return None
    assert_sound(trace)
    return trace


def assert_sound(trace: Trace) -> None:
    """Columns of one length, indexes of rows that exist, nothing that ends before it begins."""
    limits = {
        "device": trace.devices,
        "process": trace.processes,
        "thread": trace.threads,
        "name": trace.names,
    }
    limits |= {"domain": trace.names, "group": trace.names}
    for table in (trace.ops, trace.calls, trace.ranges, trace.waits, trace.overheads, trace.sched):
        columns: dict[str, Any] = {one.name: getattr(table, one.name) for one in fields(table)}
        assert len({len(column) for column in columns.values()}) == 1
        for name, rows in limits.items():
            if name in columns and len(columns[name]):
                assert columns[name].min() >= -1 and columns[name].max() < len(rows), name
        if "start" in columns:
            assert (columns["start"] <= columns["end"]).all()
    for table, name in ((trace.ops, "device"), (trace.ops, "process"), (trace.calls, "thread")):
        assert (getattr(table, name) >= 0).all(), name
    assert (
        np.isin(trace.ops.kind, list(Kind)).all()
        and np.isin(trace.ranges.kind, list(RangeKind)).all()
    )
    assert all(one.process < len(trace.processes) for one in trace.threads)
    assert all(isinstance(text, str) for text in trace.names)
    assert all(note and "\n" not in note for note in trace.origin.notes), trace.origin.notes


def rows_of(trace: Trace) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each table in one order, with texts, threads and devices in place of indexes:
    what a trace says, however it was read.
    """
    texts: dict[str, list[Any]] = {
        "name": [*trace.names, ""],
        "process": [*trace.processes, None],
        "thread": [
            *((trace.processes[one.process], one.tid, one.name) for one in trace.threads),
            None,
        ],
        "device": [*((one.ordinal, one.name, one.uuid) for one in trace.devices), None],
    }
    texts |= {"domain": texts["name"], "group": texts["name"]}
    found: dict[str, list[tuple[Any, ...]]] = {}
    for name in ("ops", "calls", "ranges", "waits", "overheads", "sched"):
        table = getattr(trace, name)
        columns = [
            (
                [texts[one.name][at] for at in getattr(table, one.name).tolist()]
                if one.name in texts
                else getattr(table, one.name).tolist()
            )
            for one in fields(table)
        ]
        found[name] = sorted(zip(*columns, strict=True), key=repr)
    return found
