"""The feed's own timeline: several feeds, processes and hosts in one file, lines that are torn or
unknown.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastfeed.errors import TraceError
from fastfeed.profiler.model.trace import Process, RangeKind, Thread, Trace
from fastfeed.profiler.readers import detect
from fastfeed.profiler.readers import fastfeed_timeline as timeline
from fastfeed.runtime.timeline import Span, Timeline

WALL = 1_700_000_000_000_000_000
MONO = 5_000_000_000


def header(
    feed: str = "f0", pid: int = 100, rank: int = 0, host: str = "node", name: str = "train"
) -> dict[str, Any]:
    return {
        "fastfeed_timeline": 1,
        "feed": feed,
        "pid": pid,
        "rank": rank,
        "host": host,
        "name": name,
    }


def span(
    stage: str, batch: int, start: int, end: int, tid: int = 100, feed: str = "f0"
) -> list[Any]:
    return [feed, "span", stage, batch, MONO + start, MONO + end, tid]


def anchor(feed: str = "f0", mono: int = MONO, wall: int = WALL) -> list[Any]:
    return [feed, "anchor", mono, wall]


def read(folder: Path, *lines: Any, end: bytes = b"") -> Trace:
    path = folder / "feed.jsonl"
    encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"".join(line + b"\n" for line in encoded) + end)
    return timeline.read(path)


def rows(trace: Trace) -> list[tuple[str, int, int, int]]:
    """(stage, start, end, pid), times since 1970."""
    found = trace.ranges
    wall = trace.origin.wall_ns or 0
    pids = [trace.processes[trace.threads[thread].process].pid for thread in found.thread.tolist()]
    named = [trace.name(name).removeprefix("fastfeed:") for name in found.name.tolist()]
    return list(
        zip(named, (found.start + wall).tolist(), (found.end + wall).tolist(), pids, strict=True)
    )


def test_what_a_feed_writes(tmp_path: Path) -> None:
    """By the writer itself: the format is described in one place and read in another."""
    path = tmp_path / "made.jsonl"
    clock = iter(range(1000, 10**6, 1000))
    made = Timeline(path, rank=3, name="train", clock=lambda: next(clock), wall=lambda: WALL)
    spans = [
        Span("read", 0, 2000, 2500, 7),
        Span("decode", 0, 2500, 4000, 8),
        Span("wait", 0, 2000, 4100, 9),
    ]
    for one in spans:
        made.record(one)
    made.close()
    assert detect(path) == "timeline"
    trace = timeline.read(path)
    assert sorted((trace.ranges.end - trace.ranges.start).tolist()) == [500, 1500, 2100]
    assert set(trace.ranges.kind.tolist()) == {RangeKind.FEED}
    assert trace.origin.wall_ns is not None and WALL - 10_000 < trace.origin.wall_ns <= WALL + 3000
    assert trace.processes[0].rank == 3 and trace.origin.notes == ()
    (feed,) = trace.metadata["feeds"]
    assert (feed["name"], feed["rank"]) == ("train", 3)


def test_hosts_with_other_clocks(tmp_path: Path) -> None:
    """Each is put on the wall clock by its own anchors."""
    trace = read(
        tmp_path,
        header(),
        anchor(),
        header("f1", 100, 1, "other"),
        anchor("f1", 77, WALL + 10),
        span("wait", 0, 0, 5),
        ["f1", "span", "wait", 4, 77, 99, 100],
    )
    assert rows(trace) == [("wait", WALL, WALL + 5, 100), ("wait", WALL + 10, WALL + 32, 100)]
    assert trace.processes == (
        Process(100, "node", "fastfeed feed train", 0),
        Process(100, "other", "fastfeed feed train", 1),
    )
    assert trace.threads == (Thread(0, 100), Thread(1, 100))


def test_helper_process(tmp_path: Path) -> None:
    """Lines name no process; those between two anchors were written by one."""
    trace = read(
        tmp_path,
        header(),
        anchor(),
        header(pid=500),
        anchor(),
        # 900 is the trainer's: it waited, too
        span("wait", 0, 0, 5, 100),
        span("place", 0, 1, 2, 900),
        anchor(),
        span("decode", 0, 3, 4, 501),
        span("read", 0, 3, 4, 500),
        anchor(),
        span("decode", 1, 6, 7, 501),
        anchor(),
        span("place", 1, 8, 9, 900),
        anchor(),
    )
    assert sorted((stage, pid) for stage, _, _, pid in rows(trace)) == [
        ("decode", 500),
        ("decode", 500),
        ("place", 100),
        ("place", 100),
        ("read", 500),
        ("wait", 100),
    ]
    assert [feed["pid"] for feed in trace.metadata["feeds"]] == [100, 500]


def test_clock_moves(tmp_path: Path) -> None:
    """Lengths stay what they are, and a note says that the wall clock moved."""
    anchors = [
        anchor(mono=MONO + k * 1000, wall=WALL + k * 1000 + (50_000_000 if k > 5 else 0))
        for k in range(9)
    ]
    trace = read(tmp_path, header(), *anchors, span("wait", 0, 0, 8000))
    assert (trace.ranges.end - trace.ranges.start).tolist() == [8000]
    assert any("moved by 50 ms" in note for note in trace.origin.notes)


@pytest.mark.parametrize(
    ("line", "note"),
    [
        (b"{half a line", "damaged JSON: 1 line skipped"),
        (b"[" * 100_000, "damaged JSON: 1 line skipped"),
        (
            json.dumps(["f0", "queue", 3]).encode(),
            "unknown kind, maybe of a newer fastfeed: 1 line skipped",
        ),
        (b"17", "unknown kind"),
        (json.dumps(span("wait", 0, 9, 3)).encode(), "end before they begin: 1 line"),
        (b'["f0", "span", "wait", 0, 1e9, 2e9, 100]', "impossible values"),
        (b'["f0", "span", "wait", 0, true, 2, 100]', "impossible values"),
        (b'["f0", "span", "wait", 0, 1, 99999999999999999999999, 100]', "impossible values"),
        (json.dumps(span("wait", 0, 0, 5)).encode(), "were there twice"),
        (json.dumps(["gone", "span", "wait", 0, 1, 2, 3]).encode(), "without a clock anchor"),
    ],
)
def test_odd_lines(tmp_path: Path, line: bytes, note: str) -> None:
    trace = read(tmp_path, header(), anchor(), line, span("wait", 0, 0, 5))
    assert rows(trace) == [("wait", WALL, WALL + 5, 100)]
    assert any(note in one for one in trace.origin.notes), trace.origin.notes


def test_torn_end(tmp_path: Path) -> None:
    trace = read(tmp_path, header(), anchor(), span("wait", 0, 0, 5), end=b'["f0", "span", "wa')
    assert rows(trace) == [("wait", WALL, WALL + 5, 100)]
    assert trace.origin.notes == ("the last line is torn: the run was killed, or is still running",)


def test_not_utf8(tmp_path: Path) -> None:
    named = json.dumps(header(name="QQ")).encode().replace(b"QQ", b"\xff\xfe")
    trace = read(tmp_path, named, anchor(), span("wait", 0, 0, 5))
    assert trace.metadata["feeds"][0]["name"] == "\ufffd\ufffd" and len(trace.ranges.start) == 1


def test_no_anchor(tmp_path: Path) -> None:
    trace = read(tmp_path, header(), span("wait", 0, 0, 5), span("read", 0, 7, 9))
    assert trace.origin.wall_ns is None and trace.ranges.start.tolist() == [0, 7]
    assert any("cannot be lined up" in note for note in trace.origin.notes)


def test_no_header(tmp_path: Path) -> None:
    trace = read(tmp_path, anchor(), span("wait", 0, 0, 5))
    assert rows(trace) == [("wait", WALL, WALL + 5, 0)]
    assert any("without a header" in note for note in trace.origin.notes)


def test_a_header_that_comes_late(tmp_path: Path) -> None:
    """Spans and anchors before it are of its process, whose threads are there once."""
    late = read(
        tmp_path, span("wait", 0, 0, 100), anchor(), header(pid=7), span("wait", 1, 200, 300)
    )
    assert (
        late.processes == (Process(7, "node", "fastfeed feed train", 0),) and len(late.threads) == 1
    )
    first = read(
        tmp_path, header(pid=7), span("wait", 0, 0, 100), anchor(), span("wait", 1, 200, 300)
    )
    assert rows(late) == rows(first)


def test_no_span(tmp_path: Path) -> None:
    trace = read(tmp_path, header(), anchor())
    assert not len(trace.ranges.start) and len(trace.metadata["feeds"]) == 1
    assert "no span" in trace.origin.notes[-1]


def test_no_timeline(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is not a timeline of fastfeed"):
        read(tmp_path, {"hello": 1}, [1, 2])
