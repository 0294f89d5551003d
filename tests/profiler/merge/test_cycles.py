"""Recordings of one process, one file per cycle of the profiler's schedule, read as one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.profiler.handmade import TraceBuilder
from helpers.profiler.kineto_files import event, kernel, launch, write

from fastfeed.errors import TraceError
from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.merge.cycles import join_cycles
from fastfeed.profiler.merge.merge import combine
from fastfeed.profiler.model.result import Result
from fastfeed.profiler.model.trace import Process, RangeKind, Trace
from fastfeed.profiler.readers import read
from fastfeed.profiler.readers.folders import expand

MS = 1_000_000
STEP = 50 * MS


def cycle(first: int, steps: int = 5, rank: int = 0, wall: int = 0, pid: int = 1) -> Trace:
    """Steps from a number on, each at its own time, which wait 20 of 50 ms for input."""
    builder = TraceBuilder()
    for number in range(first, first + steps):
        at = number * STEP - wall
        builder.range(at, at + STEP, f"ProfilerStep#{number}", RangeKind.STEP)
        builder.range(
            at,
            at + 20 * MS,
            "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
            RangeKind.OP,
        )
        builder.op(
            at + 20 * MS,
            at + STEP,
            (at + 20 * MS - 9, at + 20 * MS - 5),
            name=f"kernel {number % 2}",
        )
    trace = builder.trace()
    path = f"/runs/rank{rank}.{1_700_000_000_000 + first}.pt.trace.json"
    origin = replace(trace.origin, path=path, dialect="chrome", wall_ns=wall)
    return replace(trace, origin=origin, processes=(Process(pid, rank=rank),))


def analyzed(*traces: Trace) -> Result:
    return analyze(combine(traces))


def test_cycles_are_one_device_with_the_steps_of_all():
    result = analyzed(cycle(20), cycle(0), cycle(40))
    (device,) = result.devices
    assert device.steps.labels == tuple(
        f"ProfilerStep#{number}" for first in (0, 20, 40) for number in range(first, first + 5)
    )
    assert device.steps.missing == 0, "those between the cycles were left out on purpose"
    assert device.share.value == pytest.approx(0.4, abs=0.01)
    assert device.judged.budget.window == pytest.approx(device.metrics["steps"] * STEP, rel=0.01)
    assert "3 recordings of one process are read one after the other" in result.notes[0]


def test_steps_that_are_lost_inside_of_a_cycle_are_missing():
    (device,) = analyzed(cycle(0, 3), cycle(20), cycle(5, 3)).devices
    assert device.steps.missing == 0
    lossy = cycle(0, 9)
    kept = [not lossy.name(int(name)).endswith("#4") for name in lossy.ranges.name]
    columns = {name: getattr(lossy.ranges, name)[kept] for name in type(lossy.ranges).__slots__}
    lossy = replace(lossy, ranges=type(lossy.ranges)(**columns))
    (device,) = analyzed(lossy, cycle(20)).devices
    assert device.steps.missing == 1


def test_cycles_of_other_clocks_and_names_are_put_on_the_first():
    (joined,) = join_cycles([cycle(0), cycle(20, wall=7 * STEP)])
    (plain,) = join_cycles([cycle(0), cycle(20)])
    assert joined.ops.start.tolist() == plain.ops.start.tolist()
    assert (np.diff(joined.ops.start) > 0).all()
    assert len(set(joined.calls.corr.tolist())) == len(joined.calls.corr)
    assert joined.calls.corr.tolist() == joined.ops.corr.tolist()


def test_each_rank_has_its_own_cycles():
    result = analyzed(
        *(cycle(first, rank=rank, pid=rank + 1) for first in (0, 20) for rank in (0, 1))
    )
    assert [device.rank for device in result.devices] == [0, 1]
    assert {len(device.steps.labels) for device in result.devices} == {10}


def test_files_of_two_runs_are_refused():
    with pytest.raises(
        TraceError,
        match=r"2 recordings of one worker are of different processes: rank0\.1700.*; pass",
    ):
        join_cycles([cycle(0), cycle(20, pid=2)])


def test_a_folder_of_cycles(tmp_path: Path):
    for number, stamp in enumerate((1623143089861, 1623143099999)):
        rows = []
        for n in range(1, 9):
            at = 10_000 * number + 100 * n
            rows += [
                launch(n, at - 5),
                kernel(n, at, 50),
                event("user_annotation", f"ProfilerStep#{10 * number + n}", at, 99),
            ]
        write(tmp_path / f"host_7.{stamp}.pt.trace.json", rows)
    (trace,) = combine([read(path) for path in expand([tmp_path])])
    assert len(trace.ops.start) == len(trace.calls.start) == 16
    assert len(trace.devices) == len(trace.processes) == 1


def test_other_files_stay_apart():
    one, other = (
        replace(cycle(0), origin=replace(cycle(0).origin, path=f"/runs/rank{n}.json"))
        for n in range(2)
    )
    assert join_cycles([one, other]) == [one, other]
