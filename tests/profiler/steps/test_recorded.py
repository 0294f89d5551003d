"""The recorded time: from the mark of the first step on, if the device was recorded from there."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from helpers.profiler.even_steps import PERIOD_NS, even_steps
from helpers.profiler.handmade import TraceBuilder
from helpers.profiler.lost_records import without_ranges

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import DeviceResult
from fastfeed.profiler.model.trace import RangeKind

US, MS = 1_000, 1_000_000


def device_of(builder: TraceBuilder) -> DeviceResult:
    (device,) = analyze([builder.trace()]).devices
    return device


def marked_run(
    *steps: tuple[int, int], name: str = "ProfilerStep#{}", ops: int = 4
) -> TraceBuilder:
    """Steps (start, end) with 10 ms in a loader, and then kernels back to back to their end."""
    builder = TraceBuilder()
    for number, (start, end) in enumerate(steps):
        builder.range(start, end, name.format(number), RangeKind.STEP)
        builder.range(start, start + 10 * MS, "DataLoader.__next__", RangeKind.NVTX)
        edges = np.linspace(start + 10 * MS, end, ops + 1).astype(int).tolist()
        for at, until in pairwise(edges):
            builder.op(at, until, (at - 5 * US, at) if at > edges[0] else (at - 1, at))
    return builder


@pytest.mark.parametrize("count", (1, 2, 3))
@pytest.mark.parametrize("pause", (0, 10 * US, 40 * US, 120 * US))
@pytest.mark.parametrize("length", (12 * MS, 30 * MS))
def test_each_step_of_a_short_schedule_counts(count: int, pause: int, length: int):
    """PyTorch's profiler takes up to 120 us between the mark of one step and that of the next."""
    starts = [number * (length + pause) for number in range(count)]
    device = device_of(marked_run(*((start, start + length) for start in starts)))
    assert device.steps.steady.tolist() == [True] * count
    window = count * length + (count - 1) * pause
    assert device.judged.budget.window == window
    assert device.share.value == pytest.approx(count * 10 * MS / window, abs=1e-4)
    assert (
        sum(device.judged.causes.values())
        == device.judged.budget.idle
        == count * 10 * MS + (count - 1) * pause
    )


def test_the_host_may_wait_at_the_end_of_the_last_step():
    """No operation follows the last wait if the next batch is fetched at the end of a step."""
    builder = TraceBuilder()
    for number in range(3):
        at = number * 40 * MS
        builder.range(at, at + 40 * MS, f"ProfilerStep#{number}", RangeKind.STEP)
        builder.op(at + 1 * MS, at + 30 * MS, (at, at + 1 * MS))
        builder.range(at + 30 * MS, at + 40 * MS, "next_batch", RangeKind.NVTX)
    device = device_of(builder)
    assert device.steps.steady.all()
    assert device.judged.causes[Cause.INPUT] == 30 * MS
    assert device.judged.budget.window == 120 * MS
    assert sum(device.judged.causes.values()) == device.judged.budget.idle
    (last,) = [gap for gap in device.worst if gap.end == 120 * MS]
    assert last.next_op == ""


def test_what_precedes_an_operation_without_a_launch_is_not_known():
    """The GPU may have worked before, for launches that precede the recording."""
    builder = marked_run((0, 30 * MS), (30 * MS, 60 * MS), (60 * MS, 90 * MS))
    builder.op(5 * MS, 6 * MS)
    device = device_of(builder)
    assert device.first == 5 * MS
    assert device.steps.steady.tolist() == [False, True, True]


def test_launches_before_the_first_operation_show_that_its_beginning_is_lost():
    builder = marked_run((0, 30 * MS), (30 * MS, 60 * MS), (60 * MS, 90 * MS))
    for at in (1 * MS, 2 * MS, 3 * MS):
        builder.call(at, at + 5 * US, "cudaLaunchKernel")
    device = device_of(builder)
    assert device.first == 10 * MS
    assert device.steps.steady.tolist() == [False, True, True]


def test_a_step_with_fewer_launches_than_usual_is_not_recorded_from_its_mark():
    device = analyze([even_steps(8, 0.3, lacks=0.6)]).devices[0]
    assert device.first > 0.6 * PERIOD_NS
    assert not device.steps.steady[0]
    assert device.share.value == pytest.approx(0.3, abs=0.001)


def test_steps_before_the_one_that_works_first_are_not_known():
    """As where annotations are recorded from the start of a program, and its GPU from step 2 on."""
    early = [(number * 30 * MS, (number + 1) * 30 * MS) for number in range(6)]
    builder = marked_run(*early[2:])
    for number, (start, end) in enumerate(early[:2]):
        builder.range(start, end, f"ProfilerStep#{number - 2}", RangeKind.STEP)
    device = device_of(builder)
    assert device.first == 60 * MS
    assert device.steps.steady.tolist() == [False, False, True, True, True, True]


def test_the_last_step_ends_where_marks_continue_without_operations():
    """The device was recorded for less time than the host, and stopped within the third step."""
    builder = marked_run((0, 30 * MS), (30 * MS, 60 * MS), (60 * MS, 80 * MS))
    builder.range(80 * MS, 120 * MS, "ProfilerStep#3", RangeKind.STEP)
    assert device_of(builder).last == 80 * MS


@pytest.mark.parametrize("kind", (RangeKind.STEP, RangeKind.NVTX))
def test_annotations_of_whole_steps_are_known_from_their_mark_too(kind: RangeKind):
    device = analyze([even_steps(4, 0.3, mark="train_step {}", kind=kind)]).devices[0]
    assert device.steps.steady.all()
    assert device.first == 0


def test_without_marks_the_recording_begins_with_the_first_operation():
    trace = without_ranges(even_steps(4, 0.3), *(f"ProfilerStep#{number}" for number in range(4)))
    assert analyze([trace]).devices[0].first > 0.29 * PERIOD_NS
