"""Who is who in an export of Nsight Systems: processes and threads behind global ids, GPUs behind device numbers.

globalTid = (hardware 8 bits) << 56 | (machine 8) << 48 | (pid 24) << 24 | (tid 24), as a signed 64-bit integer; a
globalPid is that of a process with its lowest 24 bits zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fastfeed.profiler.model.trace import Device, Process, Thread
from fastfeed.profiler.readers.nsys.database import Database

__all__ = ["People", "devices", "distinct", "people", "process_of"]

_T = TypeVar("_T")
_TID = 0xFFFFFF
_NO_UUID = "00000000-0000-0000-0000-000000000000"


def process_of(ids: np.ndarray) -> np.ndarray:
    """globalTid to globalPid. -1, which is unknown, stays."""
    return np.where(ids == -1, np.int64(-1), ids & ~np.int64(_TID))


def distinct(column: np.ndarray) -> np.ndarray:
    """Its values, sorted. A million rows of one value need no sorting."""
    if len(column) and column[0] == column[-1] and column.min() == column.max():
        return column[:1].copy()
    return np.unique(column)


@dataclass(frozen=True, slots=True)
class People:
    """Sorted global ids; the place of an id is its index in Trace.processes or Trace.threads."""

    pids: np.ndarray  # int64, globalPid
    tids: np.ndarray  # int64, globalTid

    def process(self, ids: np.ndarray) -> np.ndarray:
        """globalPid or globalTid to int32 indexes of processes."""
        return _found(self.pids, process_of(ids))

    def thread(self, ids: np.ndarray) -> np.ndarray:
        """globalTid to int32 indexes of threads; -1 where the thread is not one of them."""
        return _found(self.tids, ids)

    def pid(self, index: int) -> int:
        """The operating system's number."""
        return int(self.pids[index]) >> 24 & _TID

    def of_processes(self, by_pid: Mapping[int, _T]) -> dict[int, _T]:
        """What is known by globalPid, by index of process."""
        return {at: by_pid[pid] for at, pid in enumerate(self.pids.tolist()) if pid in by_pid}

    def processes(
        self, db: Database, threads: Sequence[Thread], host: str, ranks: Mapping[int, int]
    ) -> tuple[Process, ...]:
        """`ranks`: index of a process to its rank, where known. A process that nsys started without saying what it
        became is called as its main thread is.
        """
        names: dict[int, str] = {}
        if db.has("PROCESSES", "globalPid", "name"):
            names = {int(gid): str(name) for gid, name in db.rows("SELECT globalPid, name FROM PROCESSES") if name}
        main = {one.process: one.name for one in threads if one.tid == self.pid(one.process)}
        made = []
        for at, gid in enumerate(self.pids.tolist()):
            name = names.get(gid, "")
            called = main.get(at) or name if name in ("", "nsys-launcher") else name
            made.append(Process(self.pid(at), host, called, ranks.get(at)))
        return tuple(made)

    def threads(self, db: Database) -> tuple[Thread, ...]:
        """With the name that each had last."""
        names: dict[int, str] = {}
        if db.has("ThreadNames", "globalTid", "nameId"):
            rows = db.rows("SELECT globalTid, nameId FROM ThreadNames ORDER BY rowid")
            texts = db.strings(np.unique(np.array([name for _, name in rows if name is not None], np.int64)))
            names = {int(gid): texts.get(name, "") for gid, name in rows if gid is not None}
        owner = self.process(self.tids)
        return tuple(
            Thread(int(owner[at]), gid & _TID, names.get(gid, "")) for at, gid in enumerate(self.tids.tolist())
        )


def people(pids: Iterable[np.ndarray], tids: Iterable[np.ndarray]) -> People:
    """Everyone in these columns; a pid of 0 stands for a process that the file does not name."""
    threads = _all(tids)
    threads = threads[threads != -1]
    known = _all([*(distinct(process_of(ids)) for ids in pids), process_of(threads)])
    return People(known[known != -1], threads)


def _all(columns: Iterable[np.ndarray]) -> np.ndarray:
    return np.unique(np.concatenate([np.empty(0, np.int64), *(distinct(column) for column in columns)]))


def _found(known: np.ndarray, ids: np.ndarray) -> np.ndarray:
    if not len(known):
        return np.full(len(ids), -1, np.int32)
    if len(ids) and ids[0] == ids[-1] and ids.min() == ids.max():  # a million rows of one process
        return np.full(len(ids), _found_each(known, ids[:1])[0], np.int32)
    return _found_each(known, ids)


def _found_each(known: np.ndarray, ids: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[at] == ids, at, -1).astype(np.int32)


def devices(
    db: Database, who: People, process: np.ndarray, ordinal: np.ndarray
) -> tuple[tuple[Device, ...], np.ndarray]:
    """The GPUs behind (process, device number), and for each row which one: int32, shape (rows,).

    CUDA_VISIBLE_DEVICES gives every rank its own numbers. TARGET_INFO_CUDA_DEVICE says which GPU a number is; without
    it two processes share a GPU only where the machine has no second one.
    """
    width = int(ordinal.max(initial=0)) + 2
    pairs, row = _keyed(process.astype(np.int64) * width + ordinal + 1)
    of = pairs // width
    number = pairs % width - 1
    gpus = _gpus(db)
    mapped = _mapped(db)
    alone = len({gpu["uuid"] for gpu in gpus.values() if gpu["uuid"]}) <= 1
    found: dict[object, int] = {}
    made: list[Device] = []
    which = np.empty(len(pairs), np.int32)
    for at, (owner, device) in enumerate(zip(of.tolist(), number.tolist(), strict=True)):
        gpu, own = mapped.get((who.pid(owner), device), (None, ""))
        sure = gpu is not None or bool(own)
        about = gpus.get(device if gpu is None else gpu, {"name": "", "uuid": ""})
        uuid = own or about["uuid"]
        shared_number = int((number == device).sum()) > 1
        key: object = uuid if uuid and (sure or alone or not shared_number) else (owner, device)
        if key in found:
            old = made[found[key]]
            made[found[key]] = Device(old.ordinal, old.name, old.uuid, old.process if old.process == owner else -1)
        else:
            found[key] = len(made)
            made.append(Device(device, about["name"], uuid if key == uuid else "", owner))
        which[at] = found[key]
    return tuple(made), which[row]


def _keyed(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values = distinct(keys)
    return values, np.searchsorted(values, keys) if len(values) > 1 else np.zeros(len(keys), np.int64)


def _gpus(db: Database) -> dict[int, dict[str, str]]:
    """By id: name and uuid. The oldest schema calls the id deviceId and has no uuid; that of other makers is 0."""
    table = "TARGET_INFO_GPU"
    key = next((name for name in ("id", "deviceId") if db.has(table, name)), "")
    if not key:
        return {}
    name = "name" if db.has(table, "name") else "NULL"
    uuid = "uuid" if db.has(table, "uuid") else "NULL"
    found = {}
    for gid, called, unique in db.rows(f"SELECT {key}, {name}, {uuid} FROM {table}"):
        if gid is not None:
            found[int(gid)] = {"name": str(called or ""), "uuid": _uuid(unique)}
    return found


def _mapped(db: Database) -> dict[tuple[int, int], tuple[int | None, str]]:
    """(pid, CUDA's number) to (id in TARGET_INFO_GPU, the device's own uuid, which differs where it is a MIG slice)."""
    table = "TARGET_INFO_CUDA_DEVICE"
    if not db.has(table, "gpuId", "cudaId", "pid"):
        return {}
    uuid = "uuid" if db.has(table, "uuid") else "NULL"
    rows = db.rows(f"SELECT pid, cudaId, gpuId, {uuid} FROM {table} WHERE pid IS NOT NULL AND cudaId IS NOT NULL")
    return {(int(pid), int(cuda)): (None if gpu is None else int(gpu), _uuid(own)) for pid, cuda, gpu, own in rows}


def _uuid(text: object) -> str:
    uuid = str(text or "").removeprefix("GPU-")
    return "" if uuid == _NO_UUID else uuid
