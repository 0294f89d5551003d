"""What a recording of JAX or TensorFlow says, as a Trace: device work, launches, ranges, steps."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from helpers.profiler.xplanes import Event, Line, Plane, Ref, event, gpu, space

from fastfeed.profiler.model.trace import Kind, RangeKind, Trace
from fastfeed.profiler.readers.decompress import head
from fastfeed.profiler.readers.xplane import reader as xplane


def read(tmp_path: Path, planes: Sequence[Plane], **rest: Sequence[str]) -> Trace:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space(planes, **rest))
    assert xplane.knows(path, head(path))
    return xplane.read(path)


def host(*events: Event, id: int = 41, name: str = "python3") -> Plane:
    return Plane("/host:CPU", [Line(name, events, id)])


def stream(
    *events: Event, number: int = 7, kinds: str = "(Compute)", timestamp_ns: int = 0
) -> Line:
    return Line(f"Stream #{number}{kinds}", events, number, timestamp_ns)


def ranges(trace: Trace) -> list[tuple[str, RangeKind]]:
    return [
        (trace.name(n), RangeKind(s))
        for n, s in zip(trace.ranges.name, trace.ranges.kind, strict=True)
    ]


def test_every_line_has_its_own_clock(tmp_path: Path) -> None:
    begun = 1_700_000_000_000_000_000
    lines = [
        stream(event("first", begun + 100, begun + 150), timestamp_ns=begun),
        stream(event("second", begun + 200, begun + 250), number=8, timestamp_ns=begun + 90),
    ]
    trace = read(tmp_path, [gpu(0, lines)])
    assert (trace.ops.start - begun).tolist() == [100, 200]
    assert (trace.ops.end - begun).tolist() == [150, 250]
    assert trace.ops.stream.tolist() == [7, 8]
    assert trace.origin.wall_ns == 0  # the events say their time in full


def test_events_that_touch_in_picoseconds_touch_in_nanoseconds(tmp_path: Path) -> None:
    edges = [1_000_000, 1_000_999, 1_001_001, 1_999_999, 2_000_000, 2_500_500]
    events = [Event("k", a, b) for a, b in itertools.pairwise(edges)]
    trace = read(tmp_path, [gpu(0, [stream(*events, timestamp_ns=999)])])
    assert trace.ops.start.tolist() == [edge // 1000 for edge in edges[:-1]]
    assert trace.ops.end[:-1].tolist() == trace.ops.start[1:].tolist()
    assert trace.ops.end[-1] == 2500


def test_derived_lines_count_nothing(tmp_path: Path) -> None:
    work = event("gemm", 0, 50, {"correlation_id": 3})
    derived = [
        Line(name, [event("derived", 0, 90)], -9)
        for name in (
            "Steps",
            "TensorFlow Ops",
            "TensorFlow Name Scope",
            "XLA Ops",
            "XLA Modules",
            "Source code",
        )
    ]
    trace = read(tmp_path, [gpu(0, [stream(work), *derived])])
    assert trace.ops.end.tolist() == [50]


def test_devices_that_did_nothing_are_a_note(tmp_path: Path) -> None:
    trace = read(tmp_path, [gpu(0, []), gpu(2, [stream(event("gemm", 0, 50))])])
    assert [device.ordinal for device in trace.devices] == [2]
    assert trace.ops.device.tolist() == [0]
    assert "visible, but without any work in this recording: GPU 0" in trace.origin.notes
    assert trace.devices[0].name == "Nvidia GPU (132 SMs)"


@pytest.mark.parametrize(
    ("name", "details", "expected"),
    [
        (
            "MemcpyH2D",
            "kind_src:pageable kind_dst:device size:512 dest:0 async:1",
            (Kind.H2D, 512, 1),
        ),
        (
            "MemcpyH2D",
            "kind_src:pinned kind_dst:device size:4096 dest:0 async:1",
            (Kind.H2D, 4096, 0),
        ),
        ("MemcpyD2H", "kind_src:device kind_dst:pageable size:8 dest:0 async:1", (Kind.D2H, 8, 1)),
        ("MemcpyD2H", "size:8 dest:4 async:1", (Kind.D2H, 8, -1)),
        ("MemcpyD2D", "kind_src:device kind_dst:device size:9 dest:0 async:1", (Kind.D2D, 9, -1)),
        ("MemcpyP2P", "kind_src:device kind_dst:device size:9 dest:1 async:1", (Kind.P2P, 9, -1)),
        (
            "MemcpyOther",
            "kind_src:managed kind_dst:managed num_bytes:77 dest:1 async:1",
            (Kind.OTHER, 77, -1),
        ),
        ("Memset", "kind:device num_bytes:64 async:1", (Kind.MEMSET, 64, -1)),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "", (Kind.COMM, -1, -1)),
        ("CudaGraphExec:12", "", (Kind.GRAPH, -1, -1)),
        ("void gemm<float>(float*)", "", (Kind.COMPUTE, -1, -1)),
    ],
)
@pytest.mark.parametrize("kept", [str, Ref])
def test_kinds_and_sizes(
    tmp_path: Path,
    name: str,
    details: str,
    expected: tuple[Kind, int, int],
    kept: type[str] | type[Ref],
) -> None:
    stat = "Memset_details" if name == "Memset" else "memcpy_details"
    stats = {"correlation_id": 5, stat: kept(details)} if details else {"correlation_id": 5}
    ops = read(tmp_path, [gpu(0, [stream(event(name, 1, 2, stats))])]).ops
    assert (ops.kind[0], ops.bytes[0], ops.pageable[0]) == expected


def test_memory_records_are_no_work(tmp_path: Path) -> None:
    said = {"memalloc_details": "kind:device num_bytes:64", "correlation_id": 2}
    trace = read(
        tmp_path, [gpu(0, [stream(event("gemm", 0, 5), event("MemoryAlloc", 5, 900, said))])]
    )
    assert trace.ops.end.tolist() == [5]


def test_flushes_of_the_profiler(tmp_path: Path) -> None:
    flush = Line("CUPTI overhead", [event("Buffer flush", 10, 30)], 99)
    trace = read(tmp_path, [gpu(0, [stream(event("gemm", 0, 5)), flush])])
    assert (trace.overheads.start.tolist(), trace.overheads.end.tolist()) == ([10], [30])


def test_copies_that_rocm_makes_with_kernels(tmp_path: Path) -> None:
    copies = [
        event("__amd_rocclr_copyBuffer.kd", 10 * k, 10 * k + 5, {"correlation_id": k})
        for k in (1, 2, 3, 4)
    ]
    calls = [
        event(
            "hipMemcpyHtoDAsync",
            1,
            2,
            {"correlation_id": 1, "memcpy_details": Ref("kind:Unknown size:0 async:1")},
        ),
        event(
            "hipMemcpyDtoHAsync",
            3,
            4,
            {"correlation_id": 2, "memcpy_details": "kind:Unknown size:96 async:1"},
        ),
        event("hipMemcpyDtoDAsync", 5, 6, {"correlation_id": 3}),
    ]
    threads = Plane("/host:CPU", [Line("Host Threads/1083", calls, 1083)])
    ops = read(tmp_path, [gpu(0, [stream(*copies, kinds="(Kernel)")], "AMD"), threads]).ops
    assert ops.kind.tolist() == [Kind.H2D, Kind.D2H, Kind.D2D, Kind.D2D]
    assert ops.bytes.tolist() == [-1, 96, -1, -1]


def test_launches_as_jax_writes_them(tmp_path: Path) -> None:
    planes = [
        gpu(0, [stream(event("gemm", 50, 60, {"correlation_id": 9}))]),
        Plane(
            "/host:CPU",
            [
                Line("python3", [event("PjitFunction(step)", 0, 90)], 4111),
                Line(
                    "Host Threads/4111",
                    [
                        event("cuLaunchKernel", 20, 30, {"correlation_id": 9}),
                        event("cuGraphLaunch (CudaGraph:5)", 32, 33, {"correlation_id": 10}),
                        event("cuMemcpyHtoDAsync_v2", 34, 35, {"correlation_id": 11}),
                        event("cuStreamSynchronize", 40, 80),
                    ],
                    4111,
                ),
                Line("Host Threads/4111/NVTX", [event("NVTX:load batch", 1, 19)], 4111 | 1 << 40),
            ],
        ),
    ]
    trace = read(tmp_path, planes)
    calls = trace.calls
    assert [trace.name(n) for n in calls.name] == [
        "cuLaunchKernel",
        "cuGraphLaunch",
        "cuMemcpyHtoDAsync",
        "cuStreamSynchronize",
    ]
    assert calls.corr.tolist() == [9, 10, 11, -1]
    assert [(thread.tid, thread.name) for thread in trace.threads] == [(4111, "python3")]
    assert set(calls.thread) == set(trace.ranges.thread) == {0}
    assert ranges(trace) == [("PjitFunction(step)", RangeKind.OP), ("load batch", RangeKind.NVTX)]
    assert trace.origin.host_calls


def test_launches_as_tensorflow_writes_them(tmp_path: Path) -> None:
    def copy(way: str, at: int, waits: bool) -> Event:
        return event(
            f"Memcpy{way}",
            at,
            at + 1,
            {"correlation_id": at, "memcpy_details": f"size:8 async:{1 - waits}"},
        )

    events = [
        event(
            "void Eigen::Kernel<float>", 10, 11, {"correlation_id": 10, "kernel_details": "regs:38"}
        ),
        copy("H2D", 20, False),
        copy("H2D", 30, True),
        copy("D2H", 40, False),
        event("Memset", 50, 51, {"correlation_id": 50}),
    ]
    trace = read(tmp_path, [gpu(0, [stream(event("k", 60, 61))]), host(*events)])
    assert [trace.name(n) for n in trace.calls.name] == [
        "cuLaunchKernel",
        "cuMemcpyHtoDAsync",
        "cuMemcpyHtoD",
        "cuMemcpyDtoHAsync",
        "cuMemsetAsync",
    ]
    assert trace.calls.corr.tolist() == [10, 20, 30, 40, 50]


def test_who_says_a_range(tmp_path: Path) -> None:
    told = {
        "IteratorGetNextOp::DoCompute": RangeKind.OP,
        "Iterator::Prefetch": RangeKind.OP,
        "model/dense/MatMul:MatMul": RangeKind.OP,
        "PjRtCApiLoadedExecutable::Execute": RangeKind.OP,
        "TSL:XlaCompile": RangeKind.COMPILE,
        "XlaCompileBackend:#module=jit_f#": RangeKind.COMPILE,
        "PjRtStreamExecutorClient::Compile": RangeKind.COMPILE,
        "$compiler.py:362 backend_compile": RangeKind.COMPILE,
        "$dataloader.py:701 __next__": RangeKind.PYTHON,
        "$builtins isinstance": RangeKind.PYTHON,
        "load a batch": RangeKind.NVTX,
    }
    events = [event(name, 10 * at, 10 * at + 5) for at, name in enumerate(told)]
    moment, apart = event("MemoryAllocation", 7, 7), event("fetch", 900, 999, {"_a": 1})
    trace = read(tmp_path, [gpu(0, []), host(*events, moment, apart)])
    found = dict(ranges(trace))
    assert found.pop("fetch") is RangeKind.OTHER
    assert list(found.values()) == list(told.values())
    assert "dataloader.py(701): __next__" in found
    assert "builtins isinstance" in found


def test_steps_of_the_host(tmp_path: Path) -> None:
    marked = [event("train", 100 * n, 100 * n + 90, {"step_num": n, "_r": 1}) for n in (0, 1, 2)]
    steps = Line("Steps", [event("0", 50, 99)], -1)
    trace = read(tmp_path, [gpu(0, [stream(event("k", 5, 6)), steps]), host(*marked)])
    assert ranges(trace) == [
        ("train 0", RangeKind.STEP),
        ("train 1", RangeKind.STEP),
        ("train 2", RangeKind.STEP),
    ]
    assert trace.ranges.thread.tolist() == [0, 0, 0]


def test_steps_of_the_device_line(tmp_path: Path) -> None:
    steps = Line(
        "Steps",
        [event(str(n), 100 * n, 100 * n + 90, {"step_name": f"{n + 7}"}) for n in (0, 1)],
        -1,
    )
    trace = read(tmp_path, [gpu(0, [stream(event("k", 5, 6)), steps]), gpu(1, [])])
    assert ranges(trace) == [("step 7", RangeKind.STEP), ("step 8", RangeKind.STEP)]
    assert trace.ranges.start.tolist() == [0, 100]
    assert trace.ranges.thread.tolist() == [-1, -1]


def test_steps_of_groups(tmp_path: Path) -> None:
    work = [
        event("k", 10 * n, 10 * n + 4, {"group_id": n // 3, "correlation_id": n + 1})
        for n in range(6)
    ]
    trace = read(tmp_path, [gpu(0, [stream(*work)])])
    assert ranges(trace) == [("step 0", RangeKind.STEP), ("step 1", RangeKind.STEP)]
    assert list(zip(trace.ranges.start.tolist(), trace.ranges.end.tolist(), strict=True)) == [
        (0, 24),
        (30, 54),
    ]


def test_what_the_profiler_lost(tmp_path: Path) -> None:
    warning = (
        "Detected GPU events dropped on node7: Profiler has collected 2097152 driver events and 10"
        " device events. 1234 events dropped because total driver(callback) events reaches max; 66"
        " events dropped because of x."
    )
    trace = read(
        tmp_path, [gpu(0, [stream(event("k", 5, 6))])], errors=["CUPTI is busy"], warnings=[warning]
    )
    assert trace.origin.dropped == 1300
    assert "message of the profiler: CUPTI is busy" in trace.origin.notes


def test_messages_that_are_no_text_are_one_line(tmp_path: Path) -> None:
    errors = ["one\ntwo\x08" + "x" * 999, "9" * 5000 + " events dropped"]
    trace = read(tmp_path, [gpu(0, [stream(event("k", 5, 6))])], errors=errors)
    said = [
        note for note in trace.origin.notes if note.startswith("message of the profiler: one two")
    ]
    assert len(said) == 1 and said[0].isprintable() and len(said[0]) < 300


def test_where_and_when(tmp_path: Path) -> None:
    about = Plane("Task Environment", stats={"profile_start_time": 1_771_595_650_217_823_548})
    trace = read(tmp_path, [gpu(0, [stream(event("k", 5, 6))]), about], hostnames=["node7"])
    assert trace.origin.wall_ns == 1_771_595_650_217_823_548
    assert trace.processes[0].host == "node7"
    assert trace.origin.dialect == "xplane"


def test_without_launches(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        [gpu(0, [stream(event("k", 5, 6, {"correlation_id": 4}))]), host(event("x", 0, 3))],
    )
    assert not trace.origin.host_calls
    assert any("launches were not recorded" in note for note in trace.origin.notes)


def test_a_recording_without_a_gpu_keeps_its_host(tmp_path: Path) -> None:
    trace = read(tmp_path, [host(event("$train.py:3 main", 0, 30))])
    assert not trace.devices
    assert ranges(trace) == [("train.py(3): main", RangeKind.PYTHON)]


def test_packed(tmp_path: Path) -> None:
    path = tmp_path / "run.bin"
    path.write_bytes(gzip.compress(space([gpu(0, [stream(event("k", 5, 6))])])))
    assert xplane.knows(path, head(path))
    assert len(xplane.read(path).ops.start) == 1


def test_more_events_than_are_decoded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastfeed.profiler.readers.xplane.planes._CHUNK", 3)
    late = Event("late", 100_000, 90_000)  # ends before it begins
    events = [event("k", n, n + 1, {"correlation_id": n + 1, "group_id": 2}) for n in range(10)]
    trace = read(tmp_path, [gpu(0, [stream(*events[:4], late, *events[4:])])])
    assert trace.ops.corr.tolist() == list(range(1, 11))
    assert trace.ops.start.tolist() == list(range(10))
    assert np.all(trace.ops.end > trace.ops.start)
    assert "1 events with impossible times were left out" in trace.origin.notes
