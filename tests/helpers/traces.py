"""The smallest file of each dialect that has device work: what laws of all readers bend and
break.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = (  # part of each name; a test may put other bytes of this length into a file in its place
    "gemm_QQQQ"
)


@dataclass(frozen=True, slots=True)
class Work:
    """One kernel and the call that launched it, or one span of a feed. Nanoseconds."""

    start: int
    end: int
    corr: int
    name: str = MARK

    @property
    def called(self) -> int:
        return self.start - 10_000


def steady(count: int = 8) -> list[Work]:
    """Kernels of 0.6 ms, one a millisecond."""
    return [
        Work(1_000_000 * step, 1_000_000 * step + 600_000, step) for step in range(1, count + 1)
    ]


Rows = Mapping[str, Sequence[Mapping[str, Any]]]


def database(path: Path, tables: Rows, columns: Mapping[str, str]) -> None:
    """Tables of these columns; a table without rows is there all the same."""
    with closing(sqlite3.connect(path)) as made:
        for table, named in columns.items():
            made.execute(f"CREATE TABLE {table} ({named})")
            keys = [one.split()[0] for one in named.split(", ")]
            marks = ", ".join("?" * len(keys))
            rows = [[row.get(key) for key in keys] for row in tables.get(table, ())]
            made.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        made.commit()


def nsys(path: Path, works: Sequence[Work]) -> None:
    pid, names = 77 << 24, {MARK: 1, "cudaLaunchKernel_v7000": 2}
    names |= {work.name: at for at, work in enumerate(works, 3)}
    kernels = [
        {
            "start": work.start,
            "end": work.end,
            "deviceId": 0,
            "streamId": 7,
            "correlationId": work.corr,
            "globalPid": pid,
            "demangledName": names[work.name],
            "shortName": names[work.name],
        }
        for work in works
    ]
    calls = [
        {
            "start": work.called,
            "end": work.called + 5_000,
            "globalTid": pid | 78,
            "correlationId": work.corr,
            "nameId": 2,
            "returnValue": 0,
        }
        for work in works
    ]
    strings = [{"id": at, "value": text} for text, at in names.items()]
    kernel, runtime = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
    columns = {
        "StringIds": "id INTEGER, value TEXT",
        kernel: (
            "start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT,"
            " globalPid INT, demangledName INT, shortName INT"
        ),
        runtime: (
            "start INT, end INT, globalTid INT, correlationId INT, nameId INT, returnValue INT"
        ),
    }
    database(path, {"StringIds": strings, kernel: kernels, runtime: calls}, columns)


def nvprof(path: Path, works: Sequence[Work]) -> None:
    named = list(dict.fromkeys(work.name for work in works))
    kernels = [
        {
            "start": work.start,
            "end": work.end,
            "deviceId": 0,
            "streamId": 7,
            "correlationId": work.corr,
            "name": named.index(work.name) + 1,
        }
        for work in works
    ]
    calls = [
        {
            "cbid": 211,
            "start": work.called,
            "end": work.called + 5_000,
            "processId": 77,
            "threadId": -78,
            "correlationId": work.corr,
        }
        for work in works
    ]
    strings = [{"_id_": at, "value": text} for at, text in enumerate(named, 1)]
    kernel, runtime = "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
    columns = {
        "StringTable": "_id_ INTEGER, value TEXT",
        kernel: "start INT, end INT, deviceId INT, streamId INT, correlationId INT, name INT",
        runtime: "cbid INT, start INT, end INT, processId INT, threadId INT, correlationId INT",
    }
    database(path, {"StringTable": strings, kernel: kernels, runtime: calls}, columns)


def nvprof_text(path: Path, works: Sequence[Work]) -> None:
    lines = ["==77== NVPROF is profiling process 77, command: train", "==77== Profiling result:"]
    lines += [
        '"Start","Duration","Grid X","Size","Device","Stream","Name","Correlation_ID"',
        "us,us,,MB,,,,",
    ]
    for work in works:
        placed = f'{_us(work.start)},{_us(work.end - work.start)},1,,"Tesla V100 (0)","7"'
        lines.append(f'{placed},"{work.name} [{work.corr}]",{work.corr}')
    path.write_text("\n".join(lines) + "\n")


def chrome(path: Path, works: Sequence[Work]) -> None:
    events: list[dict[str, Any]] = []
    for work in works:
        args = {"device": 0, "stream": 7, "correlation": work.corr}
        kernel = {"ph": "X", "cat": "kernel", "name": work.name, "pid": 0, "tid": 7, "args": args}
        events.append(kernel | {"ts": work.start / 1000, "dur": (work.end - work.start) / 1000})
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 77, "tid": 78}
        events.append(
            call | {"ts": work.called / 1000, "dur": 5.0, "args": {"correlation": work.corr}}
        )
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))


def timeline(path: Path, works: Sequence[Work]) -> None:
    lines: list[Any] = [
        {"fastfeed_timeline": 1, "feed": "f0", "pid": 77, "rank": 0, "host": "node", "name": MARK}
    ]
    lines.append(["f0", "anchor", 0, 1_700_000_000_000_000_000])
    lines += [["f0", "span", "wait", work.corr, work.start, work.end, 78] for work in works]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def xplane(path: Path, works: Sequence[Work]) -> None:
    named = {
        name: at for at, name in enumerate(dict.fromkeys([MARK, *(work.name for work in works)]), 1)
    }
    gpu, host = b"", b""
    for work in works:
        stat = _block(4, _number(1, 1) + _number(3, work.corr))
        gpu += _block(4, _event(named[work.name], work.start, work.end) + stat)
        host += _block(4, _event(named[work.name], work.called, work.called + 5_000) + stat)
    path.write_bytes(
        _block(1, _plane(1, "/device:GPU:0", "Stream #7(Compute)", gpu, named))
        + _block(1, _plane(2, "/host:CPU", "python", host, named))
    )


def nsys_report(path: Path, works: Sequence[Work]) -> None:
    """A report's beginning: the rest is Nsight Systems' own."""
    content = "".join(f"{work.start} {work.end} {work.name}\n" for work in works)
    path.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n" + content.encode())


def _us(ns: int) -> str:
    return f"{'-' * (ns < 0)}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def _plane(id: int, name: str, line: str, events: bytes, named: Mapping[str, int]) -> bytes:
    plane = _number(1, id) + _block(2, name.encode())
    plane += _block(3, _number(1, 7) + _block(2, line.encode()) + _number(3, 0) + events)
    for text, at in named.items():
        plane += _block(4, _number(1, at) + _block(2, _number(1, at) + _block(2, text.encode())))
    return plane + _block(
        5, _number(1, 1) + _block(2, _number(1, 1) + _block(2, b"correlation_id"))
    )


def _event(name: int, start: int, end: int) -> bytes:
    return _number(1, name) + _number(2, start * 1000) + _number(3, (end - start) * 1000)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value & (2**64 - 1))


def _block(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    made = b""
    while value > 127:
        made += struct.pack("B", value & 127 | 128)
        value >>= 7
    return made + struct.pack("B", value)


DIALECTS: Mapping[str, Callable[[Path, Sequence[Work]], None]] = {
    "nsys": nsys,
    "nsys_report": nsys_report,
    "nvprof": nvprof,
    "nvprof_text": nvprof_text,
    "chrome": chrome,
    "timeline": timeline,
    "xplane": xplane,
}
