"""Processes, threads and GPUs by the global ids and device numbers of an export.

globalTid = (hardware 8 bits) << 56 | (machine 8) << 48 | (pid 24) << 24 | (tid 24), as a signed
64-bit integer; a globalPid is that of a process with its lowest 24 bits zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from fastfeed.profiler.model.columns import factorize, unique_values
from fastfeed.profiler.model.trace import Device, Process, Thread
from fastfeed.profiler.readers.nsys.database import NsysDatabase

_T = TypeVar("_T")
_TID = 0xFFFFFF
_MAX_DEVICES = 1 << 16  # a larger number is damage
_NO_UUID = "00000000-0000-0000-0000-000000000000"


def to_global_pid(ids: np.ndarray) -> np.ndarray:
    """globalTid to globalPid. -1, which is unknown, stays."""
    return np.where(ids == -1, np.int64(-1), ids & ~np.int64(_TID))


@dataclass(frozen=True, slots=True)
class GlobalIds:
    """Sorted global ids; the position of an id is its index in Trace.processes or Trace.threads."""

    pids: np.ndarray  # int64, globalPid
    tids: np.ndarray  # int64, globalTid

    def process(self, ids: np.ndarray) -> np.ndarray:
        """globalPid or globalTid to int32 indexes of processes."""
        return _lookup(self.pids, to_global_pid(ids))

    def thread(self, ids: np.ndarray) -> np.ndarray:
        """Map globalTid to int32 indexes of threads; -1 for an unknown thread."""
        return _lookup(self.tids, ids)

    def pid(self, index: int) -> int:
        """Process number that the operating system gave."""
        return int(self.pids[index]) >> 24 & _TID

    def of_processes(self, by_pid: Mapping[int, _T]) -> dict[int, _T]:
        """Values by globalPid as values by index of process."""
        return {at: by_pid[pid] for at, pid in enumerate(self.pids.tolist()) if pid in by_pid}

    def processes(
        self, db: NsysDatabase, threads: Sequence[Thread], host: str, ranks: Mapping[int, int]
    ) -> tuple[Process, ...]:
        """Processes by index; `ranks` maps an index to its rank, if known.

        A process that nsys started without saying what it became is called as its main thread is.
        """
        rows = db.records("PROCESSES", ["globalPid"], ["name"])
        names = {gid: name for gid, name in rows if gid is not None and name}
        main = {
            thread.process: thread.name
            for thread in threads
            if thread.tid == self.pid(thread.process)
        }
        processes = []
        for at, gid in enumerate(self.pids.tolist()):
            name = names.get(gid, "")
            shown_name = main.get(at) or name if name in ("", "nsys-launcher") else name
            processes.append(Process(self.pid(at), host, shown_name, ranks.get(at)))
        return tuple(processes)

    def threads(self, db: NsysDatabase) -> tuple[Thread, ...]:
        """The threads, each with its last name."""
        rows = db.records("ThreadNames", ["globalTid", "nameId"])
        texts = db.strings(
            np.unique(np.array([name for _, name in rows if name is not None], np.int64))
        )
        names = {gid: texts.get(name, "") for gid, name in rows if gid is not None}
        owner = self.process(self.tids)
        return tuple(
            Thread(int(owner[at]), gid & _TID, names.get(gid, ""))
            for at, gid in enumerate(self.tids.tolist())
        )


def global_ids(pids: Iterable[np.ndarray], tids: Iterable[np.ndarray]) -> GlobalIds:
    """All ids in these columns; a pid of 0 stands for a process that the file does not name."""
    threads = _all(tids)
    threads = threads[threads != -1]
    processes = _all([*(unique_values(to_global_pid(ids)) for ids in pids), to_global_pid(threads)])
    return GlobalIds(processes[processes != -1], threads)


def _all(columns: Iterable[np.ndarray]) -> np.ndarray:
    return np.unique(
        np.concatenate([np.empty(0, np.int64), *(unique_values(column) for column in columns)])
    )


def _lookup(sorted_ids: np.ndarray, ids: np.ndarray) -> np.ndarray:
    if not len(sorted_ids):
        return np.full(len(ids), -1, np.int32)
    if len(ids) and ids[0] == ids[-1] and ids.min() == ids.max():  # a million rows of one process
        return np.full(len(ids), _lookup_each(sorted_ids, ids[:1])[0], np.int32)
    return _lookup_each(sorted_ids, ids)


def _lookup_each(sorted_ids: np.ndarray, ids: np.ndarray) -> np.ndarray:
    at = np.minimum(np.searchsorted(sorted_ids, ids), len(sorted_ids) - 1)
    return np.where(sorted_ids[at] == ids, at, -1).astype(np.int32)


def devices(
    db: NsysDatabase, ids: GlobalIds, process: np.ndarray, ordinal: np.ndarray
) -> tuple[tuple[Device, ...], np.ndarray]:
    """The GPUs of (process, device number), and each row's index into them: int32, shape (rows,).

    CUDA_VISIBLE_DEVICES gives every rank its own numbers. TARGET_INFO_CUDA_DEVICE says which GPU a
    number is; without it two processes share a GPU only where the machine has no second one.
    """
    ordinal = np.where((ordinal >= 0) & (ordinal < _MAX_DEVICES), ordinal, -1)
    width = int(ordinal.max(initial=0)) + 2
    pairs, row = factorize(process.astype(np.int64) * width + ordinal + 1)
    owners = pairs // width
    number = pairs % width - 1
    gpus = _gpus(db)
    cuda_devices = _cuda_devices(db)
    one_gpu = len({gpu["uuid"] for gpu in gpus.values() if gpu["uuid"]}) <= 1
    index_of: dict[object, int] = {}
    devices_: list[Device] = []
    index_of_pair = np.empty(len(pairs), np.int32)
    for at, (owner, device) in enumerate(zip(owners.tolist(), number.tolist(), strict=True)):
        gpu, own = cuda_devices.get((ids.pid(owner), device), (None, ""))
        is_certain = gpu is not None or bool(own)
        details = gpus.get(device if gpu is None else gpu, {"name": "", "uuid": ""})
        uuid = own or details["uuid"]
        shared_number = int((number == device).sum()) > 1
        key: object = (owner, device)
        if uuid and (is_certain or one_gpu or not shared_number):
            key = uuid
        if key in index_of:
            shared = devices_[index_of[key]]
            process_ = owner if shared.process == owner else -1
            devices_[index_of[key]] = replace(shared, process=process_)
        else:
            index_of[key] = len(devices_)
            devices_.append(Device(device, details["name"], uuid if key == uuid else "", owner))
        index_of_pair[at] = index_of[key]
    return tuple(devices_), index_of_pair[row]


def _gpus(db: NsysDatabase) -> dict[int, dict[str, str]]:
    """Name and uuid of GPUs, by id.

    The oldest schema calls the id deviceId and has no uuid; that of other makers is 0.
    """
    table = "TARGET_INFO_GPU"
    rows = db.records(table, ["id" if db.has(table, "id") else "deviceId"], ["name", "uuid"])
    return {
        gid: {"name": name or "", "uuid": _uuid(uuid)}
        for gid, name, uuid in rows
        if gid is not None
    }


def _cuda_devices(db: NsysDatabase) -> dict[tuple[int, int], tuple[int | None, str]]:
    """(pid, CUDA's number) to (id in TARGET_INFO_GPU, own uuid, which differs for a MIG slice)."""
    table = "TARGET_INFO_CUDA_DEVICE"
    if not db.has(table, "gpuId", "cudaId", "pid"):
        return {}
    rows = db.records(table, ["pid", "cudaId", "gpuId"], ["uuid"])
    return {
        (pid, cuda): (gpu, _uuid(uuid))
        for pid, cuda, gpu, uuid in rows
        if pid is not None and cuda is not None
    }


def _uuid(text: str | None) -> str:
    uuid = (text or "").removeprefix("GPU-")
    return "" if uuid == _NO_UUID else uuid
