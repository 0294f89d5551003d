"""The simulator itself: its truth is whole, its runs repeat, and causes come before effects."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.profiler.simulator.cases import ALL, LATE_RANK
from helpers.profiler.simulator.events import Run
from helpers.profiler.simulator.judged import run_of
from helpers.profiler.simulator.machine import DEPTH
from helpers.profiler.simulator.truth import known_time

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.intervals import complement, spans, union
from fastfeed.profiler.model.trace import Kind


@pytest.fixture(scope="module", params=sorted(ALL))
def scenario(request: pytest.FixtureRequest) -> tuple[str, Run]:
    return request.param, run_of(request.param)


def _idle(run: Run, gpu: int) -> np.ndarray:
    ops = [op for op in run.ops if op.gpu == gpu]
    busy = union(spans(np.array([op.start for op in ops]), np.array([op.end for op in ops])))
    return complement(busy, *known_time(gpu, run.ops, run.ranges))


def test_every_idle_nanosecond_has_exactly_one_cause(scenario: tuple[str, Run]) -> None:
    _, run = scenario
    for gpu in {op.gpu for op in run.ops}:
        mine = [item for item in run.idle if item.gpu == gpu]
        covered = spans(
            np.array([item.start for item in mine]), np.array([item.end for item in mine])
        )
        assert (covered[1:, 0] >= covered[:-1, 1]).all()
        assert union(covered).tolist() == _idle(run, gpu).tolist()


NAMES = sorted(ALL)


@pytest.mark.parametrize(
    "name",
    [*NAMES[::4], *(pytest.param(n, marks=pytest.mark.slow) for n in NAMES if n not in NAMES[::4])],
)
def test_the_same_seed_is_the_same_run(name: str) -> None:
    assert ALL[name].make(0) == run_of(name)
    assert ALL[name].make(1) != run_of(name)


def test_an_op_starts_after_its_call_and_one_stream_does_one_thing_at_a_time(
    scenario: tuple[str, Run],
) -> None:
    name, run = scenario
    calls = {(call.host, call.corr): call for call in run.calls}
    last: dict[tuple[int, int, int], int] = {}
    for op in run.ops:
        call = calls.get((op.host, op.corr))
        assert call is not None or name == "dropped"
        if call is not None:
            assert call.start < op.start
        assert op.start >= last.get((op.host, op.gpu, op.stream), 0)
        assert op.end > op.start
        last[op.host, op.gpu, op.stream] = op.end


def test_ranges_and_calls_of_a_thread_nest(scenario: tuple[str, Run]) -> None:
    _, run = scenario
    rows = [*run.ranges, *run.calls]
    for thread in {(row.host, row.thread) for row in rows}:
        mine = sorted(
            (row for row in rows if (row.host, row.thread) == thread),
            key=lambda row: (row.start, -row.end),
        )
        open_until: list[int] = []
        for row in mine:
            while open_until and open_until[-1] <= row.start:
                open_until.pop()
            assert not open_until or row.end <= open_until[-1]
            open_until.append(row.end)


def test_the_queue_never_holds_more_than_its_depth(scenario: tuple[str, Run]) -> None:
    _, run = scenario
    for host, gpu in {(op.host, op.gpu) for op in run.ops}:
        ops = [op for op in run.ops if (op.host, op.gpu) == (host, gpu)]
        submitted = np.sort([op.submitted for op in ops])
        started = np.sort([op.start for op in ops])
        for at in submitted:
            queued = np.searchsorted(submitted, at, "right") - np.searchsorted(started, at, "right")
            assert queued <= DEPTH


def test_a_scenario_is_what_its_name_says(scenario: tuple[str, Run]) -> None:
    name, run = scenario
    main = ALL[name].main
    if main is None:
        begin = max(
            min(op.start for op in run.ops if op.gpu == gpu) for gpu in {op.gpu for op in run.ops}
        )
        since = sum(item.end - item.start for item in run.idle if item.start > begin)
        assert since < 0.02 * run.ops[-1].end or name in ("dropped", "mixture")
        return
    sums = {
        cause: sum(item.end - item.start for item in run.idle if item.cause is cause)
        for cause in Cause
    }
    if name != "checkpoint_and_loader":  # which has two
        assert max(sums, key=lambda cause: sums[cause]) is main
    assert sums[main] > 0.04 * run.ops[-1].end


def test_hidden_waits_are_long_and_cost_nothing() -> None:
    run = ALL["hidden_wait"].make(0)
    waited = sum(item.end - item.start for item in run.stages if item.stage == "wait")
    assert waited > 0.3 * run.ops[-1].end
    assert not any(item.cause is Cause.INPUT for item in run.idle if item.start > run.ops[0].start)


def test_a_host_runs_ahead() -> None:
    run = ALL["healthy"].make(0)
    assert max(op.start - op.submitted for op in run.ops) > 10_000_000


def test_others_wait_in_collectives_for_the_late_rank() -> None:
    run = ALL["late_peer"].make(0)
    waited = {(item.victim, item.culprit): 0 for item in run.proxies}
    for item in run.proxies:
        waited[item.victim, item.culprit] += item.end - item.start
    late = sum(ns for (_, culprit), ns in waited.items() if culprit == LATE_RANK)
    assert late > 0.95 * sum(waited.values())
    inside = sum(op.end - op.start for op in run.ops if op.kind is Kind.COMM and op.host == 0)
    assert waited[0, LATE_RANK] > 0.5 * inside


def test_ranks_begin_and_end_their_collectives_together() -> None:
    run = ALL["late_peer"].make(0)
    for seq in {op.seq for op in run.ops if op.kind is Kind.COMM}:
        ops = [op for op in run.ops if op.kind is Kind.COMM and op.seq == seq]
        assert len(ops) == 3
        assert max(op.end for op in ops) - min(op.end for op in ops) < 1_000
        assert min(op.end for op in ops) > max(op.start for op in ops)


def test_a_full_queue_blocks_the_host() -> None:
    run = ALL["deep_queue"].make(0)
    longest = max(call.end - call.start for call in run.calls if call.name == "cudaLaunchKernel")
    assert longest > 100_000
