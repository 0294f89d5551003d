"""The timeline: what is kept, what is written, and that shared files hold whole lines."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from pathlib import Path

import pytest
from PIL import Image

import fastfeed as ff
from fastfeed.feed.session import FeedSession
from fastfeed.runtime import timeline as module
from fastfeed.runtime.timeline import Span, Timeline
from fastfeed.system.clocks import steady_ns

SECOND = 1_000_000_000


class Clock:
    """Time that goes only when it is told to."""

    def __init__(self, now: int = 5 * SECOND) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def lines(path: Path) -> list:
    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def timeline(clock: Clock, path: Path | None = None, **more) -> Timeline:
    return Timeline(path, clock=clock, wall=lambda: clock.now + 10**18, **more)


def test_span_is_timed_by_the_clock(clock):
    line = timeline(clock)
    with line.span("decode", 7):
        clock.now += 30
    assert line.spans() == [
        Span("decode", 7, 5 * SECOND, 5 * SECOND + 30, threading.get_native_id())
    ]


def test_span_is_recorded_when_its_work_fails(clock):
    line = timeline(clock)
    with pytest.raises(ZeroDivisionError), line.span("decode", 0):
        clock.now += 4
        raise ZeroDivisionError
    assert line.totals() == {"decode": (1, 4)}


def test_ring_keeps_the_newest_and_totals_keep_all(clock):
    line = timeline(clock, capacity=3)
    for i in range(10):
        line.record(Span("read" if i % 2 else "wait", i, i, i + 2, 1))
    assert [span.batch for span in line.spans()] == [7, 8, 9]
    assert line.totals() == {"wait": (5, 10), "read": (5, 10)}


def test_file_holds_head_anchors_and_spans(clock, tmp_path):
    line = timeline(clock, tmp_path / "t.jsonl", rank=3, name="train")
    line.record(Span("read", 0, 1, 2, 11))
    clock.now += SECOND
    line.record(Span("decode", 0, 2, clock.now, 12))  # a second since the last anchor: another one
    line.record(Span("decode", 1, 3, 4, 12))
    line.close()
    head, *rest = lines(tmp_path / "t.jsonl")
    feed = head["feed"]
    assert head == {"fastfeed_timeline": 1, "feed": feed, "pid": os.getpid(), "rank": 3} | {
        "host": head["host"],
        "name": "train",
    }
    assert rest == [
        [feed, "anchor", 5 * SECOND, 5 * SECOND + 10**18],
        [feed, "span", "read", 0, 1, 2, 11],
        [feed, "span", "decode", 0, 2, 6 * SECOND, 12],
        [feed, "anchor", 6 * SECOND, 6 * SECOND + 10**18],
        [feed, "span", "decode", 1, 3, 4, 12],
        [feed, "anchor", 6 * SECOND, 6 * SECOND + 10**18],
    ]


def test_file_gets_all_spans_whatever_the_ring_keeps(clock, tmp_path):
    line = timeline(clock, tmp_path / "t.jsonl", capacity=2)
    for i in range(100):
        line.record(Span("read", i, 0, 1, 1))
    line.close()
    assert [row[3] for row in lines(tmp_path / "t.jsonl")[1:] if row[1] == "span"] == list(
        range(100)
    )


def test_head_is_there_at_once(clock, tmp_path):
    line = timeline(clock, tmp_path / "t.jsonl")
    assert len(lines(tmp_path / "t.jsonl")) == 2
    line.close()


def test_closed_timeline_continues_in_memory(clock, tmp_path):
    line = timeline(clock, tmp_path / "t.jsonl")
    line.close()
    line.close()
    written = lines(tmp_path / "t.jsonl")
    line.record(Span("read", 0, 0, 1, 1))
    assert len(line.spans()) == 1
    del line
    gc.collect()
    assert lines(tmp_path / "t.jsonl") == written


def test_garbage_collection_writes_what_is_pending(clock, tmp_path):
    line = timeline(clock, tmp_path / "t.jsonl")
    line.record(Span("read", 0, 0, 1, 1))
    del line
    gc.collect()
    assert [row[1] for row in lines(tmp_path / "t.jsonl")[1:]] == ["anchor", "span", "anchor"]


def test_interpreter_exit_writes_what_is_pending(tmp_path, python):
    path = tmp_path / "t.jsonl"
    done = python(
        "import sys; from fastfeed.runtime.timeline import *; "
        "t = Timeline(sys.argv[1]); t.record(Span('read', 0, 0, 1, 1))",
        path,
    )
    assert done.returncode == 0, done.stderr
    assert [row[1] for row in lines(path)[1:]] == ["anchor", "span", "anchor"]


def test_a_forked_child_writes_nothing_twice(tmp_path, python):
    """What was pending at the fork belongs to the parent."""
    path = tmp_path / "t.jsonl"
    done = python(
        "import os, sys\n"
        "from fastfeed.runtime.timeline import *\n"
        "t = Timeline(sys.argv[1])\n"
        "t.record(Span('read', 0, 0, 1, 1))\n"
        "child = os.fork()\n"
        "if child: os.waitpid(child, 0)\n",
        path,
    )
    assert done.returncode == 0, done.stderr
    assert [row[1] for row in lines(path)[1:]].count("span") == 1


def test_writers_share_a_path(clock, tmp_path):
    """Two feeds, two threads each, one file: every line is whole, and every span is there."""
    path = tmp_path / "t.jsonl"
    writers = [Timeline(path, name=name) for name in "ab"]

    def write(line: Timeline, thread: int) -> None:
        for i in range(300):  # an end a second later each time makes it write at once
            line.record(Span("decode", i, 0, line.clock() + 2 * SECOND, thread))

    threads = [threading.Thread(target=write, args=(line, n)) for line in writers for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for line in writers:
        line.close()
    rows = lines(path)
    feeds = {row["feed"]: row["name"] for row in rows if isinstance(row, dict)}
    assert sorted(feeds.values()) == ["a", "b"]
    spans = [
        (feeds[row[0]], row[6], row[3])
        for row in rows
        if isinstance(row, list) and row[1] == "span"
    ]
    assert sorted(spans) == [(name, n, i) for name in "ab" for n in (1, 2) for i in range(300)]


def test_nvtx_ranges_are_balanced(clock):
    class Nvtx:
        calls: list[str] = []

        def push_range(self, name):
            self.calls.append(name)

        def pop_range(self):
            self.calls.append("pop")

    line = timeline(clock)
    line.nvtx = Nvtx()
    with pytest.raises(KeyError), line.span("read", 0), line.span("decode", 0):
        raise KeyError
    assert Nvtx.calls == ["fastfeed:read", "fastfeed:decode", "pop", "pop"]


def test_a_file_that_is_full_is_renamed_and_said(tmp_path, monkeypatch, caplog):
    """By one of its writers; the others follow, each with its header, and no span is lost or
    written twice.
    """
    monkeypatch.setattr(module, "_LIMIT", 6000)
    path, parts = tmp_path / "t.jsonl", []
    writers = [Timeline(path, name=name) for name in "ab"]
    replace = os.replace

    def kept(source, target):
        if os.path.exists(
            target
        ):  # about to be deleted; the other writer may have added to it since it was renamed
            parts.append(lines(Path(target)))
        replace(source, target)

    monkeypatch.setattr(module.os, "replace", kept)

    for i in range(200):  # an end a second later each time makes each write at once
        for line in writers:
            line.record(Span("decode", i, 0, line.clock() + 2 * SECOND, 1))
    for line in writers:
        line.close()
    assert len(parts) > 2 and sorted(os.listdir(tmp_path)) == ["t.jsonl", "t.jsonl.1"]
    assert all(file.stat().st_size < 8000 for file in tmp_path.iterdir())
    told = [record.getMessage() for record in caplog.records]
    assert (
        len(told) == len(parts) + 1
        and f"this part is {path}.1, and earlier parts are deleted" in told[0]
    )
    found: list[tuple[str, int]] = []
    for part in (*parts, lines(Path(f"{path}.1")), lines(path)):
        names: dict[str, str] = {}
        for row in part:
            if isinstance(row, dict):
                assert names.setdefault(row["feed"], row["name"]) == row["name"]
            elif row[1] == "span":
                found.append((names[row[0]], row[3]))  # its header came before
    assert sorted(found) == [(name, i) for name in "ab" for i in range(200)]


def test_what_is_no_file_is_not_renamed(tmp_path, monkeypatch, clock):
    monkeypatch.setattr(module, "_LIMIT", 10)
    target = tmp_path / "target"
    target.touch()
    (tmp_path / "link").symlink_to(target)
    line = timeline(clock, tmp_path / "link")
    for i in range(3):
        line.record(Span("read", i, 0, clock() + (i + 1) * 2 * SECOND, 1))
    line.close()
    assert sorted(os.listdir(tmp_path)) == ["link", "target"]
    assert sum(row[1] == "span" for row in lines(target)[1:]) == 3


def test_a_full_disk_does_not_end_the_run(tmp_path, clock, monkeypatch):
    timeline = Timeline(tmp_path / "t.jsonl", clock=clock)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.warns(RuntimeWarning, match="spans are missing from the timeline.*No space left"):
        timeline.record(Span("read", 0, 0, clock() + 5_000_000_000, 1))
    timeline.record(Span("read", 1, 0, clock() + 9_000_000_000, 1))  # warned once
    timeline.close()
    assert timeline.totals()["read"][0] == 2


def test_python_and_native_code_share_a_clock(tmp_path, monkeypatch):
    """On Windows before Python 3.13 time.monotonic_ns is not that of native threads: it must not be
    asked.
    """
    for number in range(4):
        # PNG: decoded in Python
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.{'png' if number % 2 else 'jpg'}")
    monkeypatch.setattr(time, "monotonic_ns", lambda: 7)
    begun = steady_ns()
    with ff.Feed(
        ff.ImageFolder(tmp_path, labeled=False), [ff.Resize((8, 8))], batch=4, threads=1
    ) as feed:
        next(iter(feed))
        spans = FeedSession.of(feed).timeline.spans()
    now = steady_ns()
    assert {"read", "decode", "wait"} <= {span.stage for span in spans}
    assert all(begun <= span.start_ns <= span.end_ns <= now for span in spans)
