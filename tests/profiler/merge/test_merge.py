"""The feed's timeline within a GPU trace: whose it is, when it was, and nothing twice."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.profiler.nvprof_prints import CALLS, CSV

from fastfeed.profiler.merge.merge import combine, merge
from fastfeed.profiler.model.trace import (
    Calls,
    Ops,
    Origin,
    Overheads,
    Process,
    RangeKind,
    Ranges,
    Thread,
    Trace,
    table,
)
from fastfeed.profiler.readers.nvprof import text as nvprof_text

WALL = 1_700_000_000_000_000_000
MS = 1_000_000
# no two steps alike
STEPS = np.arange(12) * 10 * MS + np.array([0, 1, 7, 2, 9, 4, 4, 8, 1, 5, 2, 6]) * 100_000


def gpu(
    *,
    wall: int | None = WALL,
    pid: int = 100,
    tids: tuple[int, ...] = (100,),
    nvtx: int | None = None,
) -> Trace:
    """A process that launches work in each step; with `nvtx` waits are in the trace, that late."""
    names = ["kernel", "cudaLaunchKernel", "fastfeed:wait"]
    ops = table(
        Ops,
        start=STEPS + 6 * MS,
        end=STEPS + 9 * MS,
        device=0,
        process=0,
        stream=7,
        name=0,
        corr=STEPS,
    )
    calls = table(
        Calls,
        start=STEPS + 5 * MS,
        end=STEPS + 5 * MS + 9,
        thread=len(tids) - 1,
        name=1,
        corr=STEPS,
    )
    ranges = table(Ranges)
    if nvtx is not None:
        start, end = STEPS + MS + nvtx, STEPS + 4 * MS + nvtx + 700
        ranges = table(
            Ranges, start=start, end=end, thread=0, name=2, kind=np.full(12, RangeKind.FEED)
        )
    return Trace(
        Origin("gpu.sqlite", "nsys", wall_ns=wall),
        tuple(names),
        (Process(pid, "node", rank=0),),
        tuple(Thread(0, tid) for tid in tids),
        (),
        ops,
        calls,
        ranges,
        # when the recording begins
        overheads=table(Overheads, start=np.array([0]), end=np.array([9]), process=0),
    )


def feed(
    *, wall: int | None = WALL, pid: int = 100, host: str = "node", rank: int = 0, shift: int = 0
) -> Trace:
    """Per step a wait of 3 ms of the trainer, and a decode of 8 ms on another thread.

    The clock begins 1 s earlier.
    """
    start = np.concatenate([STEPS + MS, STEPS]) + 1_000 * MS + shift
    end = np.concatenate([STEPS + 4 * MS, STEPS + 8 * MS]) + 1_000 * MS + shift
    ranges = table(
        Ranges,
        start=start,
        end=end,
        thread=np.repeat([0, 1], 12),
        name=np.repeat([1, 0], 12),
        kind=np.full(24, RangeKind.FEED),
    )
    told = {"feed": "f0", "pid": pid, "host": host, "rank": rank, "name": "train"}
    return Trace(
        Origin("feed.jsonl", "timeline", wall_ns=wall and wall - 1_000 * MS, host_calls=False),
        ("fastfeed:decode", "fastfeed:wait"),
        (Process(pid, host, rank=rank),),
        (Thread(0, 100), Thread(0, 107)),
        ranges=ranges,
        metadata={"feeds": [told]},
    )


def added(trace: Trace) -> dict[str, list[tuple[int, int]]]:
    """Spans by name."""
    found: dict[str, list[tuple[int, int]]] = {}
    ranges = trace.ranges
    for name, start, end in zip(
        ranges.name.tolist(), ranges.start.tolist(), ranges.end.tolist(), strict=True
    ):
        found.setdefault(trace.name(name), []).append((start, end))
    return found


def test_by_the_wall_clock() -> None:
    merged = merge(gpu(), feed())
    spans = added(merged)
    assert spans["fastfeed:wait"] == [(start + MS, start + 4 * MS) for start in STEPS.tolist()]
    assert spans["fastfeed:decode"] == [(start, start + 8 * MS) for start in STEPS.tolist()]
    assert merged.threads == (Thread(0, 100), Thread(0, 107))
    assert set(merged.ranges.kind.tolist()) == {RangeKind.FEED} and merged.names[:3] == gpu().names
    assert merged.origin.notes == (
        "24 spans of the timeline feed.jsonl are added, lined up by the wall clock",
    )
    np.testing.assert_array_equal(merged.ops.start, gpu().ops.start)


def test_refined_and_not_twice() -> None:
    """Waits in the trace as NVTX, 30 us off by the wall clocks, stay; decode moves along."""
    trace = gpu(nvtx=30_000)
    merged = merge(trace, feed())
    spans = added(merged)
    assert spans["fastfeed:wait"] == added(trace)["fastfeed:wait"]
    assert spans["fastfeed:decode"] == [
        (start + 30_000, start + 8 * MS + 30_000) for start in STEPS.tolist()
    ]
    notes = " ".join(merged.origin.notes)
    assert "12 spans of the timeline" in notes and "refined by 12 NVTX ranges" in notes
    assert "12 spans of it are in the trace as NVTX ranges already" in notes


def test_ranges_that_both_have_are_told_whose_they_are() -> None:
    """NVTX does not say which feed of a process waits; the timeline does."""
    side = feed()
    side = replace(
        side, names=(*side.names, "f0"), ranges=replace(side.ranges, domain=np.full(24, 2))
    )
    trace = gpu(nvtx=30_000)
    merged = merge(trace, side)
    assert {merged.name(domain) for domain in merged.ranges.domain.tolist()} == {"f0"}
    assert set(trace.ranges.domain.tolist()) == {-1}, "the trace itself stays as it is"


@pytest.mark.parametrize("skip", [0, 3])
def test_by_the_pattern(skip: int) -> None:
    """Without a wall clock, by the distances of ranges in both; the trace may begin later."""
    trace = gpu(wall=None, nvtx=0)
    ranges = Ranges(**{name: getattr(trace.ranges, name)[skip:] for name in Ranges.__slots__})
    merged = merge(replace(trace, ranges=ranges), feed(wall=None))
    assert "by the pattern of" in merged.origin.notes[0]
    assert added(merged)["fastfeed:decode"] == [(start, start + 8 * MS) for start in STEPS.tolist()]


def test_no_clock() -> None:
    trace = gpu(wall=None)
    merged = merge(trace, feed())
    assert replace(merged, origin=trace.origin) is not merged and merged.ranges is trace.ranges
    assert re.search("is not used: neither a wall clock nor NVTX", merged.origin.notes[0])


@pytest.mark.parametrize(
    ("side", "note"),
    [
        (
            feed(shift=3_600_000 * MS),
            "it begins 3.6e+03 s after the trace ends; is it of this run?",
        ),
        (feed(shift=-3_600_000 * MS), "it ends 3.6e+03 s before the trace begins"),
        (feed(pid=5, rank=1), "it is of process 5, the trace of 100"),
        (feed(host="elsewhere", rank=1), "it is of process 100, the trace of 100"),
    ],
)
def test_not_of_this_trace(side: Trace, note: str) -> None:
    trace = gpu()
    merged = merge(trace, side)
    assert merged.ranges is trace.ranges and note in merged.origin.notes[0]


def test_by_rank() -> None:
    """Process ids differ where one of both was recorded inside a container."""
    merged = merge(gpu(), feed(pid=7))
    assert len(merged.ranges.start) == 24 and merged.threads == (Thread(0, 100), Thread(0, 107))
    assert "its process was matched by rank, the process ids differ" in merged.origin.notes


def test_host_names_long_and_short() -> None:
    assert len(merge(gpu(), feed(host="node.cluster.local")).ranges.start) == 24


def test_outside_of_the_trace() -> None:
    merged = merge(gpu(), feed(shift=-55 * MS))
    assert len(merged.ranges.start) < 24
    dropped = 24 - len(merged.ranges.start)
    assert (
        f"{dropped} spans of it are before or after the trace's time and are left out"
        in merged.origin.notes
    )


def test_threads_of_another_numbering() -> None:
    """nvprof has ids of pthreads: the trainer's calls follow the waits, busiest or not."""
    trace = gpu(tids=(0xAAAA, 0xBBBB))  # the calls are of the second
    backward = table(
        Calls,
        start=np.arange(500) * 100 + 9 * MS,
        end=np.arange(500) * 100 + 9 * MS + 50,
        thread=0,
        name=1,
    )
    both = {
        name: np.concatenate([getattr(trace.calls, name), getattr(backward, name)])
        for name in Calls.__slots__
    }
    merged = merge(replace(trace, calls=Calls(**both)), feed())
    waiting = merged.ranges.thread[
        [merged.name(name) == "fastfeed:wait" for name in merged.ranges.name]
    ]
    assert {merged.threads[thread].tid for thread in waiting} == {0xBBBB}
    assert any("is taken for the trace's thread" in note for note in merged.origin.notes)


def test_helper_process() -> None:
    """The processes that help a matched feed come along, those of other feeds do not."""
    side = feed()
    helper, other = Process(500, "node"), Process(900, "node", rank=1)
    about = {
        "feeds": [
            *side.metadata["feeds"],
            {"feed": "f0", "pid": 500, "host": "node", "rank": 0, "name": "train"},
            {"feed": "f1", "pid": 900, "host": "node", "rank": 1, "name": "train"},
        ]
    }
    thread = side.ranges.thread.copy()
    thread[-2:] = 3
    side = replace(
        side,
        processes=(*side.processes, helper, other),
        metadata=about,
        ranges=replace(side.ranges, thread=thread),
        threads=(Thread(0, 100), Thread(1, 501), Thread(2, 900), Thread(2, 901)),
    )
    merged = merge(gpu(), side)
    assert [process.pid for process in merged.processes] == [100, 500]
    assert merged.threads == (Thread(0, 100), Thread(1, 501)) and len(merged.ranges.start) == 22
    assert [feed["pid"] for feed in merged.metadata["feeds"]] == [100, 500]
    assert (
        "2 spans of it are of processes that are not in this trace and are left out"
        in merged.origin.notes
    )


def test_combine() -> None:
    trace, side = gpu(), feed()
    assert combine([side]) == [side] and combine([trace])[0] is trace
    (merged,) = combine([side, trace])
    assert len(merged.ranges.start) == 24


def printed(folder: Path, name: str, text: str) -> Trace:
    (folder / name).write_text(text)
    return nvprof_text.read(folder / name)


def test_each_rank_takes_its_own_timeline_and_says_nothing_of_the_others() -> None:
    ranks = [gpu(pid=100), gpu(pid=200, tids=(200,))]
    sides = [feed(pid=100), feed(pid=200, rank=1)]
    notes = [combine([*ranks, *sides])[at].origin.notes for at in range(2)]
    assert not any("not used" in note for said in notes for note in said)
    assert all(any("added" in note for note in said) for said in notes)
    (alone,) = combine([ranks[0], sides[1]])
    assert any("not used" in note for note in alone.origin.notes)


def test_printed_tables(tmp_path: Path) -> None:
    """--print-gpu-trace and --print-api-trace of one recording are one trace."""
    ops, calls = printed(tmp_path, "gpu.csv", CSV), printed(tmp_path, "api.csv", CALLS)
    (joined,) = combine([calls, ops])
    assert joined.origin.host_calls and len(joined.ops.start) == 2 and len(joined.calls.start) == 2
    assert [joined.name(name) for name in joined.calls.name] == [
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
    ]
    assert np.isin(joined.ops.corr, joined.calls.corr).all() and joined.threads == (Thread(0, 0),)
    other = printed(tmp_path, "other.csv", CALLS.replace("411", "412"))
    assert combine([ops, other]) == [ops, other]
    elsewhere = printed(
        tmp_path,
        "elsewhere.csv",
        CALLS.replace(",128", ",7").replace("135", "8").replace("[128]", ""),
    )
    assert len(combine([ops, elsewhere])) == 2
