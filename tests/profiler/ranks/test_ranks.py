"""Waits inside collectives and their causes, in made runs with known answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.profiler.manyranks import MS, Talk, members

from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import ABSENT_RANKS, Slices
from fastfeed.profiler.model.trace import Device, Kind, Ops, Origin, Process, Trace, table
from fastfeed.profiler.ranks.ranks import (
    Blame,
    RankAnalysis,
    RankDevice,
    analyze_ranks,
    estimate_waits,
)

JITTER = 5_000  # ns, of the made ends, per collective
STEPS = 12


def charges(blame: Blame) -> dict[tuple[str, Cause | None], int]:
    return {(charge.late_rank, charge.cause): charge.ns for charge in blame.charges}


def talks(ranks: int, **more: object) -> list[Talk]:
    return [Talk(tuple(range(ranks)), **more)] * STEPS  # pyright: ignore[reportArgumentType] - fields by name


def late_loader(rank: int, number: int) -> tuple[dict[Cause, int], int]:
    """Rank 1 waits 8 ms for input before every second collective; all compute 10 ms."""
    return ({Cause.INPUT: 8 * MS} if rank == 1 and number % 2 else {}), 10 * MS


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("skewed", [0, 5 * MS, -3_600_000 * MS])
def test_starvation_by_proxy(ranks: int, skewed: int) -> None:
    """Every rank's wait is charged to the late one and its loader, whatever the clocks show."""
    run = members(
        talks(ranks), late_loader, ranks=ranks, skew=[rank * skewed for rank in range(ranks)]
    )
    analysis = analyze_ranks(run)
    expected = STEPS // 2 * 8 * MS
    for rank, blame in enumerate(analysis.blames):
        if rank != 1:
            charged = charges(blame)
            assert abs(charged["rank 1", Cause.INPUT] - expected) < STEPS * JITTER
            assert sum(charged.values()) == blame.comm_wait == intervals.measure(blame.spans)
            assert sum(charged.values()) - charged["rank 1", Cause.INPUT] < STEPS * JITTER
    assert analysis.blames[1].comm_wait < STEPS * JITTER
    assert [
        abs(rank_result.offset_ns - rank * skewed) < JITTER
        for rank, rank_result in enumerate(analysis.ranks)
    ] == [True] * ranks
    assert {rank_result.collectives for rank_result in analysis.ranks} == {STEPS}
    assert sum(rank_result.waited_ns for rank_result in analysis.ranks) == sum(
        rank_result.blamed_ns for rank_result in analysis.ranks
    )
    assert abs(analysis.ranks[1].blamed_ns - (ranks - 1) * expected) < ranks * STEPS * JITTER
    assert not analysis.notes


def test_spans_lie_where_the_victim_waits() -> None:
    """So that per-step figures can be made of them."""
    run = members(talks(2), late_loader, skew=[0, 5 * MS])
    blame = analyze_ranks(run).blames[0]
    ops = run[0].trace.ops
    kernels = intervals.union(intervals.spans(ops.start[ops.kind == 1], ops.end[ops.kind == 1]))
    assert intervals.measure(intervals.intersect(blame.spans, kernels)) == intervals.measure(
        blame.spans
    )
    hit = blame.cause == Cause.INPUT
    assert hit.sum() == STEPS // 2
    assert set(blame.culprit[hit]) == {1}


def test_what_both_lose_is_not_why_one_is_late() -> None:
    """Both wait 20 ms for input; rank 1 computes 3 ms longer: it is late for that."""

    def before(rank: int, number: int) -> tuple[dict[Cause, int], int]:
        return {Cause.INPUT: 20 * MS}, (13 if rank == 1 else 10) * MS

    charged = charges(analyze_ranks(members(talks(2), before)).blames[0])
    assert abs(charged["rank 1", None] - STEPS * 3 * MS) < STEPS * JITTER
    assert charged.get(("rank 1", Cause.INPUT), 0) < STEPS * JITTER


def test_the_excess_over_what_both_lose_is() -> None:
    """Both wait for input, rank 1 by 4 ms longer; and 1 ms more inside of cudaMalloc."""

    def before(rank: int, number: int) -> tuple[dict[Cause, int], int]:
        return (
            {Cause.INPUT: 14 * MS, Cause.ALLOC: MS} if rank == 1 else {Cause.INPUT: 10 * MS}
        ), 10 * MS

    charged = charges(analyze_ranks(members(talks(2), before)).blames[0])
    assert abs(charged["rank 1", Cause.INPUT] - STEPS * 4 * MS) < STEPS * JITTER
    assert abs(charged["rank 1", Cause.ALLOC] - STEPS * MS) < STEPS * JITTER


def test_what_was_not_recorded_has_no_cause() -> None:
    def before(rank: int, number: int) -> tuple[dict[Cause, int], int]:
        return ({Cause.HOST_UNKNOWN: 5 * MS} if rank == 0 else {}), 10 * MS

    assert set(charges(analyze_ranks(members(talks(2), before)).blames[1])) == {("rank 0", None)}


def test_blame_is_passed_on() -> None:
    """0 waits for 1's loader in one group, 2 for 0 in another: so 2 waits for 1's loader."""
    pair, other = Talk((0, 1), group="tensor"), Talk((0, 2), group="data")

    def before(rank: int, number: int) -> tuple[dict[Cause, int], int]:
        return ({Cause.INPUT: 6 * MS} if rank == 1 else {}), (
            0 if rank == 0 and number % 2 else 5 * MS
        )

    blames = analyze_ranks(members([pair, other] * STEPS, before, ranks=3)).blames
    assert (
        abs(charges(blames[0])["rank 1", Cause.INPUT] - STEPS * 6 * MS) < STEPS * 250_000
    )  # less the other one
    charged = charges(blames[2])
    assert abs(charged["rank 1", Cause.INPUT] - STEPS * 6 * MS) < STEPS * 250_000
    assert charged["rank 0", None] < STEPS * 300_000  # the collective of 0 and 1 itself


def test_only_judged_time_counts() -> None:
    run = members(talks(2), late_loader)
    middle = (run[0].first + run[0].last) // 2
    half = replace(run[0], judged=np.array([[run[0].first, middle]]))
    blame = analyze_ranks([half, run[1]]).blames[0]
    assert abs(blame.comm_wait - STEPS // 4 * 8 * MS) < STEPS * JITTER
    assert blame.spans.max() <= middle


def test_waits_behind_compute_cost_nothing() -> None:
    """They count as waits, and are not charged to any rank."""
    blame = analyze_ranks(members(talks(2), late_loader, hidden=True)).blames[0]
    assert blame.comm_wait > STEPS // 2 * 8 * MS - STEPS * JITTER
    assert blame.charges == ()
    assert not len(blame.spans)


def test_lateness_that_compute_hid_is_waited_for_in_the_next_collective() -> None:
    """Two buckets: while 0 waits in the first for 1's loader, it makes the second."""
    buckets = [Talk((0, 1)), Talk((0, 1))] * STEPS

    def before(rank: int, number: int) -> tuple[dict[Cause, int], int]:
        if number % 2:
            return {}, 2 * MS if rank else 0
        return ({Cause.INPUT: 6 * MS} if rank else {}), 10 * MS

    def meanwhile(rank: int, number: int) -> int:
        return 0 if rank or number % 2 else 2 * MS

    blame = analyze_ranks(members(buckets, before, computing=meanwhile)).blames[0]
    charged = charges(blame)
    assert abs(blame.comm_wait - STEPS * 8 * MS) < 2 * STEPS * JITTER
    assert (
        abs(charged["rank 1", Cause.INPUT] - STEPS * 6 * MS) < 2 * STEPS * JITTER
    )  # 4 in the first, 2 in the second
    assert sum(charged.values()) - charged["rank 1", Cause.INPUT] < 2 * STEPS * JITTER


def test_a_lead_ends_where_no_one_waits() -> None:
    """The second of three buckets finds both even; 1's longer work before the third is its own."""
    buckets = [Talk((0, 1))] * 3 * STEPS

    def before(rank: int, number: int) -> tuple[dict[Cause, int], int]:
        lost = {Cause.INPUT: 6 * MS} if rank and number % 3 == 0 else {}
        return lost, (13 if rank and number % 3 == 2 else 10) * MS

    run = members(
        buckets, before, computing=lambda rank, number: 0 if rank or number % 3 else 6 * MS
    )
    charged = charges(analyze_ranks(run).blames[0])
    assert abs(charged["rank 1", None] - STEPS * 3 * MS) < 3 * STEPS * JITTER
    assert charged.get(("rank 1", Cause.INPUT), 0) < 3 * STEPS * JITTER


def test_a_rank_alone_is_estimated() -> None:
    """Excess of its collectives over the shortest; the note calls it an estimate."""
    alone = members(talks(2), late_loader)[:1]
    analysis = analyze_ranks(alone)
    assert analysis.ranks == ()
    assert analysis.blames[0].charges == estimate_waits(alone[0]).charges
    assert abs(analysis.blames[0].comm_wait - STEPS // 2 * 8 * MS) < STEPS * JITTER
    assert set(charges(analysis.blames[0])) == {(ABSENT_RANKS, None)}
    assert "are estimated" in analysis.notes[0]


def test_collectives_of_many_unknown_sizes_are_no_ground_for_an_estimate() -> None:
    """What takes longer than the shortest may simply have more to send."""
    trace = Trace(
        Origin("made", "chrome"),
        ("ncclDevKernel_SendRecv",),
        (Process(1),),
        devices=(Device(0),),
        ops=table(
            Ops,
            start=np.arange(40) * 100 * MS,
            end=np.arange(40) * 100 * MS + np.arange(1, 41) * MS,
            device=0,
            process=0,
            stream=7,
            kind=Kind.COMM,
            name=0,
        ),
    )
    nothing = Slices(*(np.empty(0, np.int64) for _ in range(6)))
    member = RankDevice("GPU 0", trace, 0, nothing, np.array([[0, 4_000 * MS]]), 0, 4_000 * MS)
    assert estimate_waits(member).comm_wait == 0
    sized = replace(trace, ops=replace(trace.ops, bytes=np.full(40, 4_096)))
    assert estimate_waits(replace(member, trace=sized)).comm_wait > 500 * MS


def test_few_collectives_are_no_ground_for_an_estimate() -> None:
    alone = members([Talk((0, 1))] * 4, late_loader)[:1]
    assert analyze_ranks(alone).blames[0].comm_wait == 0


def test_no_communication_says_nothing() -> None:
    run = members(talks(2), late_loader, recorded=lambda rank, number: False)
    analysis = analyze_ranks(run)
    assert analysis == RankAnalysis((), analysis.blames, analysis.clocks, (), (None, None))
    assert [blame.comm_wait for blame in analysis.blames] == [0, 0]
    assert analyze_ranks([]).blames == ()
