"""The launch call in a gap, and the time from its return to the op's start: what took it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.attribution.attribution import attribute_device, producers
from fastfeed.profiler.attribution.host import Host
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.trace import Kind, Waits

US, MS = 1_000, 1_000_000


def causes(builder: TraceBuilder, devices: int = 1) -> dict[Cause, int]:
    """Nanoseconds of each cause of the idle time of device 0."""
    trace = builder.trace(devices=devices)
    slices = attribute_device(Host(trace), 0).slices
    totals: dict[Cause, int] = {}
    for cause, start, end in zip(slices.cause, slices.start, slices.end, strict=True):
        totals[Cause(int(cause))] = totals.get(Cause(int(cause)), 0) + int(end - start)
    return totals


def launched(count: int = 20, call: int = 5 * US) -> TraceBuilder:
    """Kernels of 1 ms back to back, each launched in time."""
    builder = TraceBuilder()
    for n in range(count):
        builder.op(n * MS, (n + 1) * MS, (n * MS - 50 * US, n * MS - 50 * US + call))
    return builder


def gap(builder: TraceBuilder, begin: int, length: int, **more: object) -> dict[Cause, int]:
    """One more op after a gap in which nothing happened but its call."""
    builder.op(begin + length, begin + length + MS, (begin, begin + length), **more)  # type: ignore[arg-type]
    return causes(builder)


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({}, Cause.LAUNCH),
        ({"name": "never before"}, Cause.MODULE_LOAD),
        (
            {"api": "cudaMemcpyAsync", "kind": Kind.H2D, "pageable": 1, "bytes": 9},
            Cause.H2D_STAGING,
        ),
        ({"api": "cudaMemcpy", "kind": Kind.H2D, "pageable": 1, "bytes": 9}, Cause.H2D_STAGING),
        ({"api": "cudaMemcpy", "kind": Kind.H2D, "pageable": 0, "bytes": 9}, Cause.COPY),
        ({"api": "cudaMemcpy", "kind": Kind.D2H, "pageable": 1, "bytes": 9}, Cause.COPY),
        ({"api": "cudaGraphLaunch", "kind": Kind.GRAPH}, Cause.LAUNCH),
    ],
)
def test_what_the_call_did(more: dict[str, object], cause: Cause):
    assert gap(launched(), 20 * MS, 2 * MS, **more) == {cause: 2 * MS}


def test_a_long_call_that_began_while_the_gpu_was_busy_waited_for_a_place_in_the_queue():
    builder = launched()
    builder.op(21 * MS, 22 * MS, (19 * MS + 500 * US, 21 * MS))
    assert causes(builder) == {Cause.QUEUE_FULL: MS}


def test_a_call_that_allocates_within_allocates():
    builder = launched()
    builder.call(20 * MS, 21 * MS + 500 * US, "cudaMalloc")
    assert gap(builder, 20 * MS, 2 * MS) == {Cause.ALLOC: 2 * MS}


def test_a_few_microseconds_are_latency_and_more_is_held():
    builder = launched()
    # launched in time, 8 us late: nothing to see
    builder.op(20 * MS + 8 * US, 21 * MS, (19 * MS, 19 * MS + 5 * US))
    # 60 us: held back, the reason is not recorded
    builder.op(21 * MS + 60 * US, 22 * MS, (20 * MS, 20 * MS + 5 * US))
    assert causes(builder) == {Cause.LAUNCH_LATENCY: 8 * US, Cause.GPU_SHARED: 60 * US}


def _held(**more: object) -> TraceBuilder:
    """Work that was launched 0.5 ms before the GPU became idle, and starts 2 ms after."""
    builder = launched()
    builder.op(22 * MS, 23 * MS, (19 * MS + 500 * US, 19 * MS + 510 * US), **more)  # type: ignore[arg-type]
    return builder


def test_one_stream_cannot_wait_for_another():
    assert causes(_held()) == {Cause.GPU_SHARED: 2 * MS}


def test_the_first_of_its_kind_is_loaded():
    assert causes(_held(name="never before")) == {Cause.MODULE_LOAD: 2 * MS}


@pytest.mark.parametrize(
    "api", ["cudaLaunchHostFunc", "cudaStreamAddCallback", "cuStreamWaitValue32"]
)
def test_one_stream_can_wait_for_the_host(api: str):
    builder = _held()
    builder.call(19 * MS, 19 * MS + 5 * US, api)
    assert causes(builder) == {Cause.DEPENDENCY: 2 * MS}


def test_nodes_of_a_graph_can_wait():
    assert causes(_held(api="cudaGraphLaunch", kind=Kind.GRAPH)) == {Cause.DEPENDENCY: 2 * MS}


def test_of_several_streams_one_may_wait_without_a_record_of_it():
    assert causes(_held(stream=8)) == {Cause.DEPENDENCY: 2 * MS}


@pytest.mark.parametrize(
    ("stream", "cause"), [(7, Cause.GPU_SHARED), (8, Cause.DEPENDENCY), (-1, Cause.DEPENDENCY)]
)
def test_the_stream_that_was_told_to_wait_waits(stream: int, cause: Cause):
    builder = _held(stream=8)
    wait = builder.call(19 * MS, 19 * MS + 5 * US, "cudaStreamWaitEvent")
    builder.add(Waits, corr=wait, process=0, stream=stream, on_stream=-1, on_corr=-1)
    assert causes(builder) == {cause: 2 * MS}


def test_a_process_with_two_devices_may_wait_for_the_other():
    builder = _held()
    builder.op(0, MS, (-9 * US, -5 * US), device=1)
    assert causes(builder, devices=2) == {Cause.DEPENDENCY: 2 * MS}


def _waits_for_device_1(delay: int) -> TraceBuilder:
    """In each of 10 rounds device 0 waits for work of device 1, recorded once it is idle."""
    builder = TraceBuilder()
    for n in range(10):
        at = n * 10 * MS
        builder.op(at, at + 5 * MS, (at - 9 * US, at - 5 * US), stream=1)
        builder.op(at + 4 * MS, at + 5 * MS + delay, (at - 4 * US, at - 2 * US), stream=2, device=1)
        recorded = builder.call(at + 1 * US, at + 2 * US, "cudaEventRecord")
        wait = builder.call(at + 5 * MS + US, at + 5 * MS + 2 * US, "cudaStreamWaitEvent")
        builder.add(Waits, corr=wait, process=0, stream=1, on_stream=2, on_corr=recorded)
        builder.op(
            at + 5 * MS + delay,
            at + 10 * MS,
            (at + 5 * MS + 3 * US, at + 5 * MS + 6 * US),
            stream=1,
        )
    return builder


def test_what_always_waits_for_another_device_is_not_called_latency():
    """The ninth tenth of all queues is then a wait, too: what is usual cannot be the measure."""
    assert causes(_waits_for_device_1(MS), devices=2)[Cause.PEER] == 10 * (MS - 6 * US)


def test_what_is_soon_over_is_latency_even_if_something_was_waited_for():
    assert Cause.PEER not in causes(_waits_for_device_1(20 * US), devices=2)


def test_the_producer_is_the_last_op_launched_on_that_stream_before_the_recording():
    builder = TraceBuilder()
    builder.op(0, 10, (-90, -89), stream=2)  # 0
    builder.op(10, 50, (-80, -79), stream=2)  # 1: recorded behind this
    recorded = builder.call(-75, -74, "cudaEventRecord")
    builder.op(50, 60, (-70, -69), stream=2)  # 2: launched after it
    builder.op(0, 5, (-68, -67), stream=3)  # 3
    wait = builder.call(-60, -59, "cudaStreamWaitEvent")
    builder.op(60, 90, (-50, -49), stream=1)  # 4: waits
    builder.op(60, 90, (-65, -64), stream=1)  # 5: launched before it was told to wait
    builder.op(60, 90, (-50, -49), stream=4)  # 6: another stream
    builder.add(Waits, corr=wait, process=0, stream=1, on_stream=2, on_corr=recorded)
    # recorded on an unknown stream
    builder.add(Waits, corr=wait, process=0, stream=3, on_stream=-1, on_corr=-1)
    host = Host(builder.trace())
    assert producers(host, np.array([4, 5, 6, 3])).tolist() == [1, -1, -1, -1]


def test_of_several_waits_the_latest_before_the_launch():
    builder = TraceBuilder()
    for stream in (2, 3):
        builder.op(0, 10, (-90, -89), stream=stream)
        wait = builder.call(-70 + stream, -70 + stream, "cudaStreamWaitEvent")
        builder.add(Waits, corr=wait, process=0, stream=1, on_stream=stream, on_corr=-1)
    builder.op(20, 30, (-50, -49), stream=1)
    assert producers(Host(builder.trace()), np.array([2])).tolist() == [1]


def test_nothing_is_waited_for_without_waits():
    builder = launched(3)
    assert producers(Host(builder.trace()), np.array([0, 1])).tolist() == [-1, -1]


def test_a_trace_is_freed_with_its_analysis():
    """At once: a collection would come late, as it does not see how large arrays are."""
    trace = launched().trace()
    host = Host(trace)
    attribute_device(host, 0)
    ended = weakref.ref(host)
    gc.disable()
    try:
        del host
        assert ended() is None
    finally:
        gc.enable()
