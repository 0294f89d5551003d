"""The rank that the others wait for: slower kernels, another cause, or a new one in every step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.profiler.handmade import TraceBuilder
from helpers.profiler.manyranks import MS, Talk, members

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import ABSENT_RANKS, LateRank, PeerWait, Result
from fastfeed.profiler.model.trace import Device, Kind, Process, RangeKind, Trace
from fastfeed.profiler.ranks.ranks import analyze_ranks, kernel_ratios, late_ranks
from fastfeed.profiler.reports import document

STEPS = 24


def _rank(rank: int, computes: list[int], slowest: list[int], pieces: int = 4) -> Trace:
    """Steps with kernels of this length, and a collective that ends with the slowest rank's."""
    builder = TraceBuilder()
    at = 0
    for number, (own, longest) in enumerate(zip(computes, slowest, strict=True)):
        end = at + longest + MS
        builder.range(at, end, f"ProfilerStep#{number}", RangeKind.STEP)
        for piece in range(pieces):
            begin = at + own * piece // pieces
            builder.op(begin, at + own * (piece + 1) // pieces, (at, at + 9), name=f"layer {piece}")
        builder.op(at + own, end, (at + 9, at + 18), name="ncclAllReduce", kind=Kind.COMM, stream=9)
        at = end
    trace = builder.trace()
    return replace(
        trace,
        processes=(Process(1, "node", rank=rank),),
        devices=(Device(rank, process=0),),
        origin=replace(trace.origin, path=f"rank{rank}", wall_ns=0),
    )


def _analyzed(computes: list[list[int]]) -> Result:
    slowest = np.max(computes, axis=0).tolist()
    return analyze([_rank(rank, own, slowest) for rank, own in enumerate(computes)])


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_slower_gpu_is_named_by_everything(ranks: int):
    computes = [[10 * MS] * STEPS for _ in range(ranks)]
    computes[1] = [16 * MS] * STEPS
    result = _analyzed(computes)
    assert all(device.late_rank is not None for device in result.devices)
    late = result.devices[0].late_rank
    assert late is not None and (late.label, late.cause, late.changes) == (
        "rank 1, GPU 1",
        None,
        False,
    )
    assert result.ranks[1].kernels == late.kernels == pytest.approx(1.6 if ranks > 2 else 16 / 13)
    assert result.ranks[0].kernels == pytest.approx(1 if ranks > 2 else 10 / 13)
    assert "rank 1, GPU 1" in result.verdict.headline
    assert result.verdict.change.startswith("Check the GPU of rank 1, GPU 1")
    assert document.as_dict(result)["devices"][0]["late_rank"]["label"] == "rank 1, GPU 1"


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_uneven_batches_make_another_rank_late_in_every_step(ranks: int):
    computes = [
        [(16 if step % ranks == rank else 10) * MS for step in range(STEPS)]
        for rank in range(ranks)
    ]
    result = _analyzed(computes)
    late = result.devices[0].late_rank
    assert late is not None and late.changes
    assert late.share == pytest.approx(1 / ranks, abs=0.1)
    assert "changes from step to step" in result.verdict.headline
    assert result.verdict.change.startswith("Give all ranks equal work in each step")


def test_a_rank_that_is_late_for_another_reason_is_not_a_slower_gpu():
    talks = [Talk((0, 1, 2))] * 12
    run = members(
        talks, lambda rank, number: ({Cause.GC: 8 * MS} if rank == 2 else {}, 10 * MS), ranks=3
    )
    late = analyze_ranks(run).late[0]
    assert late is not None and (late.label, late.cause, late.changes) == (
        "rank 2",
        Cause.GC,
        False,
    )
    assert late.kernels == pytest.approx(1)


def test_a_rank_that_waits_for_another_than_the_others_sees_that_one():
    first, second = PeerWait("a", None, 90), PeerWait("b", Cause.SYNC, 30)
    seen = late_ranks([(first,), (second,), ()], {"a": 1.5})
    assert seen[0] == seen[2] == LateRank("a", None, 90, 0.75, False, 1.5)
    assert seen[1] == LateRank("b", Cause.SYNC, 30, 1.0, False, None)


def test_ranks_that_are_not_here_are_no_late_rank():
    assert late_ranks([(PeerWait(ABSENT_RANKS, None, 9),), ()], {}) == (None, None)


def _kernels(*rows: tuple[str, int, int]) -> tuple[Trace, np.ndarray]:
    """Kernels by name, count and length."""
    builder = TraceBuilder()
    at = 0
    for name, count, length in rows:
        for _ in range(count):
            builder.op(at, at + length, name=name)
            at += length
    return builder.trace(), np.arange(sum(count for _, count, _ in rows))


def test_kernels_are_compared_by_name_whatever_each_trace_calls_its_number():
    one, other = _kernels(("a", 10, 100), ("b", 10, 50)), _kernels(("b", 10, 75), ("a", 10, 150))
    assert kernel_ratios([one, one, other]) == (1, 1, 1.5)


def test_a_single_kernel_that_differs_is_no_slower_gpu():
    usual = _kernels(("a", 10, 100), ("b", 10, 50), ("c", 10, 50))
    odd = _kernels(("a", 10, 100), ("b", 10, 500), ("c", 10, 50))
    assert kernel_ratios([usual, usual, odd]) == (1, 1, 1)


@pytest.mark.parametrize(
    "other",
    [(("b", 10, 100),), (("a", 5, 100),), (("a", 10, 100), ("b", 30, 100)), ()],
    ids=["another name", "half as often", "much else", "nothing"],
)
def test_different_work_is_not_compared(other: tuple[tuple[str, int, int], ...]):
    assert kernel_ratios([_kernels(("a", 10, 100)), _kernels(*other)]) == (None, None)


def test_a_single_rank_has_no_one_to_compare_with():
    assert kernel_ratios([_kernels(("a", 10, 100))]) == (None,)
