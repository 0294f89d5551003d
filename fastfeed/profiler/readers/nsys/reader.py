"""Reads SQLite exports of Nsight Systems, of every version of its schema, as one `Trace`.

Sampled call stacks (SAMPLING_CALLCHAINS, COMPOSITE_EVENTS) are most of many files and are never
read.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.printable import plural
from fastfeed.profiler.model.columns import unique_values
from fastfeed.profiler.model.kernel_names import strip_version
from fastfeed.profiler.model.trace import (
    Calls,
    Ops,
    Origin,
    Overheads,
    RangeKind,
    Ranges,
    Sched,
    Strings,
    Table,
    Thread,
    Trace,
    Waits,
    table,
)
from fastfeed.profiler.readers.nsys import identity, nvtx, ops
from fastfeed.profiler.readers.nsys.database import (
    BROKEN,
    MAGIC,
    ColumnMap,
    NsysDatabase,
    open_database,
)
from fastfeed.profiler.readers.nsys.identity import global_ids, to_global_pid
from fastfeed.profiler.readers.nsys.ops import NAME, name_indexes

_NSYS_TABLES = (b"StringIds", b"TARGET_INFO_", b"CUPTI_ACTIVITY_KIND_", b"META_DATA_EXPORT")
_NSYS_TABLES += (b"EXPORT_META_DATA",)
_NVPROF = b"StringTable"
_COLUMNS = {"stream": "streamId", "corr": "correlationId"}  # of the file, if called otherwise
_RECORD = "nsys profile -t cuda,nvtx -s none --cpuctxsw=none --trace-fork-before-exec=true"
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


def knows(path: Path, head: bytes) -> bool:
    """True for a database with tables of Nsight Systems, some of which nvprof's has as well."""
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
    """The trace in one export; TraceError if it has no GPU work, or is damaged."""
    with open_database(Path(path)) as db:
        return _read(db)


def _read(db: NsysDatabase) -> Trace:
    names = Strings()
    notes = list[str]()
    op_rows = _drop_invalid(ops.raw_ops(db, names), "device operation", notes)
    calls = _drop_invalid(raw_calls(db, names), "API call", notes)
    has_thread = calls["globalTid"] != -1
    if not has_thread.all():
        notes.append(_skipped(int((~has_thread).sum()), "API call", "without a thread"))
        calls = {name: column[has_thread] for name, column in calls.items()}
    if not len(op_rows["start"]):
        raise TraceError(_explain_no_gpu_work(db, len(calls["start"]), notes))
    op_rows["globalPid"] = _owner_pids(op_rows, calls)
    nvtx_ranges, nvtx_notes = nvtx.raw_nvtx(db, names)
    parts = [nvtx_ranges, raw_loads(db, names), raw_system(db, names)]
    last = max(int(rows["end"].max(initial=0)) for rows in (op_rows, calls, *parts))
    ranges = _close_open_ranges(ops.concatenate(parts), last, notes)
    overheads = raw_overheads(db)
    waits = ops.raw_waits(db, calls, names)
    ids = global_ids(
        (op_rows["globalPid"], overheads["globalTid"]), (calls["globalTid"], ranges["globalTid"])
    )
    sched = raw_sched(db)
    known_thread = ids.thread(sched["globalTid"]) >= 0
    sched = {key: column[known_thread] for key, column in sched.items()}
    info = read_metadata(db)
    payloads = nvtx.nccl_ranges(db)
    process = ids.process(op_rows["globalPid"])
    gpus, device = identity.devices(db, ids, process, op_rows["deviceId"])
    group, size = nvtx.messages(op_rows, calls, payloads, names)
    threads = ids.threads(db)
    users = unique_values(process).tolist()
    ranks = process_ranks(
        info, db.path, users, threads, ids.of_processes(nvtx.nccl_ranks(payloads))
    )
    facts = {"cpu_count": info.cores, "world_size": info.world}
    return Trace(
        Origin(
            str(db.path),
            "nsys",
            info.version,
            info.wall_ns,
            bool(len(calls["start"])),
            info.dropped,
            notes=(*info.notes, *nvtx_notes, *notes),
        ),
        names=tuple(names.all),
        processes=ids.processes(db, threads, info.host, ranks),
        threads=threads,
        devices=gpus,
        ops=_table(Ops, op_rows, device=device, process=process, bytes=size, group=group),
        calls=_table(Calls, calls, thread=ids.thread(calls["globalTid"])),
        ranges=_table(Ranges, ranges, thread=ids.thread(ranges["globalTid"])),
        waits=_table(Waits, waits, process=ids.process(waits["globalPid"])),
        overheads=_table(Overheads, overheads, process=ids.process(overheads["globalTid"])),
        sched=_table(Sched, sched, thread=ids.thread(sched["globalTid"])),
        metadata={key: value for key, value in facts.items() if value},
    )


def _table(kind: type[Table], rows: ColumnMap, **more: np.ndarray) -> Table:
    """The table of these rows; `more` replaces columns of ids."""
    columns = {}
    for column in fields(kind):
        name = column.name if column.name in rows else _COLUMNS.get(column.name, "")
        if name in rows:
            columns[column.name] = rows[name]
    return table(kind, None, **(columns | more))


def _explain_no_gpu_work(db: NsysDatabase, calls: int, notes: list[str]) -> str:
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


def _drop_invalid(rows: ColumnMap, noun: str, notes: list[str]) -> ColumnMap:
    """Rows with a start and no earlier end; like nsys, without those that start at 0."""
    valid = (rows["start"] > 0) & (rows["end"] >= rows["start"])
    if valid.all():
        return rows
    notes.append(_skipped(int((~valid).sum()), noun, "without a valid start and end"))
    return {key: column[valid] for key, column in rows.items()}


def _close_open_ranges(rows: ColumnMap, last: int, notes: list[str]) -> ColumnMap:
    """Ranges open at the end of the recording end with it; those that end too early are dropped."""
    last = max(last, int(rows["start"].max(initial=0)))
    rows = {**rows, "end": np.where(rows["end"] == -1, last, rows["end"])}
    valid = rows["end"] >= rows["start"]
    if valid.all():
        return rows
    notes.append(_skipped(int((~valid).sum()), "range", "with an end before the start"))
    return {key: column[valid] for key, column in rows.items()}


def _skipped(count: int, noun: str, which: str) -> str:
    """A note for the user."""
    return f"{plural(count, noun)} {which} {'is' if count == 1 else 'are'} left out"


def _owner_pids(ops: ColumnMap, calls: ColumnMap) -> np.ndarray:
    """globalPid of each op.

    Some exports lack it: then that of the call with its correlation id, where one process alone has
    such a call; what is left belongs to the only process, or to process 0, which stands for an
    unknown one.
    """
    pids = ops["globalPid"]
    missing = pids == -1
    if not missing.any():
        return pids
    caller = to_global_pid(calls["globalTid"])
    processes = unique_values(caller[caller != -1])
    if len(processes) == 1:
        return np.where(missing, processes[0], pids)
    order = np.lexsort((caller, calls["correlationId"]))
    corr = calls["correlationId"][order]
    caller = caller[order]
    first = np.searchsorted(corr, ops["correlationId"][missing], side="left")
    last = np.searchsorted(corr, ops["correlationId"][missing], side="right")
    has_call = last > first
    begin = np.where(has_call, first, 0)
    end = np.where(has_call, last - 1, 0)
    owner = np.zeros(len(first), np.int64)
    if len(caller):
        owner = np.where(
            has_call & (caller[begin] == caller[end]) & (caller[begin] != -1), caller[begin], 0
        )
    filled = pids.copy()
    filled[missing] = owner
    return filled


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
        texts = db.strings(unique_values(rows["nameId"]))
        counted = [key for key, text in texts.items() if text in _OVERHEAD_NAMES]
        is_counted = np.isin(rows["nameId"], counted)
        rows = {key: column[is_counted] for key, column in rows.items()}
    valid = rows["end"] >= rows["start"]
    return {key: rows[key][valid] for key in ("start", "end", "globalTid")}


def raw_loads(db: NsysDatabase, names: Strings) -> ColumnMap:
    """CUDA's work inside a call: loading modules, compiling, waiting for the launch queue."""
    rows = _host_ranges(db, "CUPTI_ACTIVITY_KIND_OVERHEAD", names, "CUDA overhead")
    loading = [index for index in unique_values(rows[NAME]) if _LOADING.search(names.all[index])]
    is_loading = np.isin(rows[NAME], loading)
    rows["kind"] = np.where(is_loading, RangeKind.COMPILE, RangeKind.OTHER).astype(np.uint8)
    return rows


def raw_system(db: NsysDatabase, names: Strings) -> ColumnMap:
    """Calls of the operating system that blocked (osrt)."""
    rows = _host_ranges(db, "OSRT_API", names, "system call", '"end" > start')
    return rows | {"kind": np.full(len(rows[NAME]), RangeKind.SYSTEM, np.uint8)}


def _host_ranges(
    db: NsysDatabase, table: str, names: Strings, other: str, where: str = ""
) -> ColumnMap:
    """Ranges without their kind; those without a name are called by `other`."""
    rows = db.columns(table, ("start", "end", "globalTid", "nameId"), where)
    name = name_indexes(db, rows.pop("nameId"), names, other=other)
    return rows | {NAME: name, "domain": np.full(len(name), -1, np.int32)}


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


_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
_RANKS += ("SLURM_PROCID",)
_WORLDS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS")
_LOST = re.compile(r"\b(dropped|lost|discarded|overflow\w*|not all\b.*\bcollected)\b", re.I)
_LOST_COUNT = re.compile(  # "3 CUDA events were dropped", "dropped CUPTI records: 3"
    r"(\d+)(?:\s+[a-z]+){0,4}?\s+(?:dropped|lost|discarded)|(?:dropped|lost|discarded)\D{0,40}?(\d+)",
    re.I,
)
_GPU_RECORDS = re.compile(r"\b(cuda|cupti|gpu|kernels?)\b", re.I)
_ERROR = 3  # ENUM_DIAGNOSTIC_SEVERITY_LEVEL


@dataclass(frozen=True, slots=True)
class NsysMetadata:
    version: str
    wall_ns: int | None
    host: str
    env: Mapping[str, str]  # of the program that nsys started
    dropped: int
    notes: tuple[str, ...]
    cores: int | None
    world: int | None  # ranks of the job


def read_metadata(db: NsysDatabase) -> NsysMetadata:
    """Read all metadata of a recording, without its events."""
    exported = dict(db.pairs("META_DATA_EXPORT") or db.pairs("EXPORT_META_DATA"))
    system = dict(db.pairs("TARGET_INFO_SYSTEM_ENV"))
    capture = db.pairs("META_DATA_CAPTURE")
    env = _environment(capture, system)
    dropped, notes = _losses(db)
    product = exported.get("EXPORT_PRODUCT_VERSION", "")
    schema = exported.get("EXPORT_SCHEMA_VERSION", "")
    version = " ".join(filter(None, (product, f"schema {schema}" if schema else "")))
    wall = _wall_clock(db, exported)
    host = system.get("Hostname", "")
    world = next(filter(None, (_number(env.get(name, "")) for name in _WORLDS)), None)
    cores = _number(system.get("CpuCores", ""))
    return NsysMetadata(version, wall, host, env, dropped, notes, cores, world)


def process_ranks(
    metadata: NsysMetadata,
    path: Path,
    users: Sequence[int],
    threads: Sequence[Thread],
    communicators: Mapping[int, tuple[int, int]],
) -> dict[int, int]:
    """Index of a process to its rank, for the `users` of GPUs, where the file leaves no doubt.

    nsys names the main thread of an MPI program by its rank. Else one process has the rank that its
    launcher put into the environment (a program that starts ranks itself has none), or the one in
    the file's name; and of several, NCCL says who is who (`joined`: rank in, and size of, the
    largest communicator), as long as no two say the same.
    """
    mpi = {
        thread.process: int(thread.name[9:])
        for thread in threads
        if re.fullmatch(r"MPI Rank \d+", thread.name)
    }
    sizes = {communicators[user][1] for user in users if user in communicators}
    nccl = {
        user: communicators[user][0] for user in users if user in communicators and len(sizes) == 1
    }
    if len(users) > 1:
        for by_source in (mpi, nccl):
            ranks = {user: by_source[user] for user in users if user in by_source}
            if len(set(ranks.values())) == len(users):
                return ranks
        return {}
    of_env = (_number(metadata.env.get(name, "")) for name in _RANKS)
    of_nccl = nccl.get(users[0]) if sizes == {metadata.world} else None
    for rank in (mpi.get(users[0]), *of_env, of_nccl, _rank_in_name(path)):
        if rank is not None:
            return {users[0]: rank}
    return {}


def _rank_in_name(path: Path) -> int | None:
    """`run_rank3.sqlite`: 3. Only where the name says rank; a bare number can be anything."""
    numbers = re.findall(r"(?<![a-z])rank[._=-]?(\d+)(?!\d)", path.name, re.I)
    return int(numbers[0]) if len(numbers) == 1 else None


def _number(text: str) -> int | None:
    """A count or a rank; None for what is none, such as ten thousand digits."""
    return int(text) if text.isdecimal() and len(text) < 19 else None


def _environment(capture: list[tuple[str, str]], system: Mapping[str, str]) -> dict[str, str]:
    """Variables of process 0: a row each, `NAME="value"`; older versions have one text."""
    lines = [value for name, value in capture if name == "PROCESS_0:ENVIRONMENT_VARIABLE"]
    lines = lines or system.get("DeviceEnvironment", "").split(";")
    pairs = (line.partition("=") for line in lines)
    return {name: value.strip('"') for name, _, value in pairs if name}


def _wall_clock(db: NsysDatabase, exported: Mapping[str, str]) -> int | None:
    """Nanoseconds of the wall clock at time 0. An export can shift its times."""
    wall = next((row[0] for row in db.records("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"])), 0)
    if not wall:
        return None
    shift = exported.get("EXPORT_PARAM_TIME_SHIFT", "0")
    shift_ns = int(shift) if re.fullmatch(r"-?\d+", shift) else 0
    # normalized times are those of the wall clock already
    is_normal = exported.get("EXPORT_PARAM_TIME_NORMALIZE", "").lower() == "true"
    return (0 if is_normal else wall) - shift_ns


def _losses(db: NsysDatabase) -> tuple[int, tuple[str, ...]]:
    """Number of lost records of the GPU and its calls, and other diagnostics in nsys's words."""
    table = "DIAGNOSTIC_EVENT"
    if not db.has(table, "text"):
        return 0, ()
    lost = 0
    notes = {}
    for level, text in db.records(table, ["severity"], ["text"]):
        words = " ".join((text or "").split())
        number = _LOST_COUNT.search(re.sub(r"(?<=\d),(?=\d{3})", "", words))
        count = int(number[1] or number[2]) if number else 1
        if _LOST.search(words) and count:
            notes[f"nsys: {words}"] = None
            lost += count if _GPU_RECORDS.search(words) else 0
        elif level == _ERROR:
            notes[f"nsys: {words}"] = None
    return lost, tuple(notes)[:5]
