"""The reader of Chrome traces: every dialect to one shape, exactly, whatever the layout of the
file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.profiler.kineto_files import (
    BASE,
    KERNELS,
    PID,
    device_rows,
    event,
    host_rows,
    kernel,
    large,
    launch,
    meta,
    training,
    write,
)

from fastfeed.profiler.model.trace import Kind, RangeKind
from fastfeed.profiler.readers.chrome import reader as chrome

pytestmark = pytest.mark.usefixtures("both_ways")

OLD = {
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
    "cuda_runtime": "Runtime",
}
OLD |= {"cpu_op": "Operator", "user_annotation": "Operator"}


def old(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same as PyTorch 1.8 wrote it: other categories, thread ids as text."""
    changed = []
    for one in events:
        cat = one.get("cat", "")
        if cat == "gpu_user_annotation":
            continue
        on_gpu = cat in ("kernel", "gpu_memcpy", "gpu_memset")
        tid = f"stream {one['tid']}" if on_gpu else str(one["tid"])
        changed.append(one | {"cat": OLD.get(cat, cat), "tid": tid} if one["ph"] == "X" else one)
    return changed


@pytest.mark.parametrize("dialect", ["2021", "2023"])
def test_a_step_in_every_age(tmp_path: Path, dialect: str) -> None:
    events = training() if dialect == "2023" else old(training())
    path = write(tmp_path / "a.json", events, deviceProperties=[{"id": 0, "name": "NVIDIA H200"}])
    trace = chrome.read(path)
    assert device_rows(trace.ops) == [(425_000, 436_000, 7, 1), (480_000, 880_000, 7, 2)]
    assert trace.ops.kind.tolist() == [Kind.H2D, Kind.COMPUTE]
    assert (trace.ops.bytes.tolist(), trace.ops.pageable.tolist()) == ([4096, -1], [1, -1])
    assert [trace.name(name) for name in trace.calls.name] == [
        "cudaMemcpyAsync",
        "cudaLaunchKernel",
    ]
    assert trace.calls.corr.tolist() == [1, 2]
    assert host_rows(trace) == [
        ("ProfilerStep#5", RangeKind.STEP, PID),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", RangeKind.NVTX, PID),
        ("aten::to", RangeKind.OP, PID),
    ]
    assert [(device.ordinal, device.name) for device in trace.devices] == [(0, "NVIDIA H200")]
    assert [(process.pid, process.name) for process in trace.processes] == [(PID, "python")]
    assert [(thread.tid, thread.name) for thread in trace.threads] == [(PID, "python")]
    assert (trace.origin.dialect, trace.origin.notes, trace.origin.host_calls) == (
        "chrome",
        (),
        True,
    )


def test_who_recorded_it_and_when(tmp_path: Path) -> None:
    distributed = {"backend": "nccl", "rank": 3, "world_size": 8}
    path = write(
        tmp_path / "a.json",
        training(),
        distributedInfo=distributed,
        baseTimeNanoseconds=BASE,
        host_name="node7",
    )
    trace = chrome.read(path)
    assert (trace.processes[0].rank, trace.processes[0].host) == (3, "node7")
    assert (trace.origin.wall_ns, trace.metadata["world_size"]) == (BASE, 8)
    assert chrome.read(write(tmp_path / "b.json", training())).origin.wall_ns is None
    now = [kernel(1, "1712195495505582.988", "4.928")]
    assert chrome.read(write(tmp_path / "c.json", now)).origin.wall_ns == 0


def test_nanoseconds_survive(tmp_path: Path) -> None:
    times = [
        ("1712195495505582.988", "4.928"),
        (1712195495505590, 2),
        ("1712195495505600.5", "0.25"),
        ("1e3", "1.0004"),
    ]
    events = [kernel(at, ts, dur) for at, (ts, dur) in enumerate(times)]
    text = json.dumps({"traceEvents": events}).replace(
        '"1712195495505582.988"', "1712195495505582.988"
    )
    (tmp_path / "a.json").write_text(text)
    assert [row[:2] for row in device_rows(chrome.read(tmp_path / "a.json").ops)] == [
        (1_712_195_495_505_582_988, 1_712_195_495_505_587_916),
        (1_712_195_495_505_590_000, 1_712_195_495_505_592_000),
        (1_712_195_495_505_600_500, 1_712_195_495_505_600_750),
        (1_000_000, 1_001_000),
    ]


def test_begin_and_end_pairs(tmp_path: Path) -> None:
    def half(phase: str, ts: Any, name: str, **more: Any) -> dict[str, Any]:
        return {
            "ph": phase,
            "cat": "cpu_op",
            "name": name,
            "pid": PID,
            "tid": PID,
            "ts": ts,
            **more,
        }

    rows = [
        half("B", "1.001", "outer"),
        half("B", "2.5", "inner"),
        half("E", "3.25", "inner"),
        half("E", 9, ""),
        half("E", 10, "never begun"),
        half("B", 11, "never ended"),
        kernel(1, 12, 8),
    ]
    trace = chrome.read(write(tmp_path / "a.json", rows))
    spans = dict(
        zip(
            map(trace.name, trace.ranges.name),
            zip(trace.ranges.start, trace.ranges.end, strict=True),
            strict=True,
        )
    )
    assert spans == {"inner": (2500, 3250), "outer": (1001, 9000), "never ended": (11_000, 20_000)}


def test_python_gc_overhead_and_unknown_threads(tmp_path: Path) -> None:
    rows = [
        *training(),
        event("python_function", "train.py(3): step", 105, 50),
        event("python_function", "Python GC", 120, 9),
        event("python_function", "threading.py(1): run", 125, 500, pid=0, tid=0),
        event("overhead", "Activity Buffer Request", 130, 3, pid=-1, tid=0),
        event("overhead", "Buffer Flush", 140, 3, pid=-1, tid=0),
        event("overhead", "Lazy Function Loading", 150, 3, pid=-1, tid=0),
        event("overhead", "Command Buffer Full", 160, 3, pid=-1, tid=0),
    ]
    trace = chrome.read(write(tmp_path / "a.json", rows))
    assert trace.overheads.start.tolist() == [130_000, 140_000]
    assert trace.overheads.process.tolist() == [0, 0]
    own = chrome.read(write(tmp_path / "b.json", training()))
    assert set(host_rows(trace)) - set(host_rows(own)) == {
        ("train.py(3): step", RangeKind.PYTHON, PID),
        ("Python GC", RangeKind.GC, PID),
        ("threading.py(1): run", RangeKind.PYTHON, 0),
        ("Lazy Function Loading", RangeKind.COMPILE, -1),
        ("Command Buffer Full", RangeKind.OTHER, -1),
    }
    assert len(trace.processes) == 1  # what has the number of a GPU, or -1, is no process
    assert len(trace.threads) == 2


def test_a_process_with_the_number_of_a_gpu(tmp_path: Path) -> None:
    """Process ids are small in containers."""
    rows = [
        meta("process_labels", 0, "GPU 0"),
        launch(1, 5, pid=0, tid=0),
        kernel(1, 10, 5),
        event("cpu_op", "a", 1, 2, pid=0),
    ]
    trace = chrome.read(write(tmp_path / "a.json", rows))
    assert [process.pid for process in trace.processes] == [0]
    assert trace.calls.thread.tolist() == [0]


def test_collectives_say_which(tmp_path: Path) -> None:
    comm = {
        "Collective name": "allreduce",
        "In msg nelems": 1000,
        "Out msg nelems": 1000,
        "Group size": 8,
    }
    comm |= {"dtype": "BFloat16", "Process Group Name": "12", "Seq": 44, "In split size": "[]"}
    rows = [
        kernel(
            1,
            10,
            5,
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            **comm,
        ),
        kernel(2, 20, 5, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
        kernel(3, 30, 5),
    ]
    trace = chrome.read(write(tmp_path / "a.json", rows))
    ops = trace.ops
    assert ops.kind.tolist() == [Kind.COMM, Kind.COMM, Kind.COMPUTE]
    assert [trace.name(group) for group in ops.group] == ["12", "", ""]
    assert (ops.seq.tolist(), ops.bytes.tolist()) == ([44, -1, -1], [2000, -1, -1])


def test_streams_that_wait(tmp_path: Path) -> None:
    wait = {
        "cuda_sync_kind": "Stream Wait Event",
        "wait_on_stream": 7,
        "wait_on_cuda_event_record_corr_id": 5169,
    }
    wait |= {
        "wait_on_cuda_event_id": 1,
        "stream": 20,
        "correlation": 5170,
        "device": 0,
        "context": 1,
    }
    sync = {
        "cuda_sync_kind": "Context Sync",
        "stream": 4294967295,
        "correlation": 9,
        "device": 0,
        "context": 1,
    }
    rows = [
        *training(),
        event("cuda_sync", "Stream Wait Event", 500, 0, pid=0, tid=20, **wait),
        event("cuda_sync", "Context Sync", 500, 400, pid=0, tid=-1, **sync),
    ]
    waits = chrome.read(write(tmp_path / "a.json", rows)).waits
    columns = (waits.corr, waits.process, waits.stream, waits.on_stream, waits.on_corr)
    assert [column.tolist() for column in columns] == [[5170], [0], [20], [7], [5169]]


def test_amd_copies_that_are_kernels(tmp_path: Path) -> None:
    args = {"External id": 8, "device": 2, "stream": 0, "correlation": 117, "kind": "HtoD"}
    rows = [
        event(
            "cuda_runtime",
            "hipMemcpyWithStream",
            1,
            60,
            stream="0x0",
            cid=153,
            correlation=117,
            kind="1",
        ),
        event("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 10, 22, pid=2, tid=0, **args),
        event("kernel", "__amd_rocclr_copyBuffer.kd", 40, 5, pid=2, tid=0, **args),
        event("kernel", "Cijk_Ailk_Bljk", 50, 5, pid=2, tid=0, **args),
    ]
    trace = chrome.read(write(tmp_path / "a.json", rows))
    assert trace.ops.kind.tolist() == [Kind.H2D, Kind.D2D, Kind.COMPUTE]
    assert trace.devices[0].ordinal == 2
    assert (trace.ops.corr == 117).all()


def test_two_processes_use_the_same_numbers(tmp_path: Path) -> None:
    rows = [
        launch(1, 5, pid=10, tid=10),
        kernel(1, 12, 5),
        launch(2, 20, pid=11, tid=11),
        kernel(2, 30, 5),
        launch(1, 40, pid=11, tid=11),
        kernel(1, 50, 5),
        kernel(77, 60, 5),
    ]
    trace = chrome.read(write(tmp_path / "a.json", rows))
    assert [trace.processes[process].pid for process in trace.ops.process[:3]] == [10, 11, 11]
    assert trace.devices[0].process == -1


def test_arguments_that_are_missing_are_in_the_place(tmp_path: Path) -> None:
    rows = [
        event("kernel", "a", 1, 1, pid=1, tid="stream 9"),
        event("kernel", "b", 2, 1, pid=1, tid=9, stream="12", device="3", correlation="5"),
    ]
    trace = chrome.read(write(tmp_path / "a.json", rows))
    assert [device.ordinal for device in trace.devices] == [1, 3]
    assert (trace.ops.stream.tolist(), trace.ops.corr.tolist()) == ([9, 12], [-1, 5])
    assert not trace.origin.host_calls


def test_unknown_categories(tmp_path: Path) -> None:
    """Count on threads that are known for something else; the rest are headlines."""
    rows = [
        *training(),
        event("mine", "evaluate", 950, 40),
        event("mine", "line", 1, 2, pid="Spans", tid=7),
    ]
    assert host_rows(chrome.read(write(tmp_path / "a.json", rows)))[3:] == [
        ("evaluate", RangeKind.OTHER, PID)
    ]


def test_a_program_without_a_gpu(tmp_path: Path) -> None:
    trace = chrome.read(write(tmp_path / "a.json", [event("cpu_op", "aten::mm", 1, 5)]))
    assert len(trace.ops.start) == 0
    assert trace.origin.notes[0].startswith("The trace has no device work: the program used no GPU")


def test_large_files_keep_every_launch(tmp_path: Path) -> None:
    """More than one piece, in the layout of Kineto; memory does not grow with the file (see
    benchmarks).
    """
    trace = chrome.read(large(tmp_path / "a.json", 12_000, ops=True))
    starts, ends = trace.ops.start, trace.ops.end
    assert len(starts) == len(trace.calls.start) == len(trace.ranges.start) == 12_000
    assert (ends - starts == 9000).all()
    assert (starts[1:] - ends[:-1] == 1000).all()
    assert np.array_equal(trace.ops.corr, np.arange(1, 12_001))
    assert {trace.name(name) for name in trace.ops.name} == set(KERNELS)
    assert trace.origin.notes == ()


@pytest.mark.parametrize(
    ("names", "told"), [(["MI300X"], "MI300X"), (["MI300X", "MI300X"], "MI300X"), (["A", "B"], "")]
)
def test_a_device_that_is_not_listed_is_like_those_that_are(
    tmp_path: Path, names: list[str], told: str
) -> None:
    """ROCm lists devices from 0, and numbers those of operations after the CPUs of the machine."""
    listed = [{"id": number, "name": name} for number, name in enumerate(names)]
    path = write(
        tmp_path / "a.json", [launch(1, 80), kernel(1, 90, 2, device=2)], deviceProperties=listed
    )
    assert [(device.ordinal, device.name) for device in chrome.read(path).devices] == [(2, told)]
