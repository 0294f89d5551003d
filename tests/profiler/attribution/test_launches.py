"""The call that launched an op: the first with its id in its process, dense ids or sparse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.profiler.attribution.launches import is_long_call, launch_calls
from fastfeed.profiler.model.trace import Calls, Ops, Origin, Process, Thread, Trace, table

ids = st.integers(-1, 6)
# start, thread, id
calls = st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 2), ids), max_size=10)
ops = st.lists(st.tuples(st.integers(0, 1), ids), max_size=10)  # process, id
PROCESS_OF = (0, 0, 1)  # of threads


def traced(calls: list[tuple[int, int, int]], ops: list[tuple[int, int]], factor: int) -> Trace:
    def apart(number: int) -> int:
        return number * factor if number > 0 else number

    start, thread, corr = ([row[at] for row in calls] for at in range(3))
    return Trace(
        Origin("made up", "nsys"),
        processes=(Process(100), Process(200)),
        threads=tuple(Thread(process, 1) for process in PROCESS_OF),
        calls=table(
            Calls,
            start=start,
            end=start,
            thread=thread,
            corr=list(map(apart, corr)),
            name=[-1] * len(calls),
        ),
        ops=table(
            Ops,
            rows=len(ops),
            process=[row[0] for row in ops],
            corr=[apart(row[1]) for row in ops],
            start=0,
            end=1,
        ),
    )


@pytest.mark.parametrize("factor", [1, 1000, 1 << 45])
@given(calls, ops)
def test_the_first_call_with_the_id_in_the_process(factor: int, calls: list, ops: list) -> None:
    trace = traced(calls, ops, factor)
    for row, (process, corr) in enumerate(ops):
        same = [
            (start, index)
            for index, (start, thread, other) in enumerate(calls)
            if corr >= 0 and other == corr and thread >= 0 and PROCESS_OF[thread] == process
        ]
        assert launch_calls(trace)[row] == (min(same)[1] if same else -1)


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(1, 50)), max_size=12))
def test_a_long_call_takes_ten_times_the_upper_median_of_its_api(
    rows: list[tuple[int, int]],
) -> None:
    lengths: dict[int, list[int]] = {}
    for name, length in sorted(rows):
        lengths.setdefault(name, []).append(length)
    made = table(
        Calls, start=[0] * len(rows), end=[row[1] for row in rows], name=[row[0] for row in rows]
    )
    trace = Trace(Origin("made up", "nsys"), names=("a", "b", "c"), calls=made)
    expected = [length > 10 * lengths[name][len(lengths[name]) // 2] for name, length in rows]
    assert np.array_equal(is_long_call(trace), expected)
