"""SQLite exports of Nsight Systems of any age, written row by row; and a big one, written fast."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

import numpy as np

AGES = ("bare", "2020", "2022", "2024", "2026")  # bare: no globalPid, which some exports lack
ORDER = {age: at for at, age in enumerate(AGES)}

# columns of each table; those with a mark are there from that age on, or up to it
_OP = "start end deviceId contextId greenContextId>2024 streamId correlationId globalPid>2020"
_TABLES = {
    "StringIds": "id value",
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"{_OP} demangledName shortName mangledName>2022 gridX graphNodeId graphId>2026"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"{_OP} bytes copyKind deprecatedSrcId srcKind dstKind srcDeviceId dstDeviceId"
        " copyCount>2026"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_OP} value bytes memKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_OP} graphId graphExecId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start end eventClass globalTid correlationId nameId returnValue callchainId"
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        f"{_OP} deprecatedSyncType>2026 syncType eventId eventSyncId>2026"
    ),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        "timestamp>2026 deviceId contextId streamId correlationId globalPid>2020 eventId"
        " eventSyncId>2026"
    ),
    "CUPTI_ACTIVITY_KIND_OVERHEAD": (
        "start end eventClass globalTid correlationId nameId overheadType"
    ),
    "NVTX_EVENTS": (
        "start end eventType rangeId category color text globalTid endGlobalTid textId domainId"
        " jsonText binaryData>2026"
    ),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId schemaId idx flags type name offset",
    "OSRT_API": (
        "start end eventClass globalTid correlationId<2020 nameId returnValue nestingLevel"
        " callchainId"
    ),
    "SCHED_EVENTS": "start cpu isSchedIn globalTid threadState>2024 threadBlock>2024",
    "ENUM_SAMPLING_THREAD_STATE": "id name label",
    "PROFILER_OVERHEAD": "start end globalTid nameId returnValue<2024 overheadType>2026",
    "TARGET_INFO_GPU": "id>2022 deviceId<2020 name uuid>2022 cuDevice>2022",
    "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid uuid",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime systemClockNs>2026",
    "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName name nameEnum value",
    "META_DATA_EXPORT": "name value",
    "EXPORT_META_DATA": "name value",
    "META_DATA_CAPTURE": "name value",
    "DIAGNOSTIC_EVENT": "timestamp timestampType source severity text globalPid",
    "PROCESSES": "globalPid pid name",
    "ThreadNames": "nameId priority globalTid",
}
_TEXTS = {
    "value",
    "text",
    "jsonText",
    "name",
    "uuid",
    "utcTime",
    "localTime",
    "binaryData",
    "label",
    "devStateName",
}


def gid(pid: int, tid: int = 0) -> int:
    """A globalTid, or a globalPid."""
    return 1 << 56 | pid << 24 | tid


def columns(table: str, age: str) -> list[str]:
    """Those of a table at that age."""
    kept = []
    for word in _TABLES[table].split():
        name, _, since = word.partition(">")
        if since and ORDER[age] < ORDER[since]:
            continue
        name, _, until = name.partition("<")
        if not until or ORDER[age] <= ORDER[until]:
            kept.append(name)
    return kept


class Export:
    """A database to fill.

    A table is made with its first row, as nsys does; columns its age lacks are left out.
    """

    def __init__(self, path: Path, age: str = "2026") -> None:
        self.path, self.age = path, age
        self.db = sqlite3.connect(path)
        self.made: dict[str, list[str]] = {}
        self.texts: dict[str, int] = {}

    def table(self, name: str) -> list[str]:
        if name not in self.made:
            self.made[name] = columns(name, self.age)
            typed = [f'"{one}" {"TEXT" if one in _TEXTS else "INTEGER"}' for one in self.made[name]]
            typed[0] += " PRIMARY KEY" if name == "StringIds" else ""
            self.db.execute(f"CREATE TABLE {name} ({', '.join(typed)})")
        return self.made[name]

    def string(self, text: str) -> int:
        if text not in self.texts:
            self.texts[text] = len(self.texts) + 1
            self.row("StringIds", id=self.texts[text], value=text)
        return self.texts[text]

    def row(self, table: str, **values: object) -> None:
        known = {name: values[name] for name in self.table(table) if name in values}
        names, marks = ", ".join(f'"{name}"' for name in known), ", ".join("?" * len(known))
        self.db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(known.values()))

    def kernel(
        self, start: object, end: object, name: str = "gemm", corr: int = 1, **more: object
    ) -> None:
        text = self.string(name)
        row = {
            "deviceId": 0,
            "streamId": 7,
            "globalPid": gid(100),
            "demangledName": text,
            "shortName": text,
        } | more
        self.row("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=end, correlationId=corr, **row)

    def memcpy(self, start: int, end: int, kind: int, src: int, dst: int, **more: object) -> None:
        row = {
            "deviceId": 0,
            "streamId": 7,
            "globalPid": gid(100),
            "bytes": 4096,
            "correlationId": 2,
        } | more
        table = "CUPTI_ACTIVITY_KIND_MEMCPY"
        self.row(table, start=start, end=end, copyKind=kind, srcKind=src, dstKind=dst, **row)

    def call(
        self,
        start: object,
        end: object,
        name: str,
        corr: int,
        tid: int = gid(100, 100),
        **more: object,
    ) -> None:
        row = {
            "eventClass": 0,
            "returnValue": 0,
            "globalTid": tid,
            "nameId": self.string(name),
        } | more
        self.row("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, correlationId=corr, **row)

    def nvtx(self, start: int, end: object, text: object, **more: object) -> None:
        row = {"eventType": 59, "globalTid": gid(100, 100), "domainId": 0} | more
        self.row("NVTX_EVENTS", start=start, end=end, text=text, **row)

    def done(self) -> Path:
        self.db.commit()
        self.db.close()
        return self.path


def payload(domain: int, schema: int, fields: bytes) -> bytes:
    """What NVTX_EVENTS.binaryData holds."""
    return struct.pack("<IIIIQQ", domain, 0, schema, 0, len(fields), 32 + len(fields)) + fields


def million(path: Path, rows: int = 1_000_000, kernels: int = 200) -> Path:
    """So many kernels, each with its launch, of so many names: some 100 bytes a kernel, 3 seconds a
    million.
    """
    export = Export(path, "2024")
    export.db.execute("PRAGMA journal_mode = OFF")
    export.db.execute("PRAGMA synchronous = OFF")
    names = [
        export.string(f"void kernel_{number}<float>(float*, int)") for number in range(kernels)
    ]
    launch = export.string("cudaLaunchKernel_v7000")
    random = np.random.default_rng(0)
    start = 1_000_000_000 + np.arange(rows) * 10_000 + random.integers(0, 3000, rows)
    end = start + random.integers(1000, 9000, rows)
    name = np.array(names)[random.integers(0, kernels, rows)].tolist()
    export.table("CUPTI_ACTIVITY_KIND_KERNEL")
    export.table("CUPTI_ACTIVITY_KIND_RUNTIME")
    export.db.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId,"
        " correlationId, globalPid, demangledName, shortName, gridX) VALUES (?, ?, 0, 1, 7, ?,"
        f" {gid(100)}, ?, ?, 128)",
        zip(start.tolist(), end.tolist(), range(1, rows + 1), name, name, strict=True),
    )
    export.db.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid,"
        f" correlationId, nameId, returnValue) VALUES (?, ?, 0, {gid(100, 100)}, ?, {launch}, 0)",
        zip((start - 20_000).tolist(), (start - 15_000).tolist(), range(1, rows + 1), strict=True),
    )
    return export.done()
