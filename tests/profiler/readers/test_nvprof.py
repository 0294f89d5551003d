"""nvprof's database: processes by correlation, NVTX by pairs, CUPTI's own numbers for memory."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from helpers.profiler.nvprofs import EPOCH, PID, TABLES, TID, UUID, Sheet, owner, training

from fastfeed.errors import TraceError
from fastfeed.profiler.model.trace import Kind, Process, RangeKind, Thread, Trace
from fastfeed.profiler.readers.nvprof import reader as nvprof
from fastfeed.profiler.readers.nvprof.reader import API_NAMES


def names(trace: Trace, column: np.ndarray) -> list[str]:
    return [trace.name(index) for index in column.tolist()]


def read(sheet: Sheet, folder: Path) -> Trace:
    return nvprof.read(sheet.write(folder / "run.nvprof"))


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_RUNTIME", "StringTable"])
def test_a_damaged_size_that_sqlite_calls_a_lack_of_memory_is_refused(
    tmp_path: Path, table: str
) -> None:
    path = training().write(tmp_path / "run.nvprof")
    with closing(sqlite3.connect(path)) as database:
        (size,) = database.execute("PRAGMA page_size").fetchone()
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        page = (database.execute(query, (table,)).fetchone()[0] - 1) * size
    damaged = bytearray(path.read_bytes())
    # the position of the first row of the table
    damaged[page + 8 : page + 10] = (2000).to_bytes(2, "big")
    # a row of 2^64 - 1 bytes
    damaged[page + 2000 : page + 2015] = b"\xff" * 9 + b"\x02\x08\x00\xd3\x18\x6c"
    path.write_bytes(damaged)
    with pytest.raises(TraceError, match="damaged or unfinished SQLite database"):
        nvprof.read(path)


def test_training(tmp_path: Path) -> None:
    trace = read(training(), tmp_path)
    assert (
        trace.origin.dialect == "nvprof"
        and trace.origin.version == "11"
        and trace.origin.notes == ()
    )
    assert trace.origin.wall_ns == EPOCH and trace.origin.host_calls
    assert trace.processes == (Process(PID),)
    assert trace.threads == (
        Thread(0, TID & 0xFFFFFFFF),
    )  # one, though a marker has its id without the sign
    assert trace.devices[0].name == "Tesla V100-SXM2-16GB" and trace.devices[0].uuid == UUID.hex()
    ops = trace.ops
    assert names(trace, ops.name) == ["volta_sgemm_128x64"] * 3 + ["[CUDA memcpy HtoD]"] * 3
    assert ops.kind.tolist() == [Kind.COMPUTE] * 3 + [Kind.H2D] * 3
    assert (
        ops.pageable.tolist() == [-1] * 3 + [1] * 3 and ops.bytes.tolist() == [-1] * 3 + [4096] * 3
    )
    assert ops.start.tolist() == [370_000, 1_370_000, 2_370_000, 310_000, 1_310_000, 2_310_000]
    assert names(trace, trace.calls.name)[:3] == [
        "cudaMemcpyAsync",
        "cudaLaunchKernel",
        "cudaStreamSynchronize",
    ]
    assert np.isin(ops.corr, trace.calls.corr).all()
    spoken = dict(zip(names(trace, trace.ranges.name), trace.ranges.kind.tolist(), strict=True))
    assert spoken == {
        "fastfeed:wait": RangeKind.FEED,
        "step 0": RangeKind.NVTX,
        "step 1": RangeKind.NVTX,
        "step 2": RangeKind.NVTX,
    }
    assert (trace.ranges.end - trace.ranges.start).tolist() == [300_000, 900_000] * 3


@pytest.mark.parametrize("kind", sorted(nvprof._COPIES))
def test_copy_kinds(tmp_path: Path, kind: int) -> None:
    sheet = Sheet()
    for memory in (0, 1, 2, 3, 5):
        times = {"start": EPOCH + memory, "end": EPOCH + memory + 1}
        sheet.add("MEMCPY", copyKind=kind, srcKind=memory, dstKind=memory, **times)
    ops = read(sheet, tmp_path).ops
    assert set(ops.kind.tolist()) == {nvprof._COPIES[kind][1]}
    host_side = ops.kind[0] in (Kind.H2D, Kind.D2H)
    assert ops.pageable.tolist() == ([-1, 1, 0, 0, 0] if host_side else [-1] * 5)


def test_calls_by_number(tmp_path: Path) -> None:
    """The numbers are CUPTI's, and never change; one that is not in the table keeps its number."""
    known = {
        "cudaLaunchKernel": 211,
        "cudaMemcpyAsync": 41,
        "cudaMemcpy": 31,
        "cudaMalloc": 20,
        "cudaFree": 22,
    }
    known |= {
        "cudaDeviceSynchronize": 165,
        "cudaStreamSynchronize": 131,
        "cudaEventSynchronize": 137,
    }
    known |= {
        "cudaStreamWaitEvent": 147,
        "cudaLaunch": 13,
        "cudaMemcpyPeerAsync": 161,
        "cudaGraphLaunch": 311,
    }
    assert {name: API_NAMES["RUNTIME"][number] for name, number in known.items()} == {
        name: name for name in known
    }
    assert (API_NAMES["DRIVER"][307], API_NAMES["DRIVER"][17], API_NAMES["DRIVER"][277]) == (
        "cuLaunchKernel",
        "cuCtxSynchronize",
        "cuMemcpyHtoDAsync",
    )
    sheet = Sheet()
    for table, cbid in (("RUNTIME", 214), ("RUNTIME", 9999), ("DRIVER", 442)):
        sheet.add(table, cbid=cbid, start=EPOCH, end=EPOCH + 5, processId=1, threadId=1)
    trace = read(sheet, tmp_path)
    assert names(trace, trace.calls.name) == [
        "cudaLaunchKernel",
        "runtime call 9999",
        "cuLaunchKernel",
    ]


def test_header_agrees() -> None:
    """Where CUPTI is installed, every number is as in its headers."""
    for table, header, prefix in (
        (API_NAMES["RUNTIME"], "runtime", "RUNTIME"),
        (API_NAMES["DRIVER"], "driver", "DRIVER"),
    ):
        found = sorted(Path("/usr/local").glob(f"cuda*/**/include/cupti_{header}_cbid.h"))
        if not found:
            pytest.skip("no CUPTI in /usr/local/cuda*; install cuda-cupti-dev to compare")
        text = found[0].read_text()
        theirs = {
            int(at): name
            for name, at in re.findall(rf"{prefix}_TRACE_CBID_(\w+)\s*=\s*(\d+)", text)
        }
        assert {at: name for at, name in table.items() if not theirs[at].startswith(name)} == {}


def test_markers(tmp_path: Path) -> None:
    """Ranges that nest, cross threads, repeat an id, or stay open; marks are not ranges."""
    sheet = Sheet()

    def mark(flags: int, at: int, id: int, text: str, **more: object) -> None:
        named = {"name": sheet.text(text) if text else 0, "objectKind": 2, "objectId": owner()}
        sheet.add("MARKER", flags=flags, timestamp=EPOCH + at, id=id, **{**named, **more})

    mark(2, 0, 1, "outer", domain=sheet.text("library"))
    mark(2, 10, 2, "inner")
    mark(4, 20, 2, "")
    mark(1, 25, 3, "only a mark")
    mark(4, 40, 1, "")
    mark(2, 50, 2, "id again")
    mark(4, 60, 2, "")
    mark(2, 70, 4, "of a process", objectKind=1)
    mark(2, 80, 5, "open")
    mark(4, 90, 77, "")
    sheet.add("CONCURRENT_KERNEL", start=EPOCH, end=EPOCH + 100, name=sheet.text("k"))
    trace = read(sheet, tmp_path)
    rows = zip(
        names(trace, trace.ranges.name),
        trace.ranges.start,
        trace.ranges.end,
        trace.ranges.thread,
        trace.ranges.domain,
        strict=True,
    )
    assert sorted((name, int(a), int(b), int(t), trace.name(d)) for name, a, b, t, d in rows) == [
        ("id again", 50, 60, 0, ""),
        ("inner", 10, 20, 0, ""),
        ("of a process", 70, 100, -1, ""),
        ("open", 80, 100, 0, ""),
        ("outer", 0, 40, 0, "library"),
    ]


def test_processes_by_correlation(tmp_path: Path) -> None:
    sheet = Sheet()
    for pid, corr in ((10, 1), (20, 2)):
        times = {"start": EPOCH + corr * 100, "end": EPOCH + corr * 100 + 10}
        sheet.add("RUNTIME", cbid=211, processId=pid, threadId=pid, correlationId=corr, **times)
        sheet.add("KERNEL", correlationId=corr, deviceId=corr - 1, name=sheet.text("k"), **times)
    trace = read(sheet, tmp_path)
    assert [trace.processes[index].pid for index in trace.ops.process] == [10, 20]
    assert [device.process for device in trace.devices] == [-1, -1]


def test_waits_overheads_unified(tmp_path: Path) -> None:
    sheet = Sheet()
    times = {"start": EPOCH, "end": EPOCH + 10}
    sheet.add("CUDA_EVENT", correlationId=3, streamId=7, eventId=5)
    sheet.add("CUDA_EVENT", correlationId=9, streamId=8, eventId=5)  # recorded after the wait
    sheet.add("SYNCHRONIZATION", type=2, correlationId=6, streamId=9, cudaEventId=5, **times)
    # before any record
    sheet.add("SYNCHRONIZATION", type=2, correlationId=2, streamId=9, cudaEventId=5, **times)
    sheet.add("SYNCHRONIZATION", type=3, correlationId=7, streamId=9, **times)
    sheet.add("OVERHEAD", overheadKind=1 << 16, objectKind=1, objectId=owner(), **times)
    sheet.add("OVERHEAD", overheadKind=1, objectKind=2, objectId=owner(), **times)
    sheet.add("UNIFIED_MEMORY_COUNTER", counterKind=1, value=64, srcId=9, dstId=1, **times)
    # page faults
    sheet.add("UNIFIED_MEMORY_COUNTER", counterKind=3, value=64, srcId=9, dstId=1, **times)
    trace = read(sheet, tmp_path)
    waits = trace.waits
    assert [
        column.tolist() for column in (waits.corr, waits.stream, waits.on_stream, waits.on_corr)
    ] == [
        [6, 2],
        [9, 9],
        [7, -1],
        [3, -1],
    ]
    assert (
        len(trace.overheads.start) == 1 and trace.processes[trace.overheads.process[0]].pid == PID
    )
    assert trace.ranges.kind.tolist() == [RangeKind.COMPILE] and trace.ranges.thread.tolist() == [0]
    assert trace.ops.kind.tolist() == [Kind.OTHER] and trace.ops.bytes.tolist() == [64]
    assert trace.devices[0].ordinal == 1


def test_rows_without_times(tmp_path: Path) -> None:
    sheet = training()
    sheet.add("CONCURRENT_KERNEL", start=0, end=0, name=sheet.text("lost"))
    sheet.add("CONCURRENT_KERNEL", start=EPOCH + 9, end=EPOCH + 2, name=sheet.text("back"))
    trace = read(sheet, tmp_path)
    assert len(trace.ops.start) == 6 and trace.origin.dropped == 1
    assert (
        "device-buffer-size" in trace.origin.notes[0]
        and "end before they begin" in trace.origin.notes[1]
    )


@pytest.mark.parametrize("missing", sorted(TABLES))
def test_without_a_table(tmp_path: Path, missing: str) -> None:
    trace = nvprof.read(
        training().write(tmp_path / "run.nvprof", [name for name in TABLES if name != missing])
    )
    assert len(trace.ops.start) == {"CONCURRENT_KERNEL": 3, "MEMCPY": 3}.get(missing, 6)
    assert trace.origin.host_calls == (missing != "RUNTIME")


def test_knows(tmp_path: Path) -> None:
    path = training().write(tmp_path / "a")
    head = path.read_bytes()[:65_536]
    assert nvprof.knows(path, head) and not nvprof.knows(path, b"{" + head)
    empty = Sheet().write(tmp_path / "b", [])
    assert not nvprof.knows(empty, empty.read_bytes())
