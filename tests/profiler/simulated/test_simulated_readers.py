"""Each reader gives back what the simulator wrote, to the nanosecond."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers.profiler.simulator.events import Run
from helpers.profiler.simulator.judged import read_back, run_of, traces_of
from helpers.profiler.simulator.write import WRITERS, write

from fastfeed.profiler.model.trace import Kind, RangeKind, Trace
from fastfeed.profiler.readers import read

SCENARIOS = ("across_streams", "clock_skew", "graphs", "no_core", "pageable_copy", "pipeline")
FULL = ("nsys", "chrome", "xplane", "nvprof")
CARRIED = {  # which ranges each dialect has a place for
    "nsys": {RangeKind.NVTX, RangeKind.STEP, RangeKind.OP, RangeKind.GC, RangeKind.SYSTEM},
    "nvprof": {RangeKind.NVTX, RangeKind.STEP, RangeKind.OP, RangeKind.GC},
    "chrome": {RangeKind.NVTX, RangeKind.STEP, RangeKind.OP, RangeKind.GC, RangeKind.PYTHON},
    "xplane": {RangeKind.NVTX, RangeKind.STEP, RangeKind.OP, RangeKind.GC, RangeKind.PYTHON},
}


@pytest.fixture(scope="module", params=SCENARIOS)
def scenario(request: pytest.FixtureRequest) -> str:
    return request.param


def _shift(trace: Trace, run: Run) -> int:
    """Its clock against the run's: of the first op."""
    return int(trace.ops.start.min()) - min(op.start for op in run.ops)


@pytest.mark.parametrize("dialect", FULL)
def test_ops(scenario: str, dialect: str) -> None:
    for at, trace in enumerate(traces_of(scenario, dialect)):
        run = run_of(scenario).of(at)
        shift = _shift(trace, run)
        gpus = run.hosts[0].gpus
        ops = trace.ops
        ordinals = [trace.devices[device].ordinal for device in ops.device]
        columns = (
            ops.start - shift,
            ops.end - shift,
            ops.stream,
            ops.kind,
            ops.corr,
            np.maximum(ops.pageable, 0),
        )
        actual = Counter(zip(ordinals, *(column.tolist() for column in columns), strict=True))
        true = Counter(
            (
                gpus.index(op.gpu),
                op.start,
                op.end,
                op.stream,
                int(op.kind),
                op.corr,
                max(op.pageable, 0),
            )
            for op in run.ops
        )
        assert actual == true


@pytest.mark.parametrize("dialect", FULL)
def test_calls(scenario: str, dialect: str) -> None:
    for at, trace in enumerate(traces_of(scenario, dialect)):
        run, calls = run_of(scenario).of(at), trace.calls
        shift = _shift(trace, run)
        names = [trace.name(int(name)) for name in calls.name]
        columns = (calls.start - shift, calls.end - shift, calls.corr)
        actual = Counter(zip(names, *(column.tolist() for column in columns), strict=True))
        assert actual == Counter((call.name, call.start, call.end, call.corr) for call in run.calls)
        assert len(set(calls.thread.tolist())) == len({call.thread for call in run.calls})


@pytest.mark.parametrize("dialect", FULL)
def test_ranges(scenario: str, dialect: str) -> None:
    for at, trace in enumerate(traces_of(scenario, dialect)):
        run, ranges = run_of(scenario).of(at), trace.ranges
        shift = _shift(trace, run)
        actual = Counter(
            zip((ranges.start - shift).tolist(), (ranges.end - shift).tolist(), strict=True)
        )
        carried = [item for item in run.ranges if item.kind in CARRIED[dialect]]
        assert actual == Counter((item.start, item.end) for item in carried)
        steps = sum(
            trace.name(int(name)).startswith(("ProfilerStep#", "train")) for name in ranges.name
        )
        assert steps >= run.steps
        if dialect == "chrome":
            assert Counter(ranges.kind.tolist())[RangeKind.PYTHON] == sum(
                item.kind is RangeKind.PYTHON for item in carried
            )


@pytest.mark.parametrize("dialect", ("nsys", "chrome", "nvprof"))
def test_waits(scenario: str, dialect: str) -> None:
    for at, trace in enumerate(traces_of(scenario, dialect)):
        waits = trace.waits
        columns = (waits.corr, waits.stream, waits.on_stream, waits.on_corr)
        actual = Counter(zip(*(column.tolist() for column in columns), strict=True))
        assert actual == Counter(
            (item.corr, item.stream, item.on_stream, item.on_corr)
            for item in run_of(scenario).of(at).waits
        )


def test_scheduling() -> None:
    run = run_of("no_core")
    (trace,) = traces_of("no_core", "nsys")
    shift = _shift(trace, run)
    sched = trace.sched
    actual = Counter(zip((sched.start - shift).tolist(), (sched.end - shift).tolist(), strict=True))
    assert actual == Counter((item.start, item.end) for item in run.sched)
    assert {trace.threads[thread].tid for thread in sched.thread} == {
        item.thread for item in run.sched
    }


def test_a_whole_graph_is_one_op() -> None:
    run = run_of("graphs")
    (trace,) = traces_of("graphs", "nsys_graph")
    shift = _shift(trace, run)
    rows = trace.ops.kind == Kind.GRAPH
    assert rows.sum() == run.steps
    nodes = [op for op in run.ops if op.graph]
    assert int(trace.ops.start[rows][0]) - shift == nodes[0].start
    assert int(trace.ops.end[rows][-1]) - shift == nodes[-1].end


def test_the_printed_table_has_the_device_alone(scenario: str) -> None:
    for at, trace in enumerate(traces_of(scenario, "nvprof_csv")):
        run = run_of(scenario).of(at)
        shift = _shift(trace, run)
        actual = Counter(
            zip((trace.ops.start - shift).tolist(), (trace.ops.end - shift).tolist(), strict=True)
        )
        assert actual == Counter((op.start, op.end) for op in run.ops)
        assert not len(trace.calls.start)


def test_the_feeds_timeline(scenario: str) -> None:
    for at, trace in enumerate(traces_of(scenario, "timeline")):
        run, ranges = run_of(scenario).of(at), trace.ranges
        shift = int(ranges.start.min()) - min(stage.start for stage in run.stages)
        names = [trace.name(int(name)) for name in ranges.name]
        actual = Counter(
            zip((ranges.start - shift).tolist(), (ranges.end - shift).tolist(), names, strict=True)
        )
        assert actual == Counter(
            (item.start, item.end, f"fastfeed:{item.stage}") for item in run.stages
        )


@pytest.mark.parametrize("dialect", ("nsys", "chrome", "timeline"))
def test_clocks_of_ranks_differ_by_their_skew(dialect: str) -> None:
    """With wall clocks, time 0 of both is the same moment but for the skew."""
    run = run_of("clock_skew")
    wall = []
    for at, trace in enumerate(traces_of("clock_skew", dialect)):
        assert trace.origin.wall_ns is not None
        if dialect == "timeline":
            first = int(trace.ranges.start.min()) - min(stage.start for stage in run.of(at).stages)
        else:
            first = _shift(trace, run.of(at))
        wall.append(trace.origin.wall_ns + first)
    assert wall[1] - wall[0] == run.hosts[1].skew_ns


def test_processes_that_share_a_gpu_share_its_row() -> None:
    run = run_of("two_processes")
    (trace,) = traces_of("two_processes", "nsys")
    assert len(trace.devices) == 1
    assert {process.pid for process in trace.processes} == {host.pid for host in run.hosts}
    assert Counter(trace.ops.process.tolist()).most_common()[0][1] == len(run.ops) // 2


def test_ranks_in_one_file_that_each_call_theirs_0_do_not() -> None:
    run = run_of("late_peer")
    (trace,) = read_back(run, "nsys", together=True)
    assert len(trace.devices) == 3
    assert sorted(Counter(trace.ops.device.tolist()).values()) == [len(run.ops) // 3] * 3


@pytest.mark.parametrize("dialect", WRITERS)
def test_a_file_is_recognized_whatever_its_name(dialect: str, tmp_path: Path) -> None:
    (path,) = write(run_of("healthy"), dialect, tmp_path)
    plain = path.rename(tmp_path / "recording")
    assert read(plain).origin.dialect == dialect.split("_")[0]
