"""The run as `nsys export --type sqlite` writes it, schema 3.25 (2026.2)."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastfeed.profiler.model.trace import Kind, RangeKind
from helpers.profiler.simulator.events import STARTED_NS, Op, Run, Wait

BEFORE_NS = 2_000_000_000  # the session began this long before time 0
_VM = 1 << 48
# kind, from, to
_COPY = {
    Kind.H2D: (1, 1, 2),
    Kind.D2H: (2, 2, 1),
    Kind.D2D: (8, 2, 2),
    Kind.P2P: (10, 2, 2),
}
_TABLES = {
    "StringIds": "id value",
    "META_DATA_EXPORT": "name value",
    "META_DATA_CAPTURE": "name value",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime systemClockNs",
    "TARGET_INFO_GPU": "vmId id name busLocation totalMemory smCount uuid cuDevice",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid uuid numMultiprocessors",
    "ANALYSIS_DETAILS": "globalVid duration startTime stopTime",
    "PROCESSES": "globalPid pid name",
    "ThreadNames": "nameId priority globalTid",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start end deviceId contextId greenContextId streamId correlationId globalPid demangledName"
        " shortName mangledName launchType gridX gridY gridZ blockX blockY blockZ graphNodeId"
        " graphId"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start end deviceId contextId greenContextId streamId correlationId globalPid bytes "
        "copyKind deprecatedSrcId srcKind dstKind srcDeviceId dstDeviceId graphNodeId copyCount"
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        "start end deviceId graphId contextId greenContextId streamId correlationId "
        "globalPid graphExecId"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start end eventClass globalTid correlationId nameId returnValue callchainId"
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        "start end deviceId contextId greenContextId streamId correlationId "
        "globalPid deprecatedSyncType syncType eventId eventSyncId"
    ),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        "timestamp deviceId contextId greenContextId streamId correlationId globalPid "
        "eventId eventSyncId"
    ),
    "NVTX_EVENTS": (
        "start end eventType rangeId category color text globalTid endGlobalTid textId domainId"
    ),
    "OSRT_API": "start end eventClass globalTid nameId returnValue nestingLevel callchainId",
    "SCHED_EVENTS": "start cpu isSchedIn globalTid threadState threadBlock",
}
_TEXT = {"value", "name", "text", "utcTime", "localTime", "busLocation", "uuid"}
# what of a run is an NVTX range; nsys has no Python frames here
_RANGE_KINDS = (
    RangeKind.NVTX,
    RangeKind.STEP,
    RangeKind.OP,
    RangeKind.GC,
)


def write_nsys(run: Run, path: Path, *, granularity: str = "node") -> Path:
    """One report of all processes in `run`.

    `granularity` is that of --cuda-graph-trace: node, or graph.
    """
    database = _Database(run, granularity)
    connection = sqlite3.connect(path)
    for table, rows in database.rows.items():
        if not rows:
            continue  # tables are created lazily
        columns = _TABLES[table].split()
        types = ", ".join(f"{one} {'TEXT' if one in _TEXT else 'INTEGER'}" for one in columns)
        connection.execute(f"CREATE TABLE {table} ({types})")
        connection.executemany(
            f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})",
            ([row.get(one) for one in columns] for row in rows),
        )
    connection.commit()
    connection.close()
    return path


class _Database:
    def __init__(self, run: Run, granularity: str) -> None:
        self.run = run
        # a session's clock begins with the session; the skew is in its utcEpochNs
        self.shift = BEFORE_NS
        self.rows: dict[str, list[Mapping[str, Any]]] = {table: [] for table in _TABLES}
        self._strings: dict[str, int] = {}
        self._hosts = dict(zip(sorted({op.host for op in run.ops}), run.hosts, strict=True))
        self._about()
        self._device(granularity)
        self._host()
        self._events()
        self.rows["StringIds"] = [{"id": at, "value": text} for text, at in self._strings.items()]

    def text(self, value: str) -> int:
        return self._strings.setdefault(value, len(self._strings) + 1)

    def pid(self, host: int) -> int:
        return _VM | self._hosts[host].pid << 24

    def tid(self, host: int, thread: int) -> int:
        return self.pid(host) | thread

    def cuda(self, host: int, gpu: int) -> int:
        """The number by which the process knows the device."""
        return self._hosts[host].gpus.index(gpu)

    def _about(self) -> None:
        rows, run = self.rows, self.run
        rows["META_DATA_EXPORT"] = [
            {"name": "EXPORT_PRODUCT_NAME", "value": "NVIDIA Nsight Systems"},
            {"name": "EXPORT_PRODUCT_VERSION", "value": "2026.2.1.210"},
            {"name": "EXPORT_SCHEMA_VERSION", "value": "3.25.0"},
        ]
        epoch = STARTED_NS + run.hosts[0].skew_ns - BEFORE_NS
        rows["TARGET_INFO_SESSION_START_TIME"] = [
            {"utcEpochNs": epoch, "utcTime": "", "systemClockNs": 1}
        ]
        stop = BEFORE_NS + max(op.end for op in run.ops)
        rows["ANALYSIS_DETAILS"] = [
            {"globalVid": _VM, "duration": stop, "startTime": 0, "stopTime": stop}
        ]
        for host in run.hosts:
            rows["PROCESSES"].append(
                {"globalPid": _VM | host.pid << 24, "pid": host.pid, "name": host.name}
            )
            for tid, name in host.threads.items():
                row = {
                    "nameId": self.text(name),
                    "priority": 20,
                    "globalTid": _VM | host.pid << 24 | tid,
                }
                rows["ThreadNames"].append(row)
            for cuda, gpu in enumerate(host.gpus):
                row = {
                    "gpuId": cuda,
                    "cudaId": cuda,
                    "pid": host.pid,
                    "uuid": _uuid(gpu),
                    "numMultiprocessors": 132,
                }
                rows["TARGET_INFO_CUDA_DEVICE"].append(row)
        for cuda, gpu in enumerate(run.hosts[0].gpus):
            row = {
                "vmId": _VM,
                "id": cuda,
                "name": "NVIDIA H200",
                "totalMemory": 141 << 30,
                "smCount": 132,
            }
            rows["TARGET_INFO_GPU"].append(row | {"uuid": _uuid(gpu), "cuDevice": cuda})

    def _device(self, granularity: str) -> None:
        whole: dict[tuple[int, int], list[Op]] = {}
        for op in self.run.ops:
            if op.graph and granularity == "graph":
                whole.setdefault((op.host, op.corr), []).append(op)
            elif op.kind in _COPY:
                kind, source, target = _COPY[op.kind]
                if op.pageable == 1:
                    source, target = (0, target) if op.kind is Kind.H2D else (source, 0)
                row = self._of(op) | {
                    "bytes": op.bytes,
                    "copyKind": kind,
                    "srcKind": source,
                    "dstKind": target,
                }
                self.rows["CUPTI_ACTIVITY_KIND_MEMCPY"].append(row | {"copyCount": 1})
            else:
                name = self.text(op.name)
                row = self._of(op) | {
                    "demangledName": name,
                    "shortName": name,
                    "mangledName": name,
                    "launchType": 1,
                }
                row |= dict.fromkeys(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), 1)
                self.rows["CUPTI_ACTIVITY_KIND_KERNEL"].append(
                    row | {"graphNodeId": 7 if op.graph else None}
                )
        for nodes in whole.values():
            row = self._of(nodes[0]) | {
                "end": nodes[-1].end + self.shift,
                "graphId": 3,
                "graphExecId": 4,
            }
            self.rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"].append(row)

    def _of(self, op: Op) -> dict[str, Any]:
        return {
            "start": op.start + self.shift,
            "end": op.end + self.shift,
            "deviceId": self.cuda(op.host, op.gpu),
            "contextId": 1 + op.host,
            "streamId": op.stream,
            "correlationId": op.corr,
            "globalPid": self.pid(op.host),
        }

    def _host(self) -> None:
        for call in self.run.calls:
            row = {
                "start": call.start + self.shift,
                "end": call.end + self.shift,
                "eventClass": 0,
                "returnValue": 0,
            }
            row |= {"globalTid": self.tid(call.host, call.thread), "correlationId": call.corr}
            self.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append(
                row | {"nameId": self.text(_versioned(call.name))}
            )
        for one in self.run.ranges:
            if one.kind in _RANGE_KINDS:
                row = {
                    "start": one.start + self.shift,
                    "end": one.end + self.shift,
                    "eventType": 59,
                    "domainId": 0,
                }
                self.rows["NVTX_EVENTS"].append(
                    row | {"text": one.name, "globalTid": self.tid(one.host, one.thread)}
                )
            elif one.kind is RangeKind.SYSTEM:
                row = {
                    "start": one.start + self.shift,
                    "end": one.end + self.shift,
                    "eventClass": 27,
                    "returnValue": 0,
                }
                row |= {"globalTid": self.tid(one.host, one.thread), "nameId": self.text(one.name)}
                self.rows["OSRT_API"].append(row | {"nestingLevel": 0, "callchainId": 0})
        for one in self.run.sched:
            for at, came in ((one.start, 0), (one.end, 1)):
                row = {"start": at + self.shift, "cpu": 3, "isSchedIn": came, "threadState": 1}
                self.rows["SCHED_EVENTS"].append(
                    row | {"globalTid": self.tid(one.host, one.thread)}
                )

    def _events(self) -> None:
        times = {(call.host, call.corr): call for call in self.run.calls}
        for sync, wait in enumerate(self.run.waits, 1):
            call = times.get((wait.host, wait.corr))
            if call is None:
                continue
            row = self._about_event(wait, sync, wait.stream, wait.corr, wait.gpu)
            row |= {"start": call.start + self.shift, "end": call.end + self.shift, "syncType": 2}
            self.rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"].append(row)
            row = self._about_event(wait, sync, wait.on_stream, wait.on_corr, wait.on_gpu)
            self.rows["CUPTI_ACTIVITY_KIND_CUDA_EVENT"].append(row | {"timestamp": 0})

    def _about_event(
        self, wait: Wait, sync: int, stream: int, corr: int, gpu: int
    ) -> dict[str, Any]:
        return {
            "deviceId": self.cuda(wait.host, gpu),
            "contextId": 1 + wait.host,
            "streamId": stream,
            "correlationId": corr,
            "globalPid": self.pid(wait.host),
            "eventId": sync % 5,  # handles are reused
            "eventSyncId": sync,
        }


def _uuid(gpu: int) -> str:
    return f"c0ffee00-0000-4000-8000-{gpu:012x}"


def _versioned(name: str) -> str:
    return f"{name}_v7000" if name == "cudaLaunchKernel" else f"{name}_v3020"
