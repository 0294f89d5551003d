"""Progress: what this run does counts, not what was there; a picture, lines, and a log."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from fastfeed.errors import ConfigError
from fastfeed.faults import format_reasons
from fastfeed.preprocess.job.progress import SpeedMeter, format_line, render, show_progress
from fastfeed.preprocess.model.report import Progress, format_duration
from fastfeed.printable import format_size

BEGUN = Progress("shards", 4, 10, 4, 400, 1000, 400, seconds=2.0)
LATER = replace(
    BEGUN, shards_done=7, images_done=700, bytes_in=90_000_000, bytes_out=6_000_000, seconds=12.0
)


def pace(*news: Progress):
    it = SpeedMeter()
    return [it(one) for one in news][-1]


def test_speed_is_of_this_run_since_its_first_shard_was_begun():
    speed = pace(BEGUN, LATER)
    assert (speed.images, speed.bytes_in, speed.bytes_out, speed.left_s) == (30, 9e6, 6e5, 10)


def test_bytes_are_divided_by_the_time_in_which_they_were_made():
    """They are counted by whole shards: between these they must not seem to slow down."""
    assert pace(BEGUN, LATER, replace(LATER, images_done=760, seconds=14.0)).bytes_in == 9e6


def test_another_phase_begins_again():
    survey = Progress("survey", 0, 5, 0, 0, 1000, 0)
    assert pace(survey, replace(survey, images_done=900, seconds=1.0), BEGUN, LATER).images == 30


def test_nothing_is_known_at_first_and_nothing_is_left_at_last():
    assert pace(BEGUN).left_s is None
    assert pace(replace(BEGUN, images_done=1000)).left_s == 0


def test_the_picture_fits_the_terminal():
    bad = replace(LATER, bad=Counter(truncated=8, corrupt=1200, io_error=1))
    for width in (40, 80, 200):
        console = Console(file=io.StringIO(), width=width, force_terminal=False)
        console.print(render(bad, pace(BEGUN, bad), width))
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert len(lines) == 4 and max(map(len, lines)) <= width
        assert "70.0%" in lines[0] and "10 s left" in lines[0]
        assert lines[1].startswith("7 of 10 shards, 700 of 1,000 images")
    assert "30.0 images/s, 9.0 MB/s in, 600 kB/s out" in lines[2]
    assert lines[3] == "1,209 bad: 1,200 corrupt, 8 truncated, 1 io_error"


def test_a_line_says_all_of_it():
    survey = Progress("survey", 1, 5, 0, 200, 1000, 0, seconds=1.0)
    assert format_line(survey, pace(survey)) == "survey: 200 of 1,000 images"
    bad = replace(LATER, bad=Counter(timeout=2))
    assert (
        format_line(bad, pace(BEGUN, bad))
        == "7 of 10 shards, 700 of 1,000 images, 30.0 images/s, 9.0 MB/s in, 600 kB/s out, 10 s"
        " left, 2 bad (2 timeout)"
    )


def test_lines_now_and_then_where_there_is_no_terminal():
    out = io.StringIO()
    with show_progress(Console(file=out, force_terminal=False, width=80)) as tell:
        for tenth in range(250):
            tell(replace(BEGUN, images_done=400 + tenth, seconds=tenth / 10))
    assert [text.split(",")[1].split()[0] for text in out.getvalue().splitlines()] == [
        "400",
        "500",
        "600",
    ]


def test_a_terminal_is_left_as_it_was():
    out = io.StringIO()
    with show_progress(Console(file=out, force_terminal=True, width=80, height=24)) as tell:
        tell(BEGUN)
        tell(LATER)
    written = out.getvalue()
    assert "7 of 10 shards" in written and "\x1b[?25l" in written
    # lines erased, the cursor back
    assert written.rstrip().endswith("\x1b[2K") and "\x1b[?25h" in written


def test_the_log_has_a_line_per_shard(tmp_path):
    log, quiet = tmp_path / "log.jsonl", Console(file=io.StringIO())
    for _ in range(2):  # a second run adds to it
        with show_progress(quiet, log, clock=lambda: 1.5) as tell:
            tell(BEGUN)
            tell(replace(BEGUN, images_done=450, seconds=5.0))
            tell(LATER)
    lines = [json.loads(text) for text in log.read_text().splitlines()]
    assert [found["shards_done"] for found in lines] == [4, 7, 4, 7]
    assert (
        lines[1]["images_per_s"] == 30
        and lines[1]["bytes_in_per_s"] == 9_000_000
        and lines[1]["time"] == 1.5
    )
    assert lines[0]["seconds_left"] is None and lines[1]["shards_before"] == 4
    with pytest.raises(
        ConfigError, match=r"cannot write the log .*: No such file or directory; name a file in"
    ):
        show_progress(quiet, tmp_path / "none" / "log").__enter__()


def test_words():
    assert [format_duration(s) for s in (0.4, 59, 61, 3725, 200_000)] == [
        "0 s",
        "59 s",
        "1:01 min",
        "1:02:05 h",
        "2 d 7 h",
    ]
    assert [format_size(n) for n in (0, 999, 1000, 12_345, 999_960, 2.5e12, 9e17)] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "12.3 kB",
        "1.0 MB",
        "2.5 TB",
        "900 PB",
    ]
    assert (
        format_reasons({"a": 1, "b": 1, "c": 5, "d": 2, "e": 3, "f": 1}, 4)
        == "5 c, 3 e, 2 d, 1 a, 2 others"
    )
