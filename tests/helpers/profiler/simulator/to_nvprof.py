"""The run as nvprof writes it: its database (-o run.nvvp), and the table of --print-gpu-trace
--csv.
"""

from __future__ import annotations

import sqlite3
import struct
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastfeed.profiler.model.trace import Kind, RangeKind
from helpers.profiler.simulator.events import STARTED_NS, Op, Run

_CBID = {
    "cudaMalloc": 20,
    "cudaFree": 22,
    "cudaMemcpy": 31,
    "cudaMemcpyAsync": 41,
    "cudaStreamSynchronize": 131,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaDeviceSynchronize": 165,
    "cudaMemcpyPeerAsync": 161,
    "cudaLaunchKernel": 211,
    "cudaGraphLaunch": 311,
}
# as CUPTI counts them
_COPY = {
    Kind.H2D: (1, 2, 3),
    Kind.D2H: (2, 3, 2),
    Kind.D2D: (8, 3, 3),
    Kind.P2P: (10, 3, 3),
}
_ACTIVITY = "CUPTI_ACTIVITY_KIND_"
_TABLES = {
    "Version": "version INTEGER",
    "StringTable": "_id_ INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT NOT NULL UNIQUE",
    "DEVICE": (
        "flags INT, globalMemorySize INT, numMultiprocessors INT, computeCapabilityMajor INT, "
        "computeCapabilityMinor INT, id INT, uuid BLOB, name INT"
    ),
    "CONCURRENT_KERNEL": (
        "cacheConfig BLOB, registersPerThread INT, start INT, end INT, completed INT, deviceId INT,"
        " contextId INT, streamId INT, gridX INT, correlationId INT, gridId INT, name INT, queued"
        " INT, submitted INT"
    ),
    "MEMCPY": (
        "copyKind INT, srcKind INT, dstKind INT, flags INT, bytes INT, start INT, end INT, deviceId"
        " INT, contextId INT, streamId INT, correlationId INT, runtimeCorrelationId INT"
    ),
    "MEMCPY2": (
        "copyKind INT, srcKind INT, dstKind INT, flags INT, bytes INT, start INT, end INT, deviceId"
        " INT, contextId INT, streamId INT, srcDeviceId INT, srcContextId INT, dstDeviceId INT,"
        " dstContextId INT, correlationId INT"
    ),
    "RUNTIME": (
        "cbid INT, start INT, end INT, processId INT, threadId INT, correlationId INT,"
        " returnValue INT"
    ),
    "MARKER": (
        "flags INT, timestamp INT, id INT, objectKind INT, objectId BLOB, name INT, domain INT"
    ),
    "SYNCHRONIZATION": (
        "type INT, start INT, end INT, correlationId INT, contextId INT, streamId INT,"
        " cudaEventId INT"
    ),
    "CUDA_EVENT": "correlationId INT, contextId INT, streamId INT, eventId INT",
}
_RANGE_KINDS = (RangeKind.NVTX, RangeKind.STEP, RangeKind.OP, RangeKind.GC)
_START, _END, _THREAD = 2, 4, 2


def write_nvprof(run: Run, path: Path) -> Path:
    """The database of one process."""
    database = sqlite3.connect(path)
    plain = ("Version", "StringTable")
    for table, columns in _TABLES.items():
        name, key = (
            (table, "")
            if table in plain
            else (_ACTIVITY + table, "_id_ INTEGER PRIMARY KEY AUTOINCREMENT, ")
        )
        database.execute(f"CREATE TABLE {name} ({key}{columns})")
    strings: dict[str, int] = {}
    alike: dict[tuple[str, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for table, values in _rows(run, strings):
        alike[(table, *values)].append(tuple(values.values()))
    for (table, *columns), rows in alike.items():
        name, marks = table if table in plain else _ACTIVITY + table, ", ".join("?" * len(columns))
        database.executemany(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", rows)
    database.executemany(
        "INSERT INTO StringTable VALUES (?, ?)", [(at, text) for text, at in strings.items()]
    )
    database.commit()
    database.close()
    return path


def _rows(run: Run, strings: dict[str, int]) -> list[tuple[str, dict[str, Any]]]:
    host = run.hosts[0]
    shift = STARTED_NS + host.skew_ns
    rows: list[tuple[str, dict[str, Any]]] = [("Version", {"version": 11})]

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings) + 1)

    for at, gpu in enumerate(host.gpus):
        row = {
            "id": at,
            "name": text("Tesla V100-SXM2-16GB"),
            "uuid": bytes([gpu] * 16),
            "numMultiprocessors": 80,
        }
        rows.append(("DEVICE", row | {"computeCapabilityMajor": 7, "computeCapabilityMinor": 0}))
    rows += [_device(op, host.gpus, shift, text) for op in run.ops]
    for call in run.calls:
        row = {
            "cbid": _CBID[call.name],
            "start": call.start + shift,
            "end": call.end + shift,
            "returnValue": 0,
        }
        row |= {
            "processId": host.pid,
            "threadId": _pthread(call.thread),
            "correlationId": call.corr,
        }
        rows.append(("RUNTIME", row))
    for at, one in enumerate((one for one in run.ranges if one.kind in _RANGE_KINDS), 1):
        thread = struct.pack("<IiI", host.pid, _pthread(one.thread), 0)
        row = {"id": at, "objectKind": _THREAD, "objectId": thread, "domain": 0}
        rows.append(
            (
                "MARKER",
                row | {"flags": _START, "timestamp": one.start + shift, "name": text(one.name)},
            )
        )
        rows.append(("MARKER", row | {"flags": _END, "timestamp": one.end + shift, "name": 0}))
    times = {call.corr: call for call in run.calls}
    for at, wait in enumerate(run.waits, 1):
        call = times.get(wait.corr)
        if call is not None:
            row = {
                "type": 2,
                "start": call.start + shift,
                "end": call.end + shift,
                "correlationId": wait.corr,
            }
            rows.append(
                (
                    "SYNCHRONIZATION",
                    row | {"contextId": 1, "streamId": wait.stream, "cudaEventId": at},
                )
            )
            row = {
                "correlationId": wait.on_corr,
                "contextId": 1,
                "streamId": wait.on_stream,
                "eventId": at,
            }
            rows.append(("CUDA_EVENT", row))
    return rows


def _device(op: Op, gpus: Sequence[int], shift: int, text: Any) -> tuple[str, dict[str, Any]]:
    row: dict[str, Any] = {
        "start": op.start + shift,
        "end": op.end + shift,
        "deviceId": gpus.index(op.gpu),
    }
    row |= {"contextId": 1, "streamId": op.stream, "correlationId": op.corr}
    if op.kind not in _COPY:
        return "CONCURRENT_KERNEL", row | {
            "completed": op.end + shift,
            "name": text(op.name),
            "queued": 0,
        }
    kind, source, target = _COPY[op.kind]
    if op.pageable == 1:
        source, target = (1, target) if op.kind is Kind.H2D else (source, 1)
    row |= {"copyKind": kind, "srcKind": source, "dstKind": target, "flags": 1, "bytes": op.bytes}
    if op.kind is Kind.P2P:
        return "MEMCPY2", row | {"srcDeviceId": row["deviceId"], "dstDeviceId": 1 - row["deviceId"]}
    return "MEMCPY", row | {"runtimeCorrelationId": 0}


def _pthread(tid: int) -> int:
    """pthread_self() of that thread, as the 32 bits with a sign that nvprof keeps."""
    value = (0x7F3A_0000_0000 + tid * 0x80_1000) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


_COLUMNS = (
    "Start,Duration,Grid X,Grid Y,Grid Z,Block X,Block Y,Block Z,Registers Per Thread,Static"
    " SMem,Dynamic"
    " SMem,Size,Throughput,SrcMemType,DstMemType,Device,Context,Stream,Name,Correlation_ID"
)
_UNITS = "ms,us,,,,,,,,B,B,MB,GB/s,,,,,,,"
_WAY = {Kind.H2D: "HtoD", Kind.D2H: "DtoH", Kind.D2D: "DtoD", Kind.P2P: "PtoP"}


def write_nvprof_csv(run: Run, path: Path) -> Path:
    """What --print-gpu-trace --csv prints: device work, and nothing of the host."""
    host = run.hosts[0]
    lines = [f"=={host.pid}== NVPROF is profiling process {host.pid}, command: python train.py"]
    lines += [
        f"=={host.pid}== Profiling result:",
        ",".join(f'"{one}"' for one in _COLUMNS.split(",")),
        _UNITS,
    ]
    for op in run.ops:
        times = (
            f"{(op.start + 10**9) // 10**6}.{op.start % 10**6:06d},{(op.end - op.start) / 1000:.6f}"
        )
        device = f'"Tesla V100-SXM2-16GB ({host.gpus.index(op.gpu)})","1","{op.stream}"'
        if op.kind in _WAY:
            memory = '"Device","Pageable"' if op.kind is Kind.D2H else '"Pinned","Device"'
            memory = '"Pageable","Device"' if op.kind is Kind.H2D and op.pageable == 1 else memory
            size = f"{op.bytes / 2**20:.6f},10.0"
            lines.append(
                f'{times},,,,,,,,,,{size},{memory},{device},"[CUDA memcpy'
                f' {_WAY[op.kind]}]",{op.corr}'
            )
        else:
            lines.append(
                f'{times},1,1,1,128,1,1,32,0,0,,,,,{device},"{op.name} [{op.corr}]",{op.corr}'
            )
    path.write_text("\n".join(lines) + "\n")
    return path
