"""nvprof's SQLite files (.nvprof, .nvvp), also as exported by the Visual Profiler.

Schema: the DDL in PatWie/nvprof2json, enumerations from CUPTI's headers. Device rows name no process; their correlation
id finds the call that launched them. Times are CUPTI's, nanoseconds since 1970 where nvprof could normalize them.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

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
    Thread,
    Trace,
    Waits,
    table,
)  # fmt: skip
from fastfeed.profiler.readers.nvprof.names import DRIVER, RUNTIME
from fastfeed.profiler.readers.nvprof.tables import ERRORS, Database

__all__ = ["knows", "read"]

_PREFIX = "CUPTI_ACTIVITY_KIND_"
_PLACED = ("start", "end", "deviceId", "streamId", "correlationId")
_COPIES = {
    1: ("HtoD", Kind.H2D), 2: ("DtoH", Kind.D2H), 3: ("HtoA", Kind.H2D), 4: ("AtoH", Kind.D2H), 5: ("AtoA", Kind.D2D),
    6: ("AtoD", Kind.D2D), 7: ("DtoA", Kind.D2D), 8: ("DtoD", Kind.D2D), 9: ("HtoH", Kind.OTHER),
    10: ("PtoP", Kind.P2P),
}  # fmt: skip
_UNIFIED = {1: "[Unified Memory Memcpy HtoD]", 2: "[Unified Memory Memcpy DtoH]", 8: "[Unified Memory Memcpy DtoD]"}
_START, _END = 2, 4  # flags of a marker
_THREAD = 2  # CUPTI_ACTIVITY_OBJECT_THREAD
_COMPILING = {1: "driver compiler", 4 << 16: "module loading", 5 << 16: "lazy function loading"}
_EPOCH = 1_000_000_000_000_000_000  # earlier (2001) than any trace: smaller times do not count from 1970


def knows(path: Path, head: bytes) -> bool:
    """Whether this is an SQLite file with nvprof's tables, and not Nsight Systems'."""
    if not head.startswith(b"SQLite format 3\x00"):
        return False
    try:
        with closing(Database(path)) as database:
            return database.is_nvprof
    except (TraceError, *ERRORS):
        return False


def read(path: Path) -> Trace:
    """The trace in an nvprof database; damaged tables count up to where they are whole, with a note."""
    with closing(Database(path)) as database:
        if not database.is_nvprof:
            raise TraceError(f"{path} is not nvprof's: it has no CUPTI_ACTIVITY tables; give what nvprof -o wrote")
        return _Reading(path, database).trace()


class _Reading:
    """One pass over the tables; what several of them need is kept here."""

    def __init__(self, path: Path, database: Database) -> None:
        self.path, self.database = path, database
        self.strings = Strings()
        self.texts = database.texts()
        self.processes: dict[int, int] = {}
        self.threads: dict[tuple[int, int], int] = {}
        self.devices: dict[int, int] = {}
        self.lost = 0  # rows without valid times
        self.negative = 0

    def trace(self) -> Trace:
        calls = [self._calls("RUNTIME", RUNTIME), self._calls("DRIVER", DRIVER)]
        markers = self._markers()
        compiling, overheads = self._overheads()
        if not self.processes:
            self._process(0)
        ops = [*(self._kernels(kind) for kind in ("CONCURRENT_KERNEL", "KERNEL")), *self._copies(), self._unified()]
        every = np.concatenate(ops)  # start, end, device, stream, kind, name, corr, bytes, pageable
        called = np.concatenate(calls)  # start, end, thread, name, corr
        ranges = np.concatenate([markers, compiling])  # start, end, thread, name, kind, domain
        process = self._owners(every[:, 6], called)
        base = min((int(part[:, 0].min()) for part in (every, called, ranges, overheads) if len(part)), default=0)
        last = max((int(part[:, :2].max()) for part in (every, called, ranges, overheads) if len(part)), default=0)
        ranges[ranges[:, 1] < 0, 1] = last  # still open at the end of the recording
        notes = [*self.database.notes]
        if self.lost:
            notes.append(f"{self.lost} records have no valid times; raise nvprof's --device-buffer-size")
        if self.negative:
            notes.append(f"{self.negative} records that end before they begin are left out")
        if not len(every):
            notes.append("no device activity was recorded")
        return Trace(
            Origin(
                str(self.path), "nvprof", self.database.version(), base if base > _EPOCH else None, len(called) > 0,
                self.lost, notes=tuple(notes),
            ),
            tuple(self.strings.all),
            tuple(Process(pid) for pid in self.processes),
            tuple(Thread(process, tid) for process, tid in self.threads),
            self._devices(),
            table(
                Ops, start=every[:, 0] - base, end=every[:, 1] - base, device=every[:, 2], process=process,
                stream=every[:, 3], kind=every[:, 4], name=every[:, 5], corr=every[:, 6], bytes=every[:, 7],
                pageable=every[:, 8],
            ),
            table(
                Calls, start=called[:, 0] - base, end=called[:, 1] - base, thread=called[:, 2], name=called[:, 3],
                corr=called[:, 4],
            ),
            table(
                Ranges, start=ranges[:, 0] - base, end=ranges[:, 1] - base, thread=ranges[:, 2], name=ranges[:, 3],
                kind=ranges[:, 4], domain=ranges[:, 5],
            ),
            self._waits(called),
            table(Overheads, start=overheads[:, 0] - base, end=overheads[:, 1] - base, process=overheads[:, 2]),
        )  # fmt: skip

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
        both = np.column_stack([pids, tids & 0xFFFFFFFF])
        distinct, inverse = np.unique(both, axis=0, return_inverse=True)
        found = [
            self.threads.setdefault((self._process(pid), tid), len(self.threads)) for pid, tid in distinct.tolist()
        ]
        return np.array(found, np.int64)[inverse.reshape(-1)]

    def _calls(self, name: str, names: dict[int, str]) -> np.ndarray:
        rows = self._valid(
            self.database.rows(_PREFIX + name, "start", "end", "processId", "threadId", "cbid", "correlationId")
        )
        numbers, inverse = np.unique(rows[:, 4], return_inverse=True)
        known = self.strings.many(names.get(cbid, f"{name.lower()} call {cbid}") for cbid in numbers.tolist())[inverse]
        return np.column_stack([rows[:, :2], self._thread(rows[:, 2], rows[:, 3]), known, rows[:, 5]])

    def _kernels(self, name: str) -> np.ndarray:
        rows = self._valid(self.database.rows(_PREFIX + name, *_PLACED, "name"))
        names = self._names(rows[:, 5])
        kinds = {index: kernel_kind(self.strings.all[index]) for index in np.unique(names).tolist()}
        kind = np.array([kinds[index] for index in names.tolist()], np.int64)
        return self._ops(rows, kind, names, rows[:, 4])

    def _copies(self) -> list[np.ndarray]:
        made = []
        for name in ("MEMCPY", "MEMCPY2"):
            rows = self._valid(self.database.rows(_PREFIX + name, *_PLACED, "bytes", "copyKind", "srcKind", "dstKind"))
            kinds = {kind: _COPIES.get(kind, (str(kind), Kind.OTHER)) for kind in np.unique(rows[:, 6]).tolist()}
            names = {kind: self.strings[f"[CUDA memcpy {text}]"] for kind, (text, _) in kinds.items()}
            kind = np.array([kinds[number][1] for number in rows[:, 6].tolist()], np.int64)
            named = np.array([names[number] for number in rows[:, 6].tolist()], np.int64)
            host = np.where(kind == Kind.H2D, rows[:, 7], np.where(kind == Kind.D2H, rows[:, 8], 0))
            pageable = np.select([host == 1, host > 1], [1, 0], -1)  # 1 pageable, 2 pinned, 5 managed
            made.append(self._ops(rows, kind, named, rows[:, 4], rows[:, 5], pageable))
        rows = self._valid(self.database.rows(_PREFIX + "MEMSET", *_PLACED, "bytes"))
        name = self.strings["[CUDA memset]"] if len(rows) else -1
        return [*made, self._ops(rows, Kind.MEMSET, name, rows[:, 4], rows[:, 5])]

    def _unified(self) -> np.ndarray:
        rows = self.database.rows(
            _PREFIX + "UNIFIED_MEMORY_COUNTER", "start", "end", "counterKind", "streamId", "srcId", "dstId", "value"
        )
        rows = self._valid(rows[np.isin(rows[:, 2], list(_UNIFIED))])  # the others count page faults and the like
        name = np.array([self.strings[_UNIFIED[kind]] for kind in rows[:, 2].tolist()], np.int64)
        device = np.where(rows[:, 2] == 2, rows[:, 4], rows[:, 5])
        placed = np.column_stack([rows[:, :2], device, rows[:, 3]])
        return self._ops(placed, Kind.OTHER, name, -1, rows[:, 6])

    def _ops(self, rows: np.ndarray, *columns: np.ndarray | int) -> np.ndarray:
        """Rows of start, end, device, stream, ... and columns of kind, name, corr, bytes, pageable."""
        distinct, inverse = np.unique(rows[:, 2], return_inverse=True)
        device = [self.devices.setdefault(id, len(self.devices)) for id in distinct.tolist()]
        more = [*columns, *[-1] * (5 - len(columns))]
        full = [np.broadcast_to(np.asarray(column, np.int64), len(rows)) for column in more]
        return np.column_stack([rows[:, :2], np.array(device, np.int64)[inverse], rows[:, 3], *full])

    def _owners(self, corr: np.ndarray, called: np.ndarray) -> np.ndarray:
        """Which process each op is of: the one whose call has its correlation id."""
        if len(self.processes) == 1 or not len(called):
            return np.zeros(len(corr), np.int64)
        of_thread = np.array([process for process, _ in self.threads], np.int64)
        called = called[np.argsort(called[:, 4], kind="stable")]
        at = np.minimum(np.searchsorted(called[:, 4], corr), len(called) - 1)
        return np.where(called[at, 4] == corr, of_thread[called[at, 2]], 0)

    def _markers(self) -> np.ndarray:
        rows, blobs = self.database.with_blob(
            _PREFIX + "MARKER", "objectId", "timestamp", "flags", "id", "name", "domain", "objectKind"
        )
        kept = (rows[:, 1] & (_START | _END) > 0) & (rows[:, 0] > 0)
        rows, blobs = rows[kept], blobs[kept]
        order = np.lexsort([rows[:, 1] & _END, rows[:, 0], rows[:, 2]])  # by id, then time, starts first
        rows, blobs = rows[order], blobs[order]
        starts = np.flatnonzero(rows[:, 1] & _START)
        follows = np.minimum(starts + 1, max(len(rows) - 1, 0))
        ended = (rows[follows, 2] == rows[starts, 2]) & (rows[follows, 1] & _END > 0) & (follows > starts)
        end = np.where(ended, rows[follows, 0], -1)
        begun, owner = rows[starts], blobs[starts]
        thread = np.full(len(begun), -1, np.int64)
        by_thread = begun[:, 5] == _THREAD
        thread[by_thread] = self._thread(owner[by_thread, 0], owner[by_thread, 1])
        name = self._names(begun[:, 3])
        kind = [range_kind(self.strings.all[index]) for index in name.tolist()]
        domain = np.full(len(begun), -1, np.int64)
        named = begun[:, 4] > 0
        domain[named] = self._names(begun[named, 4])
        return np.column_stack([begun[:, 0], end, thread, name, np.array(kind, np.int64), domain])

    def _overheads(self) -> tuple[np.ndarray, np.ndarray]:
        """Ranges of compilation, and what is the profiler's own: start, end, process."""
        rows, blobs = self.database.with_blob(
            _PREFIX + "OVERHEAD", "objectId", "start", "end", "overheadKind", "objectKind"
        )
        good = (rows[:, 0] > 0) & (rows[:, 1] >= rows[:, 0])
        rows, blobs = rows[good], blobs[good]
        compiling = np.isin(rows[:, 2], list(_COMPILING))
        name = np.array([self.strings[_COMPILING[kind]] for kind in rows[compiling, 2].tolist()], np.int64)
        by_thread = rows[compiling, 3] == _THREAD
        owner = blobs[compiling]
        thread = np.full(len(owner), -1, np.int64)
        thread[by_thread] = self._thread(owner[by_thread, 0], owner[by_thread, 1])
        count = len(owner)
        ranges = np.column_stack(
            [rows[compiling, :2], thread, name, np.full(count, RangeKind.COMPILE), np.full(count, -1)]
        ).astype(np.int64)
        own = rows[~compiling]
        process = [self._process(pid) for pid in blobs[~compiling, 0].tolist()]
        return ranges, np.column_stack([own[:, :2], np.array(process, np.int64)])

    def _waits(self, called: np.ndarray) -> Waits:
        """Streams told to wait, and the newest record of that event before."""
        rows = self.database.rows(_PREFIX + "SYNCHRONIZATION", "type", "correlationId", "streamId", "cudaEventId")
        rows = rows[rows[:, 0] == 2]
        records = self.database.rows(_PREFIX + "CUDA_EVENT", "eventId", "correlationId", "streamId")
        records = records[np.lexsort([records[:, 1], records[:, 0]])]
        on = np.full((len(rows), 2), -1, np.int64)
        for row, (_, corr, _, event) in enumerate(rows.tolist()):
            first, last = np.searchsorted(records[:, 0], [event, event + 1])
            at = first + np.searchsorted(records[first:last, 1], corr) - 1
            if at >= first:
                on[row] = records[at, 2], records[at, 1]
        process = self._owners(rows[:, 1], called)
        return table(Waits, corr=rows[:, 1], process=process, stream=rows[:, 2], on_stream=on[:, 0], on_corr=on[:, 1])

    def _devices(self) -> tuple[Device, ...]:
        rows, blobs = self.database.with_blob(_PREFIX + "DEVICE", "uuid", "id", "name", blob_words=4)
        known = {id: (self.texts.get(name, ""), uuid) for (id, name), uuid in zip(rows.tolist(), blobs, strict=True)}
        process = 0 if len(self.processes) == 1 else -1
        return tuple(
            Device(id, known[id][0], known[id][1].astype("<u4").tobytes().hex() if known[id][1].any() else "", process)
            if id in known else Device(id, process=process)
            for id in self.devices
        )  # fmt: skip
