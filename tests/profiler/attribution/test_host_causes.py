"""Why the host was late: priority, the driver's thread, parked threads, the profiler itself."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.attribution.host_causes import host_causes, in_time_order
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import RangeKind, Sched

LATE = (1_000, 2_000)
LOADER = "DataLoader.__next__"


def causes(
    builder: TraceBuilder, thread: int = 0, overhead: tuple[int, int] | None = None
) -> list[tuple[Cause, int, int, int]]:
    """(cause, start, end, thread) of each piece of a gap of which LATE is the late part."""
    host = Host(builder.trace())
    profiling = np.array([overhead] if overhead else np.empty((0, 2)), np.int64)
    pieces = in_time_order(
        host_causes(host, np.array([LATE]), np.array([thread]), np.array([0]), profiling)
    )
    result = [
        (Cause(int(cause)), int(start), int(end), int(of))
        for cause, (start, end), of in zip(pieces.cause, pieces.span, pieces.thread, strict=True)
        if end > start
    ]
    assert sum(end - start for _, start, end, _ in result) == LATE[1] - LATE[0]
    return result


def test_without_records_it_is_unknown():
    assert causes(TraceBuilder()) == [(Cause.HOST_UNKNOWN, *LATE, 0)]


def test_a_thread_that_is_unknown_is_asked_as_the_driver():
    builder = TraceBuilder()
    builder.range(0, 9_000, "train.py(1): main", thread=1)
    assert causes(builder, thread=-1) == [(Cause.PYTHON, *LATE, 1)]


@pytest.mark.parametrize(
    ("lasts", "cause"), [(500, Cause.LAUNCH), (99_000, Cause.LAUNCH), (200_000, Cause.MODULE_LOAD)]
)
def test_a_query_sets_something_up_where_it_takes_long(lasts: int, cause: Cause):
    builder = TraceBuilder()
    builder.call(
        LATE[0] - 200, LATE[0] - 200 + lasts, "cudaOccupancyMaxActiveBlocksPerMultiprocessor"
    )
    inside = min(LATE[1], LATE[0] - 200 + lasts)
    assert causes(builder)[0] == (cause, LATE[0], inside, 0)


def test_the_reason_outweighs_what_is_around_it():
    builder = TraceBuilder()
    builder.range(0, 9_000, "train.py(1): main")
    builder.range(1_100, 1_900, "aten::copy_", RangeKind.OP)
    builder.call(1_200, 1_300, "cudaMalloc")
    builder.call(1_300, 1_400, "cudaStreamSynchronize")
    builder.call(1_400, 1_500, "cudaLaunchKernel")
    builder.range(1_600, 1_700, LOADER, RangeKind.NVTX)
    assert causes(builder) == [
        (Cause.PYTHON, 1_000, 1_100, 0),
        (Cause.FRAMEWORK, 1_100, 1_200, 0),
        (Cause.ALLOC, 1_200, 1_300, 0),
        (Cause.SYNC, 1_300, 1_400, 0),
        (Cause.LAUNCH, 1_400, 1_500, 0),
        (Cause.FRAMEWORK, 1_500, 1_600, 0),
        (Cause.INPUT, 1_600, 1_700, 0),
        (Cause.FRAMEWORK, 1_700, 1_900, 0),
        (Cause.PYTHON, 1_900, 2_000, 0),
    ]


def test_waiting_for_input_wins_over_all_that_happens_in_it():
    builder = TraceBuilder()
    builder.range(900, 1_500, LOADER, RangeKind.NVTX)
    builder.call(1_100, 1_200, "cudaHostAlloc")
    builder.range(1_200, 1_300, "gc", RangeKind.GC)
    assert causes(builder)[0] == (Cause.INPUT, 1_000, 1_500, 0)


@pytest.mark.parametrize("parked", (None, "threading.py(300): wait"))
def test_the_driver_is_asked_where_the_launching_thread_has_nothing_to_do(parked: str | None):
    """A thread of autograd, or of a pool, waits for work; the training thread waits for a batch."""
    builder = TraceBuilder()
    builder.range(0, 1_500, LOADER, RangeKind.NVTX, thread=0)
    if parked:
        builder.range(0, 9_000, parked, thread=1)
    assert causes(builder, thread=1)[0] == (Cause.INPUT, 1_000, 1_500, 0)


def test_the_driver_is_not_asked_about_what_the_launching_thread_explains():
    builder = TraceBuilder()
    builder.range(0, 9_000, LOADER, RangeKind.NVTX, thread=0)
    builder.range(1_200, 1_500, "aten::conv2d", RangeKind.OP, thread=1)
    assert causes(builder, thread=1) == [
        (Cause.INPUT, 1_000, 1_200, 0),
        (Cause.FRAMEWORK, 1_200, 1_500, 1),
        (Cause.INPUT, 1_500, 2_000, 0),
    ]


def test_what_lies_outside_of_the_late_part_is_not_looked_at():
    builder = TraceBuilder()
    builder.range(0, 1_000, LOADER, RangeKind.NVTX)
    builder.range(2_000, 9_000, LOADER, RangeKind.NVTX)
    assert causes(builder) == [(Cause.HOST_UNKNOWN, *LATE, 0)]


def test_the_profiler_itself_comes_first():
    builder = TraceBuilder()
    builder.range(0, 9_000, LOADER, RangeKind.NVTX)
    assert causes(builder, overhead=(1_200, 1_300))[1] == (Cause.PROFILER, 1_200, 1_300, 0)


def test_ready_and_without_a_core():
    builder = TraceBuilder()
    builder.range(0, 9_000, "aten::conv2d", RangeKind.OP)
    builder.add(Sched, start=1_200, end=1_300, thread=0)
    assert causes(builder)[1] == (Cause.CPU_CONTENTION, 1_200, 1_300, 0)


def test_many_gaps_of_many_threads_are_told_apart():
    """Each thread is late in gaps of its own, in turns, and is in another call meanwhile."""
    builder = TraceBuilder()
    apis = ("cudaMalloc", "cudaStreamSynchronize", "cudaLaunchKernel")
    late = np.array([(n * 100, n * 100 + 50) for n in range(30)])
    for n in range(30):
        builder.call(n * 100, n * 100 + 50, apis[n % 3], thread=n % 3)
    pieces = in_time_order(
        host_causes(
            Host(builder.trace(threads=3)),
            late,
            np.arange(30) % 3,
            np.zeros(30, int),
            np.empty((0, 2), int),
        )
    )
    nonempty = pieces.span[:, 1] > pieces.span[:, 0]
    assert pieces.span[nonempty].tolist() == late.tolist()
    assert pieces.cause[nonempty].tolist() == [Cause.ALLOC, Cause.SYNC, Cause.LAUNCH] * 10
