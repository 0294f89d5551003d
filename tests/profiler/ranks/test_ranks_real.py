"""Waits inside NCCL in real runs: two ranks in one recording, and four GPUs of one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastfeed.profiler.model.result import Slices
from fastfeed.profiler.model.trace import Kind
from fastfeed.profiler.ranks.ranks import RankDevice, analyze_ranks
from fastfeed.profiler.readers import read

EMPTY = Slices(
    *(np.empty(0, dtype) for dtype in (np.int64, np.int64, np.uint8, np.int32, np.int32, np.int32))
)


def read_members(path: Path) -> list[RankDevice]:
    if not path.exists():
        pytest.skip(f"no {path}; set FASTFEED_TEST_DATA to the folder that holds traces/")
    trace = read(path)
    result = []
    for device in range(len(trace.devices)):
        here = trace.ops.device == device
        first, last = int(trace.ops.start[here].min()), int(trace.ops.end[here].max())
        result.append(
            RankDevice(
                f"GPU {device}", trace, device, EMPTY, np.array([[first, last]]), first, last
            )
        )
    return result


@pytest.fixture(scope="module")
def members(data: Path) -> list[RankDevice]:
    return read_members(data / "traces" / "nsys_sqlite" / "nsysai_mfu_2gpu_before.sqlite")


def test_waits_inside_nccl(members: list[RankDevice]) -> None:
    """Of 17.2 ms inside NCCL kernels rank 0 waits 10.9, and rank 1 waits 2.5 of 8.2."""
    result = analyze_ranks(members)
    assert [rank.collectives for rank in result.ranks] == [33, 33]
    assert [rank.waited_ns for rank in result.ranks] == [10_898_336, 2_477_480]
    assert [rank.blamed_ns for rank in result.ranks] == [2_477_480, 10_898_336]
    assert result.blames[0].charges[0].late_rank == "GPU 1"
    ops = members[0].trace.ops
    inside = [
        int((ops.end - ops.start)[(ops.kind == Kind.COMM) & (ops.device == gpu)].sum())
        for gpu in (0, 1)
    ]
    assert inside == [17_172_652, 8_229_100]


def test_all_leave_together(members: list[RankDevice]) -> None:
    """Both ends of an exchange are some 20 us apart, its starts up to 3 ms: matching needs that."""
    result = analyze_ranks(members)
    assert 9_000 < result.clocks[0].spread_ns < 25_000
    assert {clock.offset_ns for clock in result.clocks} == {0}
    assert not result.notes


def test_one_rank_alone_can_only_be_estimated(members: list[RankDevice]) -> None:
    result = analyze_ranks(members[:1])
    assert 10_000_000 < result.blames[0].comm_wait < 15_000_000
    assert "estimated" in result.notes[0]


def test_replicas_of_one_process_wait_for_the_last(data: Path) -> None:
    """DataParallel launches four replicas in turn: collectives wait for the fourth."""
    result = analyze_ranks(
        read_members(data / "traces" / "kineto" / "lotus_v100_imagenet_b128_gpu4.json.xz")
    )
    assert [rank.collectives for rank in result.ranks] == [96] * 4
    blamed = [rank.blamed_ns for rank in result.ranks]
    assert blamed[3] > 0.7 * sum(blamed)
    assert result.ranks[3].waited_ns < 0.2 * min(rank.waited_ns for rank in result.ranks[:3])
