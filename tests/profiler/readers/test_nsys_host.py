"""The host side of exports of Nsight Systems: NVTX, waits of streams, overheads, scheduling, module
loading.
"""

from __future__ import annotations

import pytest
from helpers.profiler.nsys_databases import Export, gid

from fastfeed.profiler.model.trace import RangeKind, Trace
from fastfeed.profiler.readers.nsys import reader as nsys

pytestmark = pytest.mark.usefixtures("both_ways")

MAIN = gid(100, 100)


@pytest.fixture
def export(tmp_path) -> Export:
    made = Export(tmp_path / "run.sqlite")
    made.call(1_000, 1_100, "cudaLaunchKernel_v7000", 1)
    made.kernel(1_200, 9_000)
    return made


def ranges(trace: Trace) -> list[tuple[str, int, int, str, str, int]]:
    """Name, start, end, who said it, domain, tid (-1 of no thread)."""
    rows = trace.ranges
    return [
        (
            trace.name(rows.name[at]),
            int(rows.start[at]),
            int(rows.end[at]),
            RangeKind(int(rows.kind[at])).name,
            trace.name(rows.domain[at]),
            trace.threads[rows.thread[at]].tid if rows.thread[at] >= 0 else -1,
        )
        for at in range(len(rows.start))
    ]


def test_nvtx_texts_domains_and_threads(export):
    export.nvtx(10, None, "MPI", eventType=75, domainId=1)
    export.nvtx(11, None, None, eventType=75, domainId=2, textId=export.string("loader"))
    export.nvtx(20, 30, "pushed")
    export.nvtx(21, 29, None, textId=export.string("registered"), domainId=2)
    export.nvtx(22, 28, "", domainId=3)
    export.nvtx(40, 50, "started", eventType=60, endGlobalTid=MAIN)
    export.nvtx(41, 51, "handed over", eventType=60, endGlobalTid=gid(100, 101))
    export.nvtx(60, None, "open")
    export.nvtx(70, 70, "a mark", eventType=34)
    export.nvtx(71, None, "a category", eventType=33, category=4)
    export.nvtx(72, 73, None)
    assert ranges(nsys.read(export.done())) == [
        ("pushed", 20, 30, "NVTX", "", 100),
        ("registered", 21, 29, "NVTX", "loader", 100),
        ("", 22, 28, "NVTX", "domain 3", 100),
        ("started", 40, 50, "NVTX", "", 100),
        ("handed over", 41, 51, "NVTX", "", -1),
        ("open", 60, 9_000, "NVTX", "", 100),  # to the end of the recording
        ("", 72, 73, "NVTX", "", 100),
    ]


def test_texts_with_control_characters_and_long_ones(export):
    texts: list[str] = [
        "a\x1eb",
        "\x1d",
        "",
        "x" * 10_000,
        "\u00fc\u4e2d",
        "y, seq = ",
        "q = 1, seq = 2",
        "'\";--",
    ]
    for at, text in enumerate(texts):
        export.nvtx(10 + at, 100 - at, text)
    export.nvtx(30, 40, None, textId=4_040)  # a text that is not there
    got = [name for name, *_ in ranges(nsys.read(export.done()))]
    assert got == ["a\x1eb", "", "", "x" * 400, "\u00fc\u4e2d", "y", "q = 1, seq = 2", "'\";--", ""]


def test_the_same_domain_number_in_two_processes(export):
    export.nvtx(10, None, "ours", eventType=75, domainId=1)
    export.nvtx(10, None, "theirs", eventType=75, domainId=1, globalTid=gid(200, 200))
    export.nvtx(20, 30, "a", domainId=1)
    export.nvtx(20, 30, "b", domainId=1, globalTid=gid(200, 200))
    assert [(name, domain) for name, *_, domain, _ in ranges(nsys.read(export.done()))] == [
        ("a", "ours"),
        ("b", "theirs"),
    ]


def test_who_said_a_range(export):
    export.nvtx(5, None, "Python GIL", eventType=75, domainId=6)
    for at, (text, domain) in enumerate(
        [
            ("fastfeed:decode", 0),
            ("aten::add, seq = 12, op_id = 345, sizes = [[2, 3]]", 0),
            ("aten::mm", 0),
            ("AddBackward0, seq = 3, op_id = 4", 0),
            ("a = b", 0),
            ("Waiting for GIL", 0),
            ("Holding GIL", 0),
            ("Waiting", 6),
            ("Holding", 6),
            ("garbage collection", 0),
            ("gc.py(3): run", 0),
            ("train_step 7", 0),
        ]
    ):
        export.nvtx(10 + at, 100 - at, text, domainId=domain)
    assert [(name, kind) for name, _, _, kind, *_ in ranges(nsys.read(export.done()))] == [
        ("fastfeed:decode", "FEED"),
        ("aten::add", "OP"),
        ("aten::mm", "OP"),
        ("AddBackward0", "OP"),
        ("a = b", "NVTX"),
        ("Waiting for GIL", "GIL"),
        ("Waiting", "GIL"),
        ("garbage collection", "GC"),
        ("gc.py(3): run", "NVTX"),
        ("train_step 7", "NVTX"),
    ]


@pytest.mark.parametrize("name", ["fastfeed", "NVTX"])
def test_domains_without_ranges_name_the_package_at_fault(export, name):
    export.nvtx(10, None, name, eventType=75, domainId=1)
    export.nvtx(10, None, "NCCL", eventType=75, domainId=2)
    (note,) = nsys.read(export.done()).origin.notes
    assert f"NVTX domain {name} holds no range" in note and "nvtx<0.2.12" in note


def test_domains_that_libraries_leave_empty_need_no_note(export):
    for number, name in enumerate(
        ("cuBLAS", "CUBLAS", "cuDNN", "NCCL", "TensorRT", "a library to come"), 1
    ):
        export.nvtx(10, None, name, eventType=75, domainId=number)
    assert nsys.read(export.done()).origin.notes == ()


def test_domains_with_ranges_need_no_note(export):
    export.nvtx(10, None, "fastfeed", eventType=75, domainId=1)
    export.nvtx(20, 30, "fastfeed:wait", domainId=1)
    assert nsys.read(export.done()).origin.notes == ()


def sync(
    export: Export,
    corr: int,
    sync_type: int,
    event: int,
    sync_id: int = 0xFFFFFFFF,
    stream: int = 9,
) -> None:
    handles = {"eventId": event, "eventSyncId": sync_id}
    export.row(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        start=5_000,
        end=5_001,
        deviceId=0,
        streamId=stream,
        correlationId=corr,
        globalPid=gid(100),
        syncType=sync_type,
        **handles,
    )


def record(
    export: Export, corr: int, event: int, stream: int, sync_id: int = 0, pid: int = 100
) -> None:
    export.row(
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
        timestamp=0,
        deviceId=0,
        streamId=stream,
        correlationId=corr,
        globalPid=gid(pid),
        eventId=event,
        eventSyncId=sync_id,
    )


def waits(trace: Trace) -> list[tuple[int, int, int, int]]:
    rows = trace.waits
    assert set(rows.process.tolist()) <= {0}
    columns = (rows.corr, rows.stream, rows.on_stream, rows.on_corr)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_waits_by_the_id_of_the_recording(export):
    record(export, 10, event=5, stream=13, sync_id=71)
    record(export, 20, event=5, stream=14, sync_id=72)
    export.call(4_000, 4_001, "cudaStreamWaitEvent_v3020", 30)
    # the handle was recorded again, and this waits for the first time
    sync(export, 30, 2, event=5, sync_id=71)
    assert waits(nsys.read(export.done())) == [(30, 9, 13, 10)]


def test_waits_by_the_latest_recording_before(tmp_path):
    export = Export(tmp_path / "run.sqlite", "2022")  # no eventSyncId
    export.kernel(1_200, 9_000)
    for corr, stream in ((10, 13), (20, 14), (40, 15)):
        record(export, corr, event=5, stream=stream)
    record(export, 25, event=5, stream=16, pid=200)  # another process, the same handle
    record(export, 26, event=6, stream=17)
    for corr, event in ((30, 5), (5, 5), (50, 99)):
        export.call(4_000, 4_001, "cudaStreamWaitEvent_v3020", corr)
        sync(export, corr, 2, event)
    assert waits(nsys.read(export.done())) == [(30, 9, 14, 20), (5, 9, -1, -1), (50, 9, -1, -1)]


def test_what_a_row_waits_for_is_told_by_its_call(export):
    # syncType 2 is a wait of the host in some versions
    export.call(4_000, 4_001, "cudaStreamSynchronize_v3020", 30)
    sync(export, 30, 2, event=5)
    export.call(4_002, 4_003, "cuStreamWaitEvent_ptsz", 31)
    sync(export, 31, 3, event=5)
    # the same id, another process
    export.call(4_002, 4_003, "cudaStreamWaitEvent_v3020", 30, tid=gid(200, 200))
    assert [corr for corr, *_ in waits(nsys.read(export.done()))] == [31]


@pytest.mark.parametrize(("age", "kept"), [("2022", [100, 200]), ("2026", [100, 200, 300, 400])])
def test_overheads_by_name_until_they_have_a_type(tmp_path, age, kept):
    export = Export(tmp_path / "run.sqlite", age)
    export.kernel(1_200, 9_000)
    names = (
        "CUDA profiling data flush overhead",
        "CUDA profiling stop overhead",
        "CUPTI: Instrumentation",
        "Unknown",
    )
    for at, name in enumerate(names):
        export.row(
            "PROFILER_OVERHEAD",
            start=100 * (at + 1),
            end=100 * (at + 1) + 50,
            globalTid=MAIN,
            nameId=export.string(name),
            overheadType=at,
        )
    trace = nsys.read(export.done())
    assert trace.overheads.start.tolist() == kept and set(trace.overheads.process.tolist()) == {0}


def test_loading_of_modules_is_not_the_profilers_doing(export):
    for at, name in enumerate(
        ("Runtime Triggered Module Loading", "Lazy Function Loading", "Command Buffer Full")
    ):
        export.row(
            "CUPTI_ACTIVITY_KIND_OVERHEAD",
            start=10 + at,
            end=50 - at,
            globalTid=MAIN,
            overheadType=6 + at,
            nameId=export.string(name),
        )
    trace = nsys.read(export.done())
    assert [kind for _, _, _, kind, *_ in ranges(trace)] == ["COMPILE", "COMPILE", "OTHER"]
    assert not len(trace.overheads.start)


def test_ready_threads_without_a_core(export):
    other = gid(300, 300)
    events = ((10, 1, 0), (20, 0, 1), (30, 1, 0), (40, 0, 2), (50, 1, 0), (60, 0, 1))
    for thread in (MAIN, other):
        for start, came, state in events:  # the last has no end: the recording ended first
            export.row(
                "SCHED_EVENTS",
                start=start,
                cpu=0,
                isSchedIn=came,
                globalTid=thread,
                threadState=state,
            )
    trace = nsys.read(export.done())
    # the other process has neither calls nor ranges, and does not count here
    assert (trace.sched.start.tolist(), trace.sched.end.tolist(), trace.sched.thread.tolist()) == (
        [20],
        [30],
        [0],
    )


def test_states_are_named_by_the_file_where_it_does(export):
    for key, name in ((1, "Interruptible"), (7, "Running")):
        export.row("ENUM_SAMPLING_THREAD_STATE", id=key, name=name, label=name)
    for start, came, state in ((10, 0, 1), (20, 1, 0), (30, 0, 7), (45, 1, 0)):
        export.row(
            "SCHED_EVENTS", start=start, cpu=0, isSchedIn=came, globalTid=MAIN, threadState=state
        )
    trace = nsys.read(export.done())
    assert (trace.sched.start.tolist(), trace.sched.end.tolist()) == ([30], [45])
