"""Writes small files as nvprof does: its SQLite tables, cut to the columns that are of use, and its
printed traces.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

# column names and order as in PatWie/nvprof2json data/database.sql, without those that say nothing
# of time
TABLES = {
    "CONCURRENT_KERNEL": (
        "start end completed deviceId contextId streamId correlationId gridId name queued submitted"
    ),
    "KERNEL": (
        "start end completed deviceId contextId streamId correlationId gridId name queued submitted"
    ),
    "MEMCPY": (
        "copyKind srcKind dstKind flags bytes start end deviceId contextId streamId correlationId "
        "runtimeCorrelationId"
    ),
    "MEMCPY2": (
        "copyKind srcKind dstKind flags bytes start end deviceId contextId streamId srcDeviceId"
        " srcContextId dstDeviceId dstContextId correlationId"
    ),
    "MEMSET": "value bytes start end deviceId contextId streamId correlationId flags memoryKind",
    "UNIFIED_MEMORY_COUNTER": (
        "counterKind value start end address srcId dstId streamId processId flags"
    ),
    "RUNTIME": "cbid start end processId threadId correlationId returnValue",
    "DRIVER": "cbid start end processId threadId correlationId returnValue",
    "MARKER": "flags timestamp id objectKind objectId name domain",
    "OVERHEAD": "overheadKind objectKind objectId start end",
    "SYNCHRONIZATION": "type start end correlationId contextId streamId cudaEventId",
    "CUDA_EVENT": "correlationId contextId streamId eventId",
    "DEVICE": "flags id uuid name computeCapabilityMajor",
}
EPOCH = 1_516_227_187_000_000_000
PID, TID = 4242, -1_500_000_000  # nvprof writes the 32 low bits of a pthread id, with a sign
UUID = bytes(range(16))


class Sheet:
    """Rows for a database: `sheet.add("RUNTIME", cbid=211, start=...)`; what is not named is 0."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self.texts: list[str] = []

    def text(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1

    def add(self, table: str, **columns: Any) -> None:
        self.rows[table].append(columns)

    def write(self, path: Path, tables: Sequence[str] = tuple(TABLES)) -> Path:
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE Version (version INTEGER)")
            database.execute("INSERT INTO Version VALUES (11)")
            database.execute(
                "CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT NOT"
                " NULL UNIQUE)"
            )
            database.executemany(
                "INSERT INTO StringTable (value) VALUES (?)", [(text,) for text in self.texts]
            )
            for name in tables:
                columns = TABLES[name].split()
                listed = ", ".join(f'"{column}" INT' for column in columns)
                database.execute(
                    f"CREATE TABLE CUPTI_ACTIVITY_KIND_{name} (_id_ INTEGER PRIMARY KEY, {listed})"
                )
                marks = ", ".join("?" * (len(columns) + 1))
                database.executemany(
                    f"INSERT INTO CUPTI_ACTIVITY_KIND_{name} VALUES ({marks})",
                    [
                        (None, *(row.get(column, 0) for column in columns))
                        for row in self.rows[name]
                    ],
                )
            database.commit()
        return path


def owner(pid: int = PID, tid: int = TID) -> bytes:
    """CUpti_ActivityObjectKindId of a thread."""
    return struct.pack("<II", pid, tid & 0xFFFFFFFF) + bytes(8)


def training(launches: int = 3) -> Sheet:
    """Per step of 1 ms: an NVTX range, a pageable copy to the device, a kernel, a
    synchronization.
    """
    sheet = Sheet()
    at, corr = EPOCH, 0
    for step in range(launches):
        rows = [("fastfeed:wait", 0, 300_000), (f"step {step}", 0, 900_000)]
        for mark, (text, start, end) in enumerate(rows):
            named = {"id": step * 2 + mark + 1, "objectKind": 2, "objectId": owner()}
            sheet.add("MARKER", flags=2, timestamp=at + start, name=sheet.text(text), **named)
            sheet.add("MARKER", flags=4, timestamp=at + end, name=0, **named)
        calls = [(41, 300_000, 350_000), (211, 360_000, 365_000), (131, 370_000, 900_000)]
        for number, (cbid, start, end) in enumerate(calls, 1):
            sheet.add(
                "RUNTIME",
                cbid=cbid,
                start=at + start,
                end=at + end,
                processId=PID,
                threadId=TID,
                correlationId=corr + number,
            )
        sheet.add(
            "MEMCPY",
            copyKind=1,
            srcKind=1,
            dstKind=3,
            bytes=4096,
            start=at + 310_000,
            end=at + 345_000,
            streamId=7,
            correlationId=corr + 1,
        )
        sheet.add(
            "CONCURRENT_KERNEL",
            start=at + 370_000,
            end=at + 880_000,
            streamId=7,
            correlationId=corr + 2,
            name=sheet.text("volta_sgemm_128x64"),
        )
        at, corr = at + 1_000_000, corr + 3
    sheet.add("DEVICE", id=0, uuid=UUID, name=sheet.text("Tesla V100-SXM2-16GB"))
    return sheet
