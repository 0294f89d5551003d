"""One run, exported by Nsight Systems of every age: the same trace, but for what an age does not
record.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.profiler.nsys_databases import AGES, ORDER, Export, columns, gid, million

from fastfeed.profiler.model.trace import Kind, RangeKind, Trace
from fastfeed.profiler.readers.nsys import database
from fastfeed.profiler.readers.nsys import reader as nsys

pytestmark = pytest.mark.usefixtures("both_ways")


def story(path: Path, age: str) -> Path:
    export = Export(path, age)
    main = gid(100, 100)
    export.call(1_000, 1_100, "cudaLaunchKernel_v7000", 1)
    export.kernel(1_200, 2_000, "gemm<float>", 1)
    export.call(2_000, 2_100, "cudaMemcpyAsync_v3020_ptsz", 2)
    export.memcpy(2_200, 2_300, 1, 0, 2)
    export.call(2_400, 2_500, "cudaMemcpyAsync_v3020", 3)
    export.memcpy(2_600, 2_700, 2, 2, 1, correlationId=3)
    export.call(2_800, 2_900, "cudaMemsetAsync_v3020", 4)
    export.row(
        "CUPTI_ACTIVITY_KIND_MEMSET",
        start=3_000,
        end=3_100,
        deviceId=0,
        streamId=7,
        correlationId=4,
        globalPid=gid(100),
        bytes=64,
    )
    export.call(3_000, 3_050, "cudaGraphLaunch_v10000", 5)
    export.row(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        start=3_200,
        end=3_900,
        deviceId=0,
        streamId=9,
        correlationId=5,
        globalPid=gid(100),
        graphId=3,
    )
    export.call(4_000, 4_100, "cuLaunchKernelEx", 6, eventClass=1)
    export.kernel(4_200, 4_300, "ncclDevKernel_AllReduce_Sum_f32", 6, streamId=13)
    # the same with its stack
    export.call(4_000, 4_100, "cuLaunchKernelEx", 6, eventClass=67, callchainId=8)
    export.nvtx(900, 5_000, "step 1")
    export.nvtx(950, 990, None, textId=export.string("fastfeed:wait"))
    export.row(
        "OSRT_API",
        start=960,
        end=980,
        eventClass=27,
        globalTid=main,
        nameId=export.string("pthread_cond_wait"),
    )
    export.row(
        "PROFILER_OVERHEAD",
        start=5_100,
        end=5_200,
        globalTid=main,
        overheadType=3,
        nameId=export.string("CUDA profiling data flush overhead"),
    )
    state = {0: 1, 1: 0}
    for start, came in ((910, 0), (930, 1), (940, 0), (945, 1)):
        # the first time its core was taken away, the second time it slept
        run = state[came] if start < 935 else 2
        export.row(
            "SCHED_EVENTS", start=start, cpu=1, isSchedIn=came, globalTid=main, threadState=run
        )
    export.row("TARGET_INFO_GPU", id=0, deviceId=0, name="NVIDIA H200", uuid="aa-bb", cuDevice=0)
    export.row("TARGET_INFO_SESSION_START_TIME", utcEpochNs=10**18, systemClockNs=77)
    export.row(
        "META_DATA_EXPORT" if ORDER[age] >= ORDER["2024"] else "EXPORT_META_DATA",
        name="EXPORT_PRODUCT_VERSION",
        value=f"{age}.1",
    )
    export.row("PROCESSES", globalPid=gid(100), pid=100, name="python")
    export.row("ThreadNames", nameId=export.string("before"), globalTid=main)
    export.row("ThreadNames", nameId=export.string("trainer"), globalTid=main)
    return export.done()


def rows(trace: Trace) -> list[tuple[object, ...]]:
    ops = trace.ops
    return sorted(
        (
            int(ops.start[at]),
            int(ops.end[at]),
            Kind(int(ops.kind[at])).name,
            trace.name(ops.name[at]),
            int(ops.stream[at]),
            int(ops.corr[at]),
            int(ops.bytes[at]),
            int(ops.pageable[at]),
        )
        for at in range(len(ops.start))
    )


@pytest.mark.parametrize("age", AGES)
def test_every_age_tells_the_same_run(tmp_path, age):
    trace = nsys.read(story(tmp_path / "run.sqlite", age))
    assert rows(trace) == [
        (1_200, 2_000, "COMPUTE", "gemm<float>", 7, 1, -1, -1),
        (2_200, 2_300, "H2D", "Memcpy HtoD", 7, 2, 4096, 1),
        (2_600, 2_700, "D2H", "Memcpy DtoH", 7, 3, 4096, 0),
        (3_000, 3_100, "MEMSET", "Memset", 7, 4, 64, -1),
        (3_200, 3_900, "GRAPH", "CUDA graph 3", 9, 5, -1, -1),
        (4_200, 4_300, "COMM", "ncclDevKernel_AllReduce_Sum_f32", 13, 6, -1, -1),
    ]
    called = [trace.name(name) for name in trace.calls.name]
    assert called == [
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
        "cudaMemcpyAsync",
        "cudaMemsetAsync",
        "cudaGraphLaunch",
        "cuLaunchKernelEx",
    ]
    assert set(trace.ops.process.tolist()) == {0} and set(trace.calls.thread.tolist()) == {0}
    assert [(one.pid, one.name) for one in trace.processes] == [(100, "python")]
    assert [(one.tid, one.name) for one in trace.threads] == [(100, "trainer")]
    assert [(one.ordinal, one.name, one.uuid) for one in trace.devices] == [
        (0, "NVIDIA H200", "" if ORDER[age] < ORDER["2022"] else "aa-bb")
    ]
    spans = list(
        zip(
            trace.ranges.start.tolist(),
            trace.ranges.end.tolist(),
            trace.ranges.kind.tolist(),
            strict=True,
        )
    )
    assert spans == [
        (900, 5_000, RangeKind.NVTX),
        (950, 990, RangeKind.FEED),
        (960, 980, RangeKind.SYSTEM),
    ]
    assert (trace.overheads.start.tolist(), trace.overheads.end.tolist()) == ([5_100], [5_200])
    taken = [(910, 930)] if ORDER[age] >= ORDER["2024"] else []
    assert list(zip(trace.sched.start.tolist(), trace.sched.end.tolist(), strict=True)) == taken
    assert (trace.origin.wall_ns, trace.origin.version, trace.origin.host_calls) == (
        10**18,
        f"{age}.1",
        True,
    )


@pytest.mark.parametrize("age", AGES)
def test_tables_that_are_there_and_empty_say_nothing(tmp_path, age):
    export = Export(tmp_path / "run.sqlite", age)
    export.kernel(1_000, 2_000)
    for table in (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "NVTX_EVENTS",
        "OSRT_API",
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
        "SCHED_EVENTS",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        "PROFILER_OVERHEAD",
        "CUPTI_ACTIVITY_KIND_OVERHEAD",
    ):
        export.table(table)
    trace = nsys.read(export.done())
    assert len(trace.ops.start) == 1 and not trace.origin.host_calls
    assert not any(
        map(len, (trace.calls.start, trace.ranges.start, trace.waits.corr, trace.sched.start))
    )


def test_a_kernel_table_of_two_columns_is_enough(tmp_path):
    export = Export(tmp_path / "run.sqlite")
    export.db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER)")
    export.db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20)")
    trace = nsys.read(export.done())
    assert trace.ops.start.tolist() == [10] and trace.ops.corr.tolist() == [-1]
    assert trace.ops.process.tolist() == [0] and trace.ops.device.tolist() == [0]


def test_more_rows_than_one_query_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "_ROWS_PER_QUERY", 2_000)
    monkeypatch.setattr(database, "_IDS_PER_QUERY", 50)
    trace = nsys.read(million(tmp_path / "big.sqlite", 4_500, kernels=120))
    assert len(trace.ops.start) == len(trace.calls.start) == 4_500
    assert np.array_equal(trace.ops.corr, trace.calls.corr) and np.array_equal(
        trace.ops.corr, np.arange(1, 4_501)
    )
    assert (trace.ops.start - trace.calls.start == 20_000).all()
    assert len(set(trace.names)) == len(trace.names) == 121


def test_the_ages_differ():
    assert "globalPid" not in columns("CUPTI_ACTIVITY_KIND_KERNEL", "bare")
    assert "eventSyncId" in columns("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "2026")
    assert "uuid" not in columns("TARGET_INFO_GPU", "2020")
