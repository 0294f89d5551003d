"""Traces made by hand, nanosecond by nanosecond: one process, its threads, its devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastfeed.profiler.model.trace import (
    Calls,
    Device,
    Kind,
    Ops,
    Origin,
    Overheads,
    Process,
    RangeKind,
    Ranges,
    Sched,
    Strings,
    Thread,
    Trace,
    Waits,
    table,
)


@dataclass
class TraceBuilder:
    """`op`, `call`, `range` and so on add a row each; `trace()` has them all.

    Correlation ids count from 1.
    """

    rows: dict[type, list[dict[str, Any]]] = field(default_factory=dict)
    names: Strings = field(default_factory=Strings)
    corr: int = 0

    def add(self, kind: type, /, **row: Any) -> None:
        if isinstance(row.get("name"), str):
            row["name"] = self.names[row["name"]]
        self.rows.setdefault(kind, []).append(row)

    def op(
        self,
        start: int,
        end: int,
        call: tuple[int, int] | None = None,
        *,
        api: str = "cudaLaunchKernel",
        thread: int = 0,
        kind: Kind = Kind.COMPUTE,
        name: str = "kernel",
        **more: Any,
    ) -> int:
        """A device operation, and the call (start, end) that launched it; its correlation id."""
        self.corr += 1
        columns = {"device": 0, "process": 0, "stream": 7, **more}
        self.add(Ops, start=start, end=end, kind=kind, name=name, corr=self.corr, **columns)
        if call is not None:
            self.call(*call, api, thread, self.corr)
        return self.corr

    def call(self, start: int, end: int, api: str, thread: int = 0, corr: int | None = None) -> int:
        if corr is None:
            corr = self.corr = self.corr + 1
        self.add(Calls, start=start, end=end, name=api, thread=thread, corr=corr)
        return corr

    def range(
        self, start: int, end: int, name: str, kind: RangeKind = RangeKind.PYTHON, thread: int = 0
    ) -> None:
        self.add(Ranges, start=start, end=end, name=name, kind=kind, thread=thread)

    def trace(self, threads: int = 2, devices: int = 1, **about: Any) -> Trace:
        columns: dict[type, dict[str, Any]] = {
            kind: {
                key: np.array([row.get(key, -1) for row in rows])
                for key in {key for row in rows for key in row}
            }
            for kind, rows in self.rows.items()
        }
        kinds = {
            Ops: "ops",
            Calls: "calls",
            Ranges: "ranges",
            Waits: "waits",
            Overheads: "overheads",
            Sched: "sched",
        }
        return Trace(
            Origin("made by hand", "nsys"),
            tuple(self.names.all),
            (Process(1),),
            tuple(Thread(0, 1 + number) for number in range(threads)),
            tuple(Device(number) for number in range(devices)),
            **{name: table(kind, **columns.get(kind, {})) for kind, name in kinds.items()},
            metadata=about,
        )
