"""SQLite exports of Nsight Systems, of every age of its schema, as one `Trace`.

    nsys_database  a file as columns of numpy
    nsys_identity  processes, threads, GPUs
    nsys_ops       the device side
    nsys_host      calls, system ranges, scheduling
    nsys_nvtx      NVTX ranges
    nsys_nccl      what NCCL says in them
    nsys_repair    rows that cannot be as they are
    nsys_about     what the file says of itself

Sampled call stacks (SAMPLING_CALLCHAINS, COMPOSITE_EVENTS) are most of many files and are never read.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.profiler.model.trace import Calls, Ops, Origin, Overheads, Ranges, Sched, Strings, Trace, Waits, table
from fastfeed.profiler.readers.nsys import host as nsys_host
from fastfeed.profiler.readers.nsys import identity as nsys_identity
from fastfeed.profiler.readers.nsys import metadata as nsys_about
from fastfeed.profiler.readers.nsys import nccl as nsys_nccl
from fastfeed.profiler.readers.nsys import nvtx as nsys_nvtx
from fastfeed.profiler.readers.nsys import ops as nsys_ops
from fastfeed.profiler.readers.nsys.database import BROKEN, MAGIC, Database, opened
from fastfeed.profiler.readers.nsys.identity import people
from fastfeed.profiler.readers.nsys.ops import NAME
from fastfeed.profiler.readers.nsys.repair import closed, ordered, owners

__all__ = ["knows", "read"]

_OURS = (b"StringIds", b"TARGET_INFO_", b"CUPTI_ACTIVITY_KIND_", b"META_DATA_EXPORT", b"EXPORT_META_DATA")
_NVPROF = b"StringTable"
_RECORD = "nsys profile -t cuda,nvtx -s none --cpuctxsw=none --trace-fork-before-exec=true"


def knows(path: Path, head: bytes) -> bool:
    """Whether this is a database with tables of Nsight Systems; of nvprof's it shares some."""
    if not head.startswith(MAGIC):
        return False
    tables = head
    with contextlib.suppress(*BROKEN):  # a damaged one is told by what of its schema can be seen
        uri = path.resolve().as_uri() + "?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = bytes
            tables = b"\n".join(row[0] or b"" for row in connection.execute("SELECT name FROM sqlite_master"))
    return _NVPROF not in tables and any(name in tables for name in _OURS)


def read(path: Path) -> Trace:
    """The trace in one export. TraceError where it has no work of a GPU, or is damaged."""
    with opened(Path(path)) as db:
        return _read(db)


def _read(db: Database) -> Trace:
    names, notes = Strings(), list[str]()
    ops = ordered(nsys_ops.raw_ops(db, names), "device operations", notes)
    calls = ordered(nsys_host.raw_calls(db, names), "API calls", notes)
    owned = calls["globalTid"] != -1
    if not owned.all():
        notes.append(f"{int((~owned).sum())} API calls name no thread and are left out")
        calls = {name: column[owned] for name, column in calls.items()}
    if not len(ops["start"]):
        raise TraceError(_nothing(db, len(calls["start"]), notes))
    ops["globalPid"] = owners(ops, calls)
    nvtx = nsys_nvtx.raw_nvtx(db, names)
    parts = [nvtx.rows, nsys_host.raw_loads(db, names), nsys_host.raw_system(db, names)]
    last = max(int(rows["end"].max(initial=0)) for rows in (ops, calls, *parts))
    ranges = closed(nsys_ops.joined(parts), last, notes)
    overheads, waits = nsys_host.raw_overheads(db), nsys_ops.raw_waits(db, calls, names)
    who = people((ops["globalPid"], overheads["globalTid"]), (calls["globalTid"], ranges["globalTid"]))
    sched = nsys_host.raw_sched(db)
    mine = who.thread(sched["globalTid"]) >= 0
    said, payloads = nsys_about.about(db), nsys_nccl.told(db)
    process = who.process(ops["globalPid"])
    gpus, device = nsys_identity.devices(db, who, process, ops["deviceId"])
    group, size = nsys_nccl.messages(ops, calls, payloads, names)
    threads = who.threads(db)
    users = np.unique(process).tolist()
    ranks = nsys_about.ranks(said, db.path, users, threads, who.of_processes(nsys_nccl.ranks(payloads)))
    facts = {**said.facts, "gpu_names": sorted({gpu.name for gpu in gpus if gpu.name})}
    return Trace(
        Origin(
            str(db.path), "nsys", said.version, said.wall_ns, bool(len(calls["start"])), said.dropped,
            notes=(*said.notes, *nvtx.notes, *notes),
        ),
        names=tuple(names.all),
        processes=who.processes(db, threads, said.host, ranks),
        threads=threads,
        devices=gpus,
        ops=table(
            Ops, start=ops["start"], end=ops["end"], device=device, process=process, stream=ops["streamId"],
            kind=ops["kind"], name=ops[NAME], corr=ops["correlationId"], bytes=size, pageable=ops["pageable"],
            group=group,
        ),
        calls=table(
            Calls, start=calls["start"], end=calls["end"], thread=who.thread(calls["globalTid"]), name=calls[NAME],
            corr=calls["correlationId"],
        ),
        ranges=table(
            Ranges, start=ranges["start"], end=ranges["end"], thread=who.thread(ranges["globalTid"]),
            name=ranges[NAME], kind=ranges["kind"], domain=ranges["domain"],
        ),
        waits=table(
            Waits, corr=waits["corr"], process=who.process(waits["globalPid"]), stream=waits["stream"],
            on_stream=waits["on_stream"], on_corr=waits["on_corr"],
        ),
        overheads=table(
            Overheads, start=overheads["start"], end=overheads["end"], process=who.process(overheads["globalTid"])
        ),
        sched=table(
            Sched, start=sched["start"][mine], end=sched["end"][mine], thread=who.thread(sched["globalTid"][mine])
        ),
        metadata=facts,
    )  # fmt: skip


def _nothing(db: Database, calls: int, notes: list[str]) -> str:
    """Why there may be no work of a GPU in it, and how to record some."""
    again = f"record it again with {_RECORD}"
    if notes:
        return f"{db.path} has no usable device work ({'; '.join(notes)}); {again}"
    if calls:
        return (
            f"{db.path} has {calls} CUDA calls and no kernel or copy: the program ran no work on the GPU while it was"
            f" recorded, or was killed before the profiler could write; let it end by itself and {again}"
        )
    return (
        f"{db.path} has no CUDA activity: it was recorded without -t cuda, or the process that used the GPU was not"
        f" traced (a forked child needs --trace-fork-before-exec=true); {again}"
    )
