"""A gap: which op ended it, and where late ends and queued begins."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.attribution.gaps import Gaps, busy_sets, find_gaps, op_edges
from fastfeed.profiler.attribution.launches import launch_calls
from fastfeed.profiler.model.trace import Overheads


def gaps(builder: TraceBuilder) -> Gaps:
    trace = builder.trace()
    edges = op_edges(trace, 0)
    return find_gaps(trace, 0, busy_sets(trace, 0, edges), edges, launch_calls(trace))


def parts(result: Gaps, row: int = 0) -> tuple[int, int, int, int]:
    return (
        int(result.start[row]),
        int(result.late_end[row]),
        int(result.call_end[row]),
        int(result.end[row]),
    )


@pytest.mark.parametrize(
    ("call", "split"),
    [
        ((130, 150), (100, 130, 150, 200)),
        ((10, 30), (100, 100, 100, 200)),  # launched before the gap: all of it is queued
        ((90, 150), (100, 100, 150, 200)),
        ((130, 260), (100, 130, 200, 200)),  # returns after the op began
        ((230, 260), (100, 200, 200, 200)),  # clocks disagree: launched after it began
        (None, (100, 200, 200, 200)),
    ],
)
def test_late_call_and_queued(call: tuple[int, int] | None, split: tuple[int, int, int, int]):
    builder = TraceBuilder()
    builder.op(0, 100, (-20, -10))
    builder.op(200, 300, call)
    assert parts(gaps(builder)) == split


def test_of_ops_that_begin_together_the_one_launched_first():
    builder = TraceBuilder()
    builder.op(0, 100, (-20, -10))
    builder.op(200, 300, (150, 160), stream=8)
    builder.op(200, 250, (120, 130), stream=9)
    builder.op(200, 250, None, stream=10)
    assert parts(gaps(builder)) == (100, 120, 130, 200)


def test_an_op_without_duration_ends_a_gap_only_where_no_other_does():
    builder = TraceBuilder()
    builder.op(0, 100, (-20, -10))
    builder.op(200, 200, (110, 115))
    builder.op(200, 300, (150, 160))
    builder.op(400, 400, (350, 360))
    result = gaps(builder)
    assert parts(result) == (100, 150, 160, 200)
    assert parts(result, 1) == (300, 350, 360, 400)


def test_overlapping_streams_leave_one_gap():
    builder = TraceBuilder()
    builder.op(0, 100, (-20, -10))
    builder.op(50, 180, (-20, -10), stream=8)
    builder.op(60, 90, (-20, -10), stream=9)
    builder.op(200, 300, (190, 195), stream=9)
    result = gaps(builder)
    assert len(result.start) == 1
    assert parts(result) == (180, 190, 195, 200)


def test_touching_ops_leave_none():
    builder = TraceBuilder()
    builder.op(0, 100, (-20, -10))
    builder.op(100, 200, (-20, -10))
    assert len(gaps(builder).start) == 0


def test_a_gap_before_overhead_is_late_on_the_next_launch():
    builder = TraceBuilder()
    builder.op(0, 100, (-20, -10))
    builder.op(400, 500, (350, 360))
    builder.add(Overheads, start=200, end=300, process=0)
    result = gaps(builder)
    assert [parts(result, row) for row in range(2)] == [(100, 200, 200, 200), (300, 350, 360, 400)]


def test_one_operation_has_no_gaps():
    builder = TraceBuilder()
    builder.op(0, 100)
    result = gaps(builder)
    assert len(result.start) == 0 and result.late.shape == (0, 2) and result.op.dtype == np.int64
