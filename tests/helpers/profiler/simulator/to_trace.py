"""The run as a reader would give it, without a file: for tests of very many runs."""

from __future__ import annotations

from collections.abc import Sequence

from fastfeed.profiler.model.trace import (
    Calls,
    Device,
    Ops,
    Origin,
    Process,
    Ranges,
    Strings,
    Thread,
    Trace,
    Waits,
    table,
)
from helpers.profiler.simulator.events import Run


def as_traces(run: Run) -> list[Trace]:
    """One trace per process."""
    return [as_trace(run.of(at)) for at in range(len(run.hosts))]


def as_trace(run: Run) -> Trace:
    """The trace of a run of one process, on that process's own clock."""
    (host,), names = run.hosts, Strings()
    threads = {tid: at for at, tid in enumerate(host.threads)}
    devices = {gpu: at for at, gpu in enumerate(host.gpus)}

    def column(rows: Sequence, field: str) -> list[int]:
        return [getattr(row, field) for row in rows]

    def times(rows: Sequence) -> dict[str, list[int]]:
        return {edge: [at + host.skew_ns for at in column(rows, edge)] for edge in ("start", "end")}

    ops = table(
        Ops,
        **times(run.ops),
        device=[devices[op.gpu] for op in run.ops],
        process=0,
        stream=column(run.ops, "stream"),
        kind=column(run.ops, "kind"),
        name=names.many(op.name for op in run.ops),
        corr=column(run.ops, "corr"),
        bytes=column(run.ops, "bytes"),
        pageable=column(run.ops, "pageable"),
        seq=column(run.ops, "seq"),
        group=names.many(op.group or None for op in run.ops),
    )
    calls = table(
        Calls,
        **times(run.calls),
        thread=[threads[call.thread] for call in run.calls],
        corr=column(run.calls, "corr"),
        name=names.many(call.name for call in run.calls),
    )
    ranges = table(
        Ranges,
        **times(run.ranges),
        thread=[threads[one.thread] for one in run.ranges],
        kind=column(run.ranges, "kind"),
        name=names.many(one.name for one in run.ranges),
    )
    waits = table(
        Waits,
        corr=column(run.waits, "corr"),
        process=0,
        stream=column(run.waits, "stream"),
        on_stream=column(run.waits, "on_stream"),
        on_corr=column(run.waits, "on_corr"),
    )
    return Trace(
        Origin(f"rank {host.rank}", "chrome", wall_ns=0),
        tuple(names.all),
        (Process(host.pid, rank=host.rank),),
        tuple(Thread(0, tid, name) for tid, name in host.threads.items()),
        tuple(Device(at, process=0) for at in range(len(host.gpus))),
        ops,
        calls,
        ranges,
        waits,
    )
