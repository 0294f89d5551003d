"""Reads nvprof's SQLite files (.nvprof, .nvvp), also as exported by the Visual Profiler.

Schema: the DDL in PatWie/nvprof2json, enumerations from CUPTI's headers. Device rows name no
process; their correlation id finds the call that launched them. Times are CUPTI's, nanoseconds
since 1970 where nvprof could normalize them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastfeed.errors import TraceError
from fastfeed.profiler.model.kernel_names import kernel_kind, range_kind
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
    Strings,
    Table,
    Thread,
    Trace,
    Waits,
    table,
)
from fastfeed.profiler.readers.nsys.database import NsysDatabase, open_database

_OPS = ("start", "end", "device", "stream", "kind", "name", "corr", "bytes", "pageable")
_CALLS = ("start", "end", "thread", "name", "corr")
_RANGES = ("start", "end", "thread", "name", "kind", "domain")
_OVERHEADS = ("start", "end", "process")
_PREFIX = "CUPTI_ACTIVITY_KIND_"
_OP_COLUMNS = ("start", "end", "deviceId", "streamId", "correlationId")
_COPIES = {
    1: ("HtoD", Kind.H2D),
    2: ("DtoH", Kind.D2H),
    3: ("HtoA", Kind.H2D),
    4: ("AtoH", Kind.D2H),
    5: ("AtoA", Kind.D2D),
    6: ("AtoD", Kind.D2D),
    7: ("DtoA", Kind.D2D),
    8: ("DtoD", Kind.D2D),
    9: ("HtoH", Kind.OTHER),
    10: ("PtoP", Kind.P2P),
}
_UNIFIED = {
    1: "[Unified Memory Memcpy HtoD]",
    2: "[Unified Memory Memcpy DtoH]",
    8: "[Unified Memory Memcpy DtoD]",
}
# flags of a marker
_START = 2
_END = 4
_THREAD = 2  # CUPTI_ACTIVITY_OBJECT_THREAD
_COMPILING = {1: "driver compiler", 4 << 16: "module loading", 5 << 16: "lazy function loading"}
# earlier (2001) than any trace: smaller times do not count from 1970
_EPOCH = 1_000_000_000_000_000_000


def _api_names() -> dict[str, dict[int, str]]:
    """Names of runtime and driver calls by number; only those that explain why a device waits.

    Numbers never change from one CUDA to the next. Names come without the suffixes of versions.
    """
    tables: dict[str, dict[int, str]] = {"RUNTIME": {}, "DRIVER": {}}
    for line in Path(__file__).with_name("names.txt").read_text("utf-8").splitlines()[1:]:
        kind, name, *numbers = line.split()
        tables[kind].update((int(number), name) for number in numbers)
    return tables


API_NAMES = _api_names()


def knows(path: Path, head: bytes) -> bool:
    """True for an SQLite file with nvprof's tables, not those of Nsight Systems."""
    if not head.startswith(b"SQLite format 3\x00"):
        return False
    try:
        with open_database(path, read_locked=False) as database:
            return is_nvprof(database)
    except TraceError:
        return False


def read(path: Path) -> Trace:
    """The trace in an nvprof database; a TraceError if it is damaged."""
    with open_database(path, read_locked=False) as database:
        if not is_nvprof(database):
            raise TraceError(
                f"{path} is not nvprof's: it has no CUPTI_ACTIVITY tables; give what nvprof -o"
                " wrote"
            )
        return _TraceBuilder(path, database).trace()


class _TraceBuilder:
    """One pass over the tables, with the state that several of them share."""

    def __init__(self, path: Path, database: NsysDatabase) -> None:
        self.path = path
        self.database = database
        self.strings = Strings()
        texts = database.records("StringTable", ["_id_"], ["value"])
        self.texts = {key: text or "" for key, text in texts}
        self.processes: dict[int, int] = {}
        self.threads: dict[tuple[int, int], int] = {}
        self.devices: dict[int, int] = {}
        self.lost = 0  # rows without valid times
        self.negative = 0

    def trace(self) -> Trace:
        call_tables = [self._calls(*names) for names in API_NAMES.items()]
        markers = self._markers()
        compiling, overheads = self._overheads()
        if not self.processes:
            self._process(0)
        op_tables = [
            *(self._kernels(kind) for kind in ("CONCURRENT_KERNEL", "KERNEL")),
            *self._copies(),
            self._unified(),
        ]
        op_rows = np.concatenate(op_tables)
        call_rows = np.concatenate(call_tables)
        ranges = np.concatenate([markers, compiling])
        process = self._owners(op_rows[:, 6], call_rows)
        tables = (op_rows, call_rows, ranges, overheads)
        base = min((int(rows[:, 0].min()) for rows in tables if len(rows)), default=0)
        last = max((int(rows[:, :2].max()) for rows in tables if len(rows)), default=0)
        ranges[ranges[:, 1] < 0, 1] = last  # still open at the end of the recording
        for rows in tables:
            rows[:, :2] -= base
        notes = []
        if self.lost:
            notes.append(
                f"{self.lost} records have no valid times; raise nvprof's --device-buffer-size"
            )
        if self.negative:
            notes.append(f"{self.negative} records that end before they begin are left out")
        if not len(op_rows):
            notes.append("no device activity was recorded")
        version = next((str(row[0]) for row in self.database.records("Version", ["version"])), "")
        return Trace(
            Origin(
                str(self.path),
                "nvprof",
                version,
                base if base > _EPOCH else None,
                len(call_rows) > 0,
                self.lost,
                notes=tuple(notes),
            ),
            tuple(self.strings.all),
            tuple(Process(pid) for pid in self.processes),
            tuple(Thread(process, tid) for process, tid in self.threads),
            self._devices(),
            columns_of(Ops, op_rows, _OPS, process=process),
            columns_of(Calls, call_rows, _CALLS),
            columns_of(Ranges, ranges, _RANGES),
            self._waits(call_rows),
            columns_of(Overheads, overheads, _OVERHEADS),
        )

    def _valid(self, rows: np.ndarray) -> np.ndarray:
        """Rows whose first two columns are the times of something."""
        timed = (rows[:, 0] >= 0) & (rows[:, 1] > 0)  # CUPTI writes 0 for both where it lost them
        forward = rows[:, 1] >= rows[:, 0]
        self.lost += int((~timed).sum())
        self.negative += int((timed & ~forward).sum())
        return rows[timed & forward]

    def _names(self, ids: np.ndarray) -> np.ndarray:
        """Indexes of a column of string ids."""
        distinct, inverse = np.unique(ids, return_inverse=True)
        return self.strings.many(self.texts.get(id, f"<{id}>") for id in distinct.tolist())[inverse]

    def _process(self, pid: int) -> int:
        return self.processes.setdefault(pid, len(self.processes))

    def _thread(self, pids: np.ndarray, tids: np.ndarray) -> np.ndarray:
        """Indexes of threads; nvprof has their ids with and without a sign."""
        ids = np.column_stack([pids, tids & 0xFFFFFFFF])
        distinct, inverse = np.unique(ids, axis=0, return_inverse=True)
        indexes = [
            self.threads.setdefault((self._process(pid), tid), len(self.threads))
            for pid, tid in distinct.tolist()
        ]
        return np.array(indexes, np.int64)[inverse.reshape(-1)]

    def _owner(self, kind: np.ndarray, blobs: np.ndarray) -> np.ndarray:
        """Indexes of the threads that own rows, -1 for what a process or a device owns."""
        thread = np.full(len(kind), -1, np.int64)
        rows = kind == _THREAD
        thread[rows] = self._thread(blobs[rows, 0], blobs[rows, 1])
        return thread

    def _calls(self, name: str, names: dict[int, str]) -> np.ndarray:
        columns = ("start", "end", "processId", "threadId", "cbid", "correlationId")
        rows = self._valid(read_rows(self.database, _PREFIX + name, *columns))
        numbers, inverse = np.unique(rows[:, 4], return_inverse=True)
        indexes = self.strings.many(
            names.get(cbid, f"{name.lower()} call {cbid}") for cbid in numbers.tolist()
        )[inverse]
        return np.column_stack(
            [rows[:, :2], self._thread(rows[:, 2], rows[:, 3]), indexes, rows[:, 5]]
        )

    def _kernels(self, name: str) -> np.ndarray:
        rows = self._valid(read_rows(self.database, _PREFIX + name, *_OP_COLUMNS, "name"))
        names = self._names(rows[:, 5])
        used, inverse = np.unique(names, return_inverse=True)
        kinds = np.array([kernel_kind(self.strings.all[at]) for at in used.tolist()], np.int64)
        return self._ops(rows, kinds[inverse], names, rows[:, 4])

    def _copies(self) -> list[np.ndarray]:
        tables = []
        for name in ("MEMCPY", "MEMCPY2"):
            columns = (*_OP_COLUMNS, "bytes", "copyKind", "srcKind", "dstKind")
            rows = self._valid(read_rows(self.database, _PREFIX + name, *columns))
            numbers, inverse = np.unique(rows[:, 6], return_inverse=True)
            copies = [_COPIES.get(at, (str(at), Kind.OTHER)) for at in numbers.tolist()]
            kind = np.array([kind for _, kind in copies], np.int64)[inverse]
            indexes = self.strings.many(f"[CUDA memcpy {text}]" for text, _ in copies)[inverse]
            host = np.where(kind == Kind.H2D, rows[:, 7], np.where(kind == Kind.D2H, rows[:, 8], 0))
            # 1 pageable, 2 pinned, 5 managed
            pageable = np.select([host == 1, host > 1], [1, 0], -1)
            tables.append(self._ops(rows, kind, indexes, rows[:, 4], rows[:, 5], pageable))
        rows = self._valid(read_rows(self.database, _PREFIX + "MEMSET", *_OP_COLUMNS, "bytes"))
        name = self.strings["[CUDA memset]"] if len(rows) else -1
        return [*tables, self._ops(rows, Kind.MEMSET, name, rows[:, 4], rows[:, 5])]

    def _unified(self) -> np.ndarray:
        columns = ("start", "end", "counterKind", "streamId", "srcId", "dstId", "value")
        rows = read_rows(self.database, _PREFIX + "UNIFIED_MEMORY_COUNTER", *columns)
        # the others count page faults
        rows = self._valid(rows[np.isin(rows[:, 2], list(_UNIFIED))])
        name = np.array([self.strings[_UNIFIED[kind]] for kind in rows[:, 2].tolist()], np.int64)
        device = np.where(rows[:, 2] == 2, rows[:, 4], rows[:, 5])
        op_rows = np.column_stack([rows[:, :2], device, rows[:, 3]])
        return self._ops(op_rows, Kind.OTHER, name, -1, rows[:, 6])

    def _ops(self, rows: np.ndarray, *columns: np.ndarray | int) -> np.ndarray:
        """Rows of start, end, device, stream, kind, name, corr, bytes, pageable."""
        distinct, inverse = np.unique(rows[:, 2], return_inverse=True)
        device = [self.devices.setdefault(id, len(self.devices)) for id in distinct.tolist()]
        values = [*columns, *[-1] * (5 - len(columns))]
        filled = [np.broadcast_to(np.asarray(column, np.int64), len(rows)) for column in values]
        return np.column_stack(
            [rows[:, :2], np.array(device, np.int64)[inverse], rows[:, 3], *filled]
        )

    def _owners(self, corr: np.ndarray, calls: np.ndarray) -> np.ndarray:
        """The process of each op: the one whose call has its correlation id."""
        if len(self.processes) == 1 or not len(calls):
            return np.zeros(len(corr), np.int64)
        of_thread = np.array([process for process, _ in self.threads], np.int64)
        calls = calls[np.argsort(calls[:, 4], kind="stable")]
        at = np.minimum(np.searchsorted(calls[:, 4], corr), len(calls) - 1)
        return np.where(calls[at, 4] == corr, of_thread[calls[at, 2]], 0)

    def _markers(self) -> np.ndarray:
        columns = ("timestamp", "flags", "id", "name", "domain", "objectKind")
        rows, blobs = rows_with_blob(self.database, _PREFIX + "MARKER", "objectId", *columns)
        valid = (rows[:, 1] & (_START | _END) > 0) & (rows[:, 0] > 0)
        rows = rows[valid]
        blobs = blobs[valid]
        # by id, then time, starts first
        order = np.lexsort([rows[:, 1] & _END, rows[:, 0], rows[:, 2]])
        rows = rows[order]
        blobs = blobs[order]
        starts = np.flatnonzero(rows[:, 1] & _START)
        follows = np.minimum(starts + 1, max(len(rows) - 1, 0))
        has_end = (rows[follows, 2] == rows[starts, 2]) & (rows[follows, 1] & _END > 0)
        end = np.where(has_end & (follows > starts), rows[follows, 0], -1)
        begin = rows[starts]
        thread = self._owner(begin[:, 5], blobs[starts])
        name = self._names(begin[:, 3])
        kind = [range_kind(self.strings.all[index]) for index in name.tolist()]
        domain = np.full(len(begin), -1, np.int64)
        has_domain = begin[:, 4] > 0
        domain[has_domain] = self._names(begin[has_domain, 4])
        return np.column_stack([begin[:, 0], end, thread, name, np.array(kind, np.int64), domain])

    def _overheads(self) -> tuple[np.ndarray, np.ndarray]:
        """Ranges of compilation, and the profiler's own overhead: start, end, process."""
        columns = ("start", "end", "overheadKind", "objectKind")
        rows, blobs = rows_with_blob(self.database, _PREFIX + "OVERHEAD", "objectId", *columns)
        valid = (rows[:, 0] > 0) & (rows[:, 1] >= rows[:, 0])
        rows = rows[valid]
        blobs = blobs[valid]
        compiling = np.isin(rows[:, 2], list(_COMPILING))
        name = np.array(
            [self.strings[_COMPILING[kind]] for kind in rows[compiling, 2].tolist()], np.int64
        )
        thread = self._owner(rows[compiling, 3], blobs[compiling])
        kind = np.full(len(name), RangeKind.COMPILE)
        domain = np.full(len(name), -1)
        ranges = np.column_stack([rows[compiling, :2], thread, name, kind, domain])
        ranges = ranges.astype(np.int64)
        profiler_rows = rows[~compiling]
        process = [self._process(pid) for pid in blobs[~compiling, 0].tolist()]
        return ranges, np.column_stack([profiler_rows[:, :2], np.array(process, np.int64)])

    def _waits(self, calls: np.ndarray) -> Waits:
        """Streams that wait for an event, each with the latest earlier record of that event."""
        columns = ("type", "correlationId", "streamId", "cudaEventId")
        rows = read_rows(self.database, _PREFIX + "SYNCHRONIZATION", *columns)
        rows = rows[rows[:, 0] == 2]
        records = read_rows(
            self.database, _PREFIX + "CUDA_EVENT", "eventId", "correlationId", "streamId"
        )
        records = records[np.lexsort([records[:, 1], records[:, 0]])]
        recorded = np.full((len(rows), 2), -1, np.int64)
        for row, (_, corr, _, event) in enumerate(rows.tolist()):
            first, last = np.searchsorted(records[:, 0], [event, event + 1])
            at = first + np.searchsorted(records[first:last, 1], corr) - 1
            if at >= first:
                recorded[row] = records[at, 2], records[at, 1]
        process = self._owners(rows[:, 1], calls)
        waits = np.column_stack([rows[:, 1:3], recorded])
        return columns_of(Waits, waits, ("corr", "stream", "on_stream", "on_corr"), process=process)

    def _devices(self) -> tuple[Device, ...]:
        rows, blobs = rows_with_blob(
            self.database, _PREFIX + "DEVICE", "uuid", "id", "name", count=4
        )
        details = {
            id: (self.texts.get(name, ""), uuid.astype("<u4").tobytes().hex() if uuid.any() else "")
            for (id, name), uuid in zip(rows.tolist(), blobs, strict=True)
        }
        process = 0 if len(self.processes) == 1 else -1
        return tuple(
            Device(id, *details[id], process) if id in details else Device(id, process=process)
            for id in self.devices
        )


_MAX_VALUE = 1 << 61  # nanoseconds; larger numbers are damage


def columns_of(kind: type[Table], rows: np.ndarray, names: tuple[str, ...], **more: Any) -> Table:
    """Rows of int64, shape (n, len(names)), as a table with these columns."""
    columns: dict[str, Any] = dict(zip(names, rows.T, strict=True))
    return table(kind, **columns, **more)


def is_nvprof(db: NsysDatabase) -> bool:
    """True for a file with CUPTI's tables and none that only Nsight Systems writes."""
    cupti = any(name.startswith("CUPTI_ACTIVITY_KIND_") for name in db.tables)
    return (
        cupti and db.has("StringTable") and not db.tables.keys() & {"StringIds", "META_DATA_EXPORT"}
    )


def read_rows(db: NsysDatabase, name: str, *columns: str) -> np.ndarray:
    """Columns of a table; -1 for missing values, rows with absurd numbers left out."""
    rows = np.column_stack(list(db.columns(name, columns).values()))
    return rows[(np.abs(rows) < _MAX_VALUE).all(axis=1)]


def rows_with_blob(
    db: NsysDatabase, name: str, blob: str, *columns: str, count: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """As `read_rows`, and the first 32-bit words of a blob, int64, shape (n, count); else 0."""
    rows = np.column_stack(list(db.columns(name, columns).values()))
    words = np.zeros((len(rows), count), np.int64)
    if db.has(name, blob):
        texts = [text for part in db.texts(name, blob, f"hex({blob})") for text in part]
        data = b"".join(
            bytes.fromhex(text or "")[: 4 * count].ljust(4 * count, b"\x00") for text in texts
        )
        words = np.frombuffer(data, "<u4").reshape(-1, count).astype(np.int64)
    is_valid = (np.abs(rows) < _MAX_VALUE).all(axis=1)
    return rows[is_valid], words[is_valid]
