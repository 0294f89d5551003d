"""Synthetic ranks of one run: their clocks, their lateness and its causes are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import Slices
from fastfeed.profiler.model.trace import Device, Kind, Ops, Origin, Process, Strings, Trace, table
from fastfeed.profiler.ranks.ranks import RankDevice

MS = 1_000_000
TRANSFER = 200_000  # ns of every collective once all are there

# rank, number of the talk -> idle ns by cause before it, then busy ns
Before = Callable[[int, int], tuple[dict[Cause, int], int]]


@dataclass(frozen=True, slots=True)
class Talk:
    """One collective of some ranks."""

    ranks: tuple[int, ...]
    kernel: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    group: str | None = "default_pg"
    bytes: int = 4096
    stream: int = 20


def members(
    talks: Sequence[Talk],
    before: Before,
    *,
    ranks: int = 2,
    skew: Sequence[int] = (),
    recorded: Callable[[int, int], bool] = lambda rank, number: True,
    numbered: bool = False,
    hidden: bool = False,
    computing: Callable[[int, int], int] = lambda rank, number: 0,
    wall: bool = True,
    world_size: int | None = None,
    seed: int = 0,
) -> list[RankDevice]:
    """One trace per rank.

    `skew` is added to a rank's clock; `recorded` selects the talks in a rank's trace; `hidden`
    computes on another stream all the time, `computing` is how long a rank does so from the talk's
    start; ends of one collective differ by up to 4 us.
    """
    draws = np.random.default_rng(seed)
    now = [TRANSFER] * ranks  # all start with some work together
    rows: list[list[tuple[int, int, Kind, int]]] = [
        [(0, TRANSFER, Kind.COMPUTE, -1)] for _ in range(ranks)
    ]
    idle: list[list[tuple[int, int, Cause]]] = [[] for _ in range(ranks)]
    for number, talk in enumerate(talks):  # rows: start, end, kind, number of the talk
        arrive = {}
        for rank in talk.ranks:
            lost, busy = before(rank, number)
            t = now[rank]
            for cause, ns in lost.items():
                idle[rank].append((t, t + ns, cause))
                t += ns
            rows[rank].append((t, t + busy, Kind.COMPUTE, -1))
            arrive[rank] = t + busy
        leave = max(arrive.values()) + TRANSFER
        for rank in talk.ranks:
            now[rank] = leave + int(draws.integers(0, 4_000))
            rows[rank].append((arrive[rank], now[rank], Kind.COMM, number))
            if computed := computing(rank, number):
                rows[rank].append((arrive[rank], arrive[rank] + computed, Kind.COMPUTE, -1))
    devices = []
    for rank in range(ranks):
        clock = skew[rank] if skew else 0
        if hidden:
            rows[rank].append((0, now[rank], Kind.COMPUTE, -1))
        recorded_rows = [
            row for row in rows[rank] if row[2] is not Kind.COMM or recorded(rank, row[3])
        ]
        devices.append(
            _member(rank, recorded_rows, idle[rank], talks, clock, wall, world_size, numbered)
        )
    return devices


def _member(
    rank: int,
    rows: list[tuple[int, int, Kind, int]],
    idle: list[tuple[int, int, Cause]],
    talks: Sequence[Talk],
    clock: int,
    wall: bool,
    world_size: int | None,
    numbered: bool,
) -> RankDevice:
    texts = Strings()
    start, end = (np.array([row[i] for row in rows], np.int64) + clock for i in (0, 1))
    row_talks = [talks[row[3]] if row[3] >= 0 else None for row in rows]
    ops = table(
        Ops,
        start=start,
        end=end,
        device=0,
        process=0,
        stream=np.array([talk.stream if talk else 7 for talk in row_talks]),
        kind=np.array([row[2] for row in rows]),
        name=texts.many(talk.kernel if talk else "gemm" for talk in row_talks),
        bytes=np.array([talk.bytes if talk else -1 for talk in row_talks]),
        group=texts.many(talk.group if talk else None for talk in row_talks),
        seq=np.array([row[3] if numbered else -1 for row in rows]),
    )
    trace = Trace(
        Origin(
            f"rank{rank}.json",
            "chrome",
            wall_ns=1_700_000_000_000_000_000 - clock if wall else None,
        ),
        tuple(texts.all),
        processes=(Process(100 + rank, rank=rank),),
        devices=(Device(0, process=0),),
        ops=ops,
        metadata={} if world_size is None else {"world_size": world_size},
    )
    idle = [item for item in idle if item[1] > item[0]]
    unknown = np.full(len(idle), -1, np.int32)
    slices = Slices(
        np.array([item[0] for item in idle], np.int64) + clock,
        np.array([item[1] for item in idle], np.int64) + clock,
        np.array([item[2] for item in idle], np.uint8),
        np.arange(len(idle), dtype=np.int32),
        unknown,
        unknown,
    )
    first, last = int(start.min()), int(end.max())
    return RankDevice(
        f"rank {rank}", trace, 0, slices, np.array([[first, last]]), first, last, rank
    )
