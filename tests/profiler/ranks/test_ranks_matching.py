"""Matching of collectives: extra ones, missing ones, unnamed groups, pairs, and different runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.profiler.manyranks import MS, Talk, members

from fastfeed.errors import TraceError
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import ABSENT_RANKS
from fastfeed.profiler.ranks.collectives import collective_family
from fastfeed.profiler.ranks.ranks import RankAnalysis, RankDevice, analyze_ranks

STEPS = 20
JITTER = 5_000


def uneven(rank: int, number: int) -> tuple[dict[Cause, int], int]:
    """No two steps alike; rank 0 loads for 4 ms longer."""
    busy = 10 * MS + int(np.random.default_rng(number).integers(0, 3 * MS))
    return ({Cause.INPUT: 4 * MS} if rank == 0 else {}), busy


def even(rank: int, number: int) -> tuple[dict[Cause, int], int]:
    return ({Cause.INPUT: 4 * MS} if rank == 0 else {}), 10 * MS


def analyzed(before: Any = uneven, talk: Talk | None = None, **more: Any) -> RankAnalysis:
    return analyze_ranks(members([talk or Talk((0, 1))] * STEPS, before, skew=[0, 5 * MS], **more))


def charged(analysis: RankAnalysis, victim: int = 1) -> int:
    return sum(
        item.ns
        for item in analysis.blames[victim].charges
        if (item.late_rank, item.cause) == ("rank 0", Cause.INPUT)
    )


@pytest.mark.parametrize("wall", [True, False])
@pytest.mark.parametrize("group", ["default_pg", None])
@pytest.mark.parametrize(("from_0", "from_1"), [(0, 3), (3, 0), (0, 9), (2, 5)])
def test_one_rank_recorded_more_at_the_start(
    from_0: int, from_1: int, group: str | None, wall: bool
) -> None:
    firsts = (from_0, from_1)
    analysis = analyzed(
        talk=Talk((0, 1), group=group),
        wall=wall,
        recorded=lambda rank, number: number >= firsts[rank],
    )
    common = STEPS - max(firsts)
    assert [item.collectives for item in analysis.ranks] == [common] * 2
    assert abs(analysis.ranks[1].offset_ns - 5 * MS) < JITTER
    assert (
        abs(charged(analysis) - common * 4 * MS) < 4 * MS + common * JITTER
    )  # before the first, nothing is known


def test_one_rank_recorded_more_at_the_end() -> None:
    analysis = analyzed(recorded=lambda rank, number: rank == 0 or number < 13)
    assert analysis.ranks[0].collectives == 13
    assert abs(charged(analysis) - 13 * 4 * MS) < 13 * JITTER


@pytest.mark.parametrize("numbered", [True, False])
def test_equal_steps_are_told_apart_by_number_or_wall_clock(numbered: bool) -> None:
    analysis = analyzed(
        even,
        numbered=numbered,
        wall=not numbered,
        recorded=lambda rank, number: rank == 0 or number >= 4,
    )
    assert analysis.ranks[1].collectives == STEPS - 4
    assert abs(analysis.ranks[1].offset_ns - 5 * MS) < JITTER


def test_missing_ones_inside_refuse_the_communicator() -> None:
    """Half of the rest would be matched with its neighbor."""
    analysis = analyzed(recorded=lambda rank, number: rank == 0 or number != STEPS // 2)
    assert analysis.ranks == ()
    assert (
        f"the collectives of group default_pg do not match between ranks ({STEPS}, {STEPS - 1}"
        " recorded)" in " ".join(analysis.notes)
    )


def test_missing_ones_inside_do_not_matter_where_each_has_its_number() -> None:
    analysis = analyzed(
        numbered=True, recorded=lambda rank, number: rank == 0 or number != STEPS // 2
    )
    assert analysis.ranks[0].collectives == STEPS - 1
    assert charged(analysis) > (STEPS - 2) * 4 * MS - STEPS * JITTER


def test_another_group_survives_a_refused_one() -> None:
    talks = [Talk((0, 1), group="data"), Talk((0, 1), group="tensor", stream=21)] * STEPS
    run = members(talks, uneven, recorded=lambda rank, number: rank == 0 or number != STEPS)
    analysis = analyze_ranks(run)
    assert [item.collectives for item in analysis.ranks] == [STEPS] * 2
    assert len(analysis.notes) == 1
    assert "group data do not match" in analysis.notes[0]


def test_other_sizes_are_other_collectives() -> None:
    """The shift is clear from the sizes alone, though the steps are alike."""
    talks = [Talk((0, 1), bytes=1 << (number % 7)) for number in range(STEPS)]
    analysis = analyze_ranks(
        members(talks, even, wall=False, recorded=lambda rank, number: rank == 0 or number >= 3)
    )
    assert analysis.ranks[0].collectives == STEPS - 3
    assert abs(analysis.ranks[1].offset_ns) < JITTER


@pytest.mark.parametrize("group", [None, "tensor_parallel"])
def test_groups_of_one_name_or_none_are_told_apart_by_their_ends(group: str | None) -> None:
    """Two pairs of ranks, each with its own communicator."""
    talks = [Talk((0, 1), group=group), Talk((2, 3), group=group)] * STEPS

    def before(rank: int, number: int) -> tuple[dict[Cause, int], int]:
        busy = 10 * MS + int(np.random.default_rng([rank // 2, number]).integers(0, 3 * MS))
        return ({Cause.INPUT: 4 * MS} if rank in (0, 2) else {}), busy

    analysis = analyze_ranks(members(talks, before, ranks=4))
    assert {item.late_rank for item in analysis.blames[1].charges} == {"rank 0"}
    assert {item.late_rank for item in analysis.blames[3].charges} == {"rank 2"}
    assert [item.collectives for item in analysis.ranks] == [STEPS] * 4


def test_an_all_to_all_that_shows_as_pairs_is_matched_by_its_ends() -> None:
    analysis = analyzed(
        talk=Talk(
            (0, 1), kernel="ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", group=None
        )
    )
    assert analysis.ranks[0].collectives == STEPS
    assert abs(charged(analysis) - STEPS * 4 * MS) < STEPS * JITTER


def test_sends_to_different_ranks_are_not_matched() -> None:
    """A pipeline: rank 1 talks to 0 and to 2 through one group and one stream."""
    send = "ncclDevKernel_SendRecv"
    talks = [Talk((0, 1), send, "pp"), Talk((1, 2), send, "pp")] * STEPS
    analysis = analyze_ranks(members(talks, uneven, ranks=3))
    assert analysis.ranks == ()
    assert all(
        item.late_rank == "ranks that are not in this analysis"
        for blame in analysis.blames
        for item in blame.charges
    )


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclWorkElem)", "reducescatter"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "allreduce"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("ncclDevKernel_SendRecv", "sendrecv"),
        ("ncclDevKernel_Generic(ncclDevComm*)", ""),
        ("nccl:all_gather_into_tensor", "allgather"),
    ],
)
def test_families(kernel: str, expected: str) -> None:
    assert collective_family(kernel) == expected


def pair(**changes: Any) -> list[RankDevice]:
    return members([Talk((0, 1))] * STEPS, uneven, **changes)


def on(member: RankDevice, **origin: Any) -> RankDevice:
    return replace(
        member, trace=replace(member.trace, origin=replace(member.trace.origin, **origin))
    )


def test_another_world_size_is_another_run() -> None:
    a, b = pair(world_size=2)
    b = replace(b, trace=replace(b.trace, metadata={"world_size": 8}))
    with pytest.raises(
        TraceError,
        match=r"one world size, got 2 in rank0\.json and 8 in rank1\.json; analyze each run",
    ):
        analyze_ranks([a, b])


def test_a_rank_given_twice() -> None:
    a, b = pair()
    with pytest.raises(
        TraceError, match=r"given once, got rank 0 in rank0\.json and in rank1\.json; analyze them"
    ):
        analyze_ranks([a, replace(b, rank=0)])
    assert analyze_ranks(
        [a, replace(b, trace=a.trace, rank=0)]
    ).ranks  # one process may drive several devices


@pytest.mark.parametrize("hours", [3, -3])
def test_recorded_at_other_times(hours: int) -> None:
    a, b = pair()
    base = b.trace.origin.wall_ns or 0
    with pytest.raises(
        TraceError,
        match=r"at the same time, got rank0\.json and rank1\.json 3 hours apart; record the",
    ):
        analyze_ranks([a, on(b, wall_ns=base + hours * 3_600_000 * MS)])


def test_nothing_in_common_is_told() -> None:
    a, b = members([Talk((0,), group="a"), Talk((1,), group="b")] * STEPS, uneven)
    analysis = analyze_ranks([a, b])
    assert analysis.ranks == ()
    assert "no collective in common" in analysis.notes[0]
    assert len(analysis.notes) == 3  # and both are estimated


def test_absent_ranks_are_told() -> None:
    analysis = analyze_ranks(pair(world_size=8))
    assert analysis.notes[0].startswith(
        "2 of 8 ranks are here (0, 1): waits for the others are estimates"
    )
    assert analysis.ranks


def test_waits_for_absent_ranks_are_estimated() -> None:
    """Rank 2, absent, loads for 9 ms before every second collective; of 0 and 1 it is 0, by 4."""

    def before(rank: int, number: int) -> tuple[dict[Cause, int], int]:
        late = {0: 4 * MS, 2: 9 * MS * (number % 2)}.get(rank, 0)
        return {Cause.INPUT: late} if late else {}, 10 * MS

    run = members([Talk((0, 1, 2))] * STEPS, before, ranks=3, world_size=3)
    both, alone = analyze_ranks(run), analyze_ranks(run[:2])
    assert both.blames[1].comm_wait > STEPS * 4 * MS
    charges = {(item.late_rank, item.cause): item.ns for item in alone.blames[1].charges}
    assert abs(charges["rank 0", Cause.INPUT] - STEPS * 4 * MS) < STEPS * JITTER
    assert abs(charges[ABSENT_RANKS, None] - STEPS // 2 * 5 * MS) < STEPS * JITTER
    assert {item.late_rank for item in alone.blames[0].charges} == {ABSENT_RANKS}


def test_a_loose_clock_is_told() -> None:
    """Ends that differ by 0.36 ms from step to step."""
    a, b = pair()
    comm = b.trace.ops.kind == 1
    wobble = np.where(comm & (np.cumsum(comm) % 2 == 0), 360_000, 0)
    loose = replace(
        b, trace=replace(b.trace, ops=replace(b.trace.ops, end=b.trace.ops.end + wobble))
    )
    analysis = analyze_ranks([a, loose])
    assert any("its clock is known to within 0.2 ms" in note for note in analysis.notes)


def test_clocks_that_drift_apart() -> None:
    """By 50 parts in a million, over a minute."""
    talks = [Talk((0, 1))] * 500

    def before(rank: int, number: int) -> tuple[dict[Cause, int], int]:
        return ({Cause.INPUT: 4 * MS} if rank == 0 else {}), 100 * MS + number % 7 * MS

    a, b = members(talks, before)
    ops = b.trace.ops
    slow = replace(ops, start=ops.start + ops.start // 20_000, end=ops.end + ops.end // 20_000)
    analysis = analyze_ranks([a, replace(b, trace=replace(b.trace, ops=slow))])
    assert analysis.ranks[0].collectives == 500
    assert any("its clock is known to within 0." in note for note in analysis.notes)
