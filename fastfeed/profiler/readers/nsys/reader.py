"""Reads SQLite exports of Nsight Systems, of every version of its schema, as one `Trace`.

Sampled call stacks (SAMPLING_CALLCHAINS, COMPOSITE_EVENTS) are most of many files and are never
read.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from fastfeed.errors import TraceError
from fastfeed.profiler.model.columns import distinct
from fastfeed.profiler.model.trace import (
    Calls,
    Ops,
    Origin,
    Overheads,
    Ranges,
    Sched,
    Strings,
    Trace,
    Waits,
    table,
)
from fastfeed.profiler.readers.nsys import host, identity, metadata, nccl, nvtx, ops
from fastfeed.profiler.readers.nsys.database import BROKEN, MAGIC, NsysDatabase, open_database
from fastfeed.profiler.readers.nsys.identity import global_ids
from fastfeed.profiler.readers.nsys.ops import NAME
from fastfeed.profiler.readers.nsys.repair import (
    close_open_ranges,
    drop_invalid,
    left_out,
    owners_of,
)

__all__ = ["knows", "read"]

_NSYS_TABLES = (
    b"StringIds",
    b"TARGET_INFO_",
    b"CUPTI_ACTIVITY_KIND_",
    b"META_DATA_EXPORT",
    b"EXPORT_META_DATA",
)
_NVPROF = b"StringTable"
_RECORD = "nsys profile -t cuda,nvtx -s none --cpuctxsw=none --trace-fork-before-exec=true"


def knows(path: Path, head: bytes) -> bool:
    """Whether this is a database with tables of Nsight Systems; of nvprof's it shares some."""
    if not head.startswith(MAGIC):
        return False
    tables = head
    with contextlib.suppress(*BROKEN):  # a damaged one is detected by what is left of its schema
        uri = path.resolve().as_uri() + "?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = bytes
            tables = b"\n".join(
                row[0] or b"" for row in connection.execute("SELECT name FROM sqlite_master")
            )
    return _NVPROF not in tables and any(name in tables for name in _NSYS_TABLES)


def read(path: Path) -> Trace:
    """The trace in one export. TraceError where it has no GPU work, or is damaged."""
    with open_database(Path(path)) as db:
        return _read(db)


def _read(db: NsysDatabase) -> Trace:
    names, notes = Strings(), list[str]()
    op_rows = drop_invalid(ops.raw_ops(db, names), "device operation", notes)
    calls = drop_invalid(host.raw_calls(db, names), "API call", notes)
    has_thread = calls["globalTid"] != -1
    if not has_thread.all():
        notes.append(left_out(int((~has_thread).sum()), "API call", "without a thread"))
        calls = {name: column[has_thread] for name, column in calls.items()}
    if not len(op_rows["start"]):
        raise TraceError(_nothing(db, len(calls["start"]), notes))
    op_rows["globalPid"] = owners_of(op_rows, calls)
    nvtx_ranges = nvtx.raw_nvtx(db, names)
    parts = [nvtx_ranges.rows, host.raw_loads(db, names), host.raw_system(db, names)]
    last = max(int(rows["end"].max(initial=0)) for rows in (op_rows, calls, *parts))
    ranges = close_open_ranges(ops.concatenate(parts), last, notes)
    overheads, waits = host.raw_overheads(db), ops.raw_waits(db, calls, names)
    ids = global_ids(
        (op_rows["globalPid"], overheads["globalTid"]), (calls["globalTid"], ranges["globalTid"])
    )
    sched = host.raw_sched(db)
    known_thread = ids.thread(sched["globalTid"]) >= 0
    sched = {key: column[known_thread] for key, column in sched.items()}
    info, payloads = metadata.read_metadata(db), nccl.nccl_ranges(db)
    process = ids.process(op_rows["globalPid"])
    gpus, device = identity.devices(db, ids, process, op_rows["deviceId"])
    group, size = nccl.messages(op_rows, calls, payloads, names)
    threads = ids.threads(db)
    users = distinct(process).tolist()
    ranks = metadata.ranks(info, db.path, users, threads, ids.of_processes(nccl.ranks(payloads)))
    facts = {**info.facts, "gpu_names": sorted({gpu.name for gpu in gpus if gpu.name})}
    return Trace(
        Origin(
            str(db.path),
            "nsys",
            info.version,
            info.wall_ns,
            bool(len(calls["start"])),
            info.dropped,
            notes=(*info.notes, *nvtx_ranges.notes, *notes),
        ),
        names=tuple(names.all),
        processes=ids.processes(db, threads, info.host, ranks),
        threads=threads,
        devices=gpus,
        ops=table(
            Ops,
            start=op_rows["start"],
            end=op_rows["end"],
            device=device,
            process=process,
            stream=op_rows["streamId"],
            kind=op_rows["kind"],
            name=op_rows[NAME],
            corr=op_rows["correlationId"],
            bytes=size,
            pageable=op_rows["pageable"],
            group=group,
        ),
        calls=table(
            Calls,
            start=calls["start"],
            end=calls["end"],
            thread=ids.thread(calls["globalTid"]),
            name=calls[NAME],
            corr=calls["correlationId"],
        ),
        ranges=table(
            Ranges,
            start=ranges["start"],
            end=ranges["end"],
            thread=ids.thread(ranges["globalTid"]),
            name=ranges[NAME],
            kind=ranges["kind"],
            domain=ranges["domain"],
        ),
        waits=table(
            Waits,
            corr=waits["corr"],
            process=ids.process(waits["globalPid"]),
            stream=waits["stream"],
            on_stream=waits["on_stream"],
            on_corr=waits["on_corr"],
        ),
        overheads=table(
            Overheads,
            start=overheads["start"],
            end=overheads["end"],
            process=ids.process(overheads["globalTid"]),
        ),
        sched=table(
            Sched, start=sched["start"], end=sched["end"], thread=ids.thread(sched["globalTid"])
        ),
        metadata=facts,
    )


def _nothing(db: NsysDatabase, calls: int, notes: list[str]) -> str:
    """Why there may be no GPU work in it, and how to record some."""
    again = f"record it again with {_RECORD}"
    if notes:
        return f"{db.path} has no usable device work ({'; '.join(notes)}); {again}"
    if calls:
        return (
            f"{db.path} has {calls} CUDA calls and no kernel or copy: the program ran no work on"
            " the GPU while it was recorded, or was killed before the profiler could write; let it"
            f" end by itself and {again}"
        )
    return (
        f"{db.path} has no CUDA activity: it was recorded without -t cuda, or the process that used"
        f" the GPU was not traced (a forked child needs --trace-fork-before-exec=true); {again}"
    )
