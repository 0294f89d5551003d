"""Syncs of a thread with idle devices, explained by the threads that feed the devices."""

from __future__ import annotations

import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import Result
from fastfeed.profiler.model.trace import RangeKind

MS = 1_000_000
GPUS = 8
MAIN, LAUNCHER, RUNTIME = 0, 1, 2


def jax(
    inside: str = "BufferSequencingEvent::Execute",
    other_end: int = 54 * MS,
    kind: RangeKind = RangeKind.OP,
):
    """8 GPUs work for 10 ms, idle for 44 as the main thread blocks until ready, and work again."""
    builder = TraceBuilder()
    for number in range(4):
        builder.range(number * 10, number * 10 + 5, "train.py:1 main", thread=MAIN)
    builder.range(100, 70 * MS, "block_until_ready", thread=MAIN)
    for gpu in range(GPUS):
        builder.op(0, 10 * MS, (-20, -10), device=gpu, thread=LAUNCHER, stream=gpu)
        builder.op(
            54 * MS, 70 * MS, (54 * MS - 20, 54 * MS - 10), device=gpu, thread=LAUNCHER, stream=gpu
        )
    builder.range(11 * MS, other_end, inside, kind, thread=RUNTIME)
    return builder


def causes(builder: TraceBuilder, devices: int = GPUS) -> list[dict[Cause, int]]:
    result: Result = analyze([builder.trace(threads=3, devices=devices)])
    for device in result.devices:
        assert sum(device.whole.causes.values()) == device.whole.budget.idle
    return [dict(device.whole.causes) for device in result.devices]


def test_no_synchronization_while_all_devices_idle_and_another_thread_is_at_work():
    for device in causes(jax()):
        assert device.get(Cause.SYNC, 0) == MS, (
            "until the other thread began, nothing else is known"
        )
        assert device[Cause.FRAMEWORK] == 43 * MS - 20


def test_what_no_thread_explains_stays_synchronization():
    for device in causes(jax(other_end=11 * MS + 1)):
        assert device[Cause.SYNC] == 44 * MS - 20 - 1


@pytest.mark.parametrize("inside", ["Iterator::Prefetch", "decode"])
def test_threads_that_feed_no_device_are_not_asked(inside: str):
    for kind in (RangeKind.OP, RangeKind.NVTX):
        assert Cause.FRAMEWORK not in causes(jax(inside, kind=kind))[0]


def test_waiting_for_another_device_that_works_is_synchronization():
    builder = jax()
    builder.op(10 * MS, 54 * MS, (-20, -10), device=GPUS, thread=LAUNCHER, stream=77)
    assert causes(builder, GPUS + 1)[0][Cause.SYNC] == 44 * MS - 20


def test_the_return_from_a_synchronization_is_part_of_it():
    """Half a millisecond from the end of the work to the next launch, on the only thread."""
    builder = TraceBuilder()
    for n in range(20):
        at = n * 10 * MS
        builder.op(at, at + 9 * MS, (at - 20, at - 10))
        builder.call(at, at + 9 * MS + 500_000, "cudaStreamSynchronize")
        builder.range(
            at, at + 10 * MS, "BufferSequencingEvent::Execute", RangeKind.OP, thread=RUNTIME
        )
    assert causes(builder, 1)[0][Cause.SYNC] == 19 * 500_000


def test_a_launching_thread_that_allocates_is_asked_first():
    builder = jax()
    builder.call(20 * MS, 40 * MS, "cuMemAlloc", thread=RUNTIME)
    first, *_ = causes(builder)
    assert first[Cause.ALLOC] == 20 * MS
    assert first[Cause.FRAMEWORK] == 23 * MS - 20
