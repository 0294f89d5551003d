"""A gap: which op ended it, and where late ends and queued begins."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.profiler.handmade import Made

from fastfeed.profiler.attribution.gaps import Gaps, find_gaps
from fastfeed.profiler.attribution.launches import launch_calls
from fastfeed.profiler.attribution.time_breakdown import busy_sets
from fastfeed.profiler.model.trace import Overheads


def gaps(made: Made) -> Gaps:
    trace = made.trace()
    return find_gaps(trace, 0, *busy_sets(trace, 0), launch_calls(trace))


def parts(found: Gaps, row: int = 0) -> tuple[int, int, int, int]:
    return int(found.start[row]), int(found.late_end[row]), int(found.call_end[row]), int(found.end[row])


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
    made = Made()
    made.op(0, 100, (-20, -10))
    made.op(200, 300, call)
    assert parts(gaps(made)) == split


def test_of_ops_that_begin_together_the_one_launched_first():
    made = Made()
    made.op(0, 100, (-20, -10))
    made.op(200, 300, (150, 160), stream=8)
    made.op(200, 250, (120, 130), stream=9)
    made.op(200, 250, None, stream=10)
    assert parts(gaps(made)) == (100, 120, 130, 200)


def test_an_op_without_duration_ends_a_gap_only_where_no_other_does():
    made = Made()
    made.op(0, 100, (-20, -10))
    made.op(200, 200, (110, 115))
    made.op(200, 300, (150, 160))
    made.op(400, 400, (350, 360))
    found = gaps(made)
    assert parts(found) == (100, 150, 160, 200)
    assert parts(found, 1) == (300, 350, 360, 400)


def test_overlapping_streams_leave_one_gap():
    made = Made()
    made.op(0, 100, (-20, -10))
    made.op(50, 180, (-20, -10), stream=8)
    made.op(60, 90, (-20, -10), stream=9)
    made.op(200, 300, (190, 195), stream=9)
    found = gaps(made)
    assert len(found.start) == 1
    assert parts(found) == (180, 190, 195, 200)


def test_touching_ops_leave_none():
    made = Made()
    made.op(0, 100, (-20, -10))
    made.op(100, 200, (-20, -10))
    assert len(gaps(made).start) == 0


def test_a_gap_before_overhead_is_late_on_the_next_launch():
    made = Made()
    made.op(0, 100, (-20, -10))
    made.op(400, 500, (350, 360))
    made.add(Overheads, start=200, end=300, process=0)
    found = gaps(made)
    assert [parts(found, row) for row in range(2)] == [(100, 200, 200, 200), (300, 350, 360, 400)]


def test_one_operation_has_no_gaps():
    made = Made()
    made.op(0, 100)
    found = gaps(made)
    assert len(found.start) == 0 and found.late.shape == (0, 2) and found.op.dtype == np.int64
