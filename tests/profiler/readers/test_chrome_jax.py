"""trace.json.gz of JAX and TensorFlow: events without category, processes that say what they
are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.profiler.kineto_files import device_rows, host_rows, meta, write

from fastfeed.profiler.model.trace import Kind, RangeKind
from fastfeed.profiler.readers.chrome import reader as chrome

pytestmark = pytest.mark.usefixtures("both_ways")

HOST, THREAD = 701, 3_100


def event(pid: int, tid: int, name: str, ts: Any, dur: Any, **args: str) -> dict[str, Any]:
    """Keys in the order of the exporter, arguments as text."""
    return {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name} | (
        {"args": args} if args else {}
    )


def recording(device: str = "/device:GPU:0") -> list[dict[str, Any]]:
    copy = "kind_src:pageable kind_dst:device size:4096 dest:0 async:1"
    return [
        meta("process_name", 1, device),
        meta("thread_name", 1, "Stream #14(Compute)", 9),
        meta("thread_name", 1, "Stream #15(MemcpyH2D)", 10),
        meta("thread_name", 1, "XLA Ops", 99),
        meta("process_name", HOST, "/host:CPU"),
        meta("thread_name", HOST, "python", THREAD),
        event(HOST, THREAD, "train", "1.000001", 900, step_num="7"),
        event(HOST, THREAD, "$loop.py:12 step", 2, 800),
        event(HOST, THREAD, "PjitFunction(step)", 10, 100),
        event(HOST, THREAD, "cuMemcpyAsync", 15, 4, correlation_id="4"),
        event(HOST, THREAD, "cuLaunchKernel", 20, 5, correlation_id="5"),
        event(1, 10, "MemcpyH2D", "18.000500", "3.000499", correlation_id="4", memcpy_details=copy),
        event(
            1, 9, "loop_fusion", "30.123457", "10.000001", correlation_id="5", hlo_op="loop_fusion"
        ),
        event(1, 9, "ncclDevKernel_AllReduce", 50, 10, correlation_id="6"),
        event(1, 9, "Memset", 70, 1, correlation_id="8"),
        event(1, 99, "loop_fusion", "30.123457", "10.000001"),
    ]


@pytest.mark.parametrize("piece", [200, 4 << 20])
def test_streams_and_host_threads(
    tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastfeed.profiler.readers.chrome.stream.PIECE", piece)
    trace = chrome.read(write(tmp_path / "host.trace.json.gz", recording(), displayTimeUnit="ns"))
    assert device_rows(trace.ops) == [
        (18_001, 21_001, 15, 4),
        (30_123, 40_123, 14, 5),
        (50_000, 60_000, 14, 6),
        (70_000, 71_000, 14, 8),
    ]
    assert trace.ops.kind.tolist() == [Kind.H2D, Kind.COMPUTE, Kind.COMM, Kind.MEMSET]
    assert (trace.ops.bytes[0], trace.ops.pageable[0]) == (4096, 1)
    assert [trace.name(name) for name in trace.calls.name] == ["cuMemcpyAsync", "cuLaunchKernel"]
    assert host_rows(trace) == [
        ("train 7", RangeKind.STEP, THREAD),
        ("$loop.py:12 step", RangeKind.PYTHON, THREAD),
        ("PjitFunction(step)", RangeKind.OP, THREAD),
    ]
    assert [(process.pid, process.name) for process in trace.processes] == [(HOST, "/host:CPU")]
    assert [(thread.tid, thread.name) for thread in trace.threads] == [(THREAD, "python")]
    assert [device.ordinal for device in trace.devices] == [0]
    assert trace.origin.notes == (chrome.EXPORT_NOTE,)


def test_the_limit_of_the_exporter_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chrome, "EVENT_LIMIT", 10)
    trace = chrome.read(write(tmp_path / "a.json", recording()))
    assert trace.origin.sampled
    assert trace.origin.notes == (chrome.TRUNCATED_NOTE,)


@pytest.mark.parametrize(
    ("device", "says"), [("/device:TPU:0", "are TPUs"), ("/host:CPU", "no device work")]
)
def test_without_a_gpu(tmp_path: Path, device: str, says: str) -> None:
    trace = chrome.read(write(tmp_path / "a.json", recording(device)))
    assert len(trace.ops.start) == 0
    assert any(says in note for note in trace.origin.notes)
