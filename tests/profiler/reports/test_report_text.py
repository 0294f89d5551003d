"""The report of one screen: what it says, that it fits, and that no name can break it."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.products import in_turn
from helpers.profiler import results_made
from helpers.profiler.handmade import TraceBuilder
from helpers.profiler.results_made import EVERY
from rich.cells import cell_len
from rich.console import Console

from fastfeed.profiler import analysis
from fastfeed.profiler.model.format import interval
from fastfeed.profiler.model.result import Result, Share
from fastfeed.profiler.model.trace import RangeKind
from fastfeed.profiler.reports.page import page
from fastfeed.profiler.reports.text import DEFAULT_LINES, render

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reading_a_report.md"


def printed(
    result: Result, width: int = 100, height: int | None = None, encoding: str = "utf-8"
) -> str:
    """What a file gets, or with a height a terminal without color."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    console = Console(
        file=file,
        width=width,
        height=height,
        force_terminal=height is not None,
        color_system=None,
        legacy_windows=False,
    )
    render(result, console)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize(
    ("name", "width"), in_turn(EVERY, [80, 100, 120, 200], pytest.mark.nightly)
)
def test_no_line_is_wider_than_the_console_nor_the_report_longer_than_a_page(
    name: str, width: int
) -> None:
    lines = printed(EVERY[name](), width).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert 1 <= len(lines) <= DEFAULT_LINES


@pytest.mark.parametrize(
    ("name", "size"), in_turn(EVERY, [(80, 24), (100, 40), (132, 30)], pytest.mark.nightly)
)
def test_fits_the_screen_with_its_prompt(name: str, size: tuple[int, int]) -> None:
    text = printed(EVERY[name](), *size)
    assert text.count("\n") < size[1]


def test_a_small_screen_still_has_all_that_matters() -> None:
    text = printed(results_made.one(), 80, 24)
    for sentence in (
        "SEVERELY STARVED",
        "34.0 %",
        "compute 57.9 %",
        "idle 38.2 %",
        "input wait",
        "29.45",
        "DataLoader.__next__",
        "Raise num_workers from 4 to 6",
        "1.51x",
        "fastfeed profile --steps 50",
        "hidden",
        "But",
        "Test ",
    ):
        assert sentence in text, sentence


def test_a_large_screen_says_what_ended_each_gap_and_in_which_step() -> None:
    text = " ".join(printed(results_made.one(), 120, 45).split())
    assert text.count("ended by Memcpy HtoD (Pageable -> Device)") == 3
    assert "MainThread (4011) in DataLoader.__next__ in ProfilerStep#13" in text
    assert "22 of 24 steps wait longer than 5 %" in text


def test_what_speaks_against_it_is_said_on_a_small_screen_of_many_ranks_too() -> None:
    text = printed(results_made.many(), 80, 24)
    assert "But" in text and "Test " in text and "Worst gaps" in text


def test_causes_come_largest_first_and_the_rest_is_summed() -> None:
    result = results_made.one()
    lines = printed(result, 80, 22).splitlines()
    titles = [cause.title for cause in result.devices[0].judged.causes]
    rows = [
        next((at for at, line in enumerate(lines) if line.strip().startswith(title)), None)
        for title in titles
    ]
    present = [row for row in rows if row is not None]
    assert present == sorted(present) and len(present) >= 3
    if len(present) < len(titles):
        assert any(f"{len(titles) - len(present)} more" in line for line in lines)


def test_an_abstention_says_why_and_how_to_record_better() -> None:
    text = printed(results_made.abstained(), 80, 24)
    assert "NO VERDICT" in text and "Only 41 % of the kernels have a launch" in text
    assert "torch.profiler.profile(activities" in text
    assert "Change" not in text and "Measure" not in text


def test_without_a_device_the_feed_is_reported() -> None:
    text = " ".join(printed(results_made.feed_only(), 80, 24).split())
    assert (
        "train: 64 batches in 9.00 s" in text
        and "waited 70.0 %" in text
        and "most work: decode" in text
    )
    assert "GPU time" not in text


def test_without_a_device_the_waits_of_the_host_are_reported() -> None:
    builder = TraceBuilder()
    for at in range(0, 10_000, 1_000):
        builder.range(at, at + 1_000, f"ProfilerStep#{at}", RangeKind.STEP)
        builder.range(
            at,
            at + 300,
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            RangeKind.NVTX,
        )
    text = " ".join(printed(analysis.analyze([builder.trace()]), 80, 24).split())
    assert "Evidence The host waited for input 30.0 % of the time of 10 marked steps" in text


def test_many_ranks_have_a_row_each_and_the_rest_a_summary() -> None:
    text = printed(results_made.many(64), 100)
    rows = [
        line
        for line in text.splitlines()
        if "GPU" in line and "%" in line and "NVIDIA" in line and "·" not in line
    ]
    assert 1 < len(rows) <= 10 and "rank 3" in rows[0]
    assert f"{64 - len(rows)} more: input" in text
    assert "inside collectives for rank 3, which was late: input wait" in " ".join(text.split())


def test_names_are_no_markup_and_move_no_cursor() -> None:
    text = printed(results_made.hostile(), 200)
    assert "[bold red]brackets[/]" in text
    assert "\x1b" not in text and "\u202e" not in text and "\x00" not in text


def test_a_terminal_gets_colors_and_a_file_none() -> None:
    file = io.StringIO()
    render(
        results_made.one(),
        Console(file=file, width=100, height=40, force_terminal=True, color_system="truecolor"),
    )
    assert "\x1b[38;2;229;72;77m" in file.getvalue()  # of input wait
    assert "\x1b" not in printed(results_made.one())


@pytest.mark.parametrize("name", EVERY)
def test_an_encoding_without_blocks_gets_plain_characters(name: str) -> None:
    text = printed(EVERY[name](), 80, 24, encoding="ascii")
    assert text.isascii()
    assert name in ("feed_only", "empty") or "#####" in text


@pytest.mark.parametrize(("name", "width"), in_turn(EVERY, [1, 7, 20, 40], pytest.mark.nightly))
def test_a_narrow_console_cuts_and_does_not_fail(name: str, width: int) -> None:
    assert all(cell_len(line) <= width for line in printed(EVERY[name](), width).splitlines())


def test_the_documentation_shows_this_very_report() -> None:
    present = DOCS.read_text(encoding="utf-8").split("```text\n")[1].split("```")[0].strip("\n")
    assert present == printed(results_made.one(), 80, 24).rstrip("\n")


def test_a_window_without_time_is_no_division_by_zero() -> None:
    result = results_made.one()
    device = result.devices[0]
    budget = replace(
        device.whole.budget, window=0, compute=0, comm=0, h2d=0, other=0, overhead=0, idle=0
    )
    nothing = replace(device.whole, budget=budget, causes={})
    blank = replace(device, whole=nothing, steady=None, worst=())
    assert "SEVERELY STARVED" in printed(replace(result, devices=(blank,)), 80, 24)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.0011, 0.0012, ""),
        (0.0, 0.0, ""),
        (None, 0.1, ""),
        (0.0014, 0.0016, "0.1 % to 0.2 %"),
        (0.0, 0.0001, "0.0 % to < 0.1 %"),
    ],
)
def test_an_interval_whose_ends_read_alike_is_left_out(
    low: float | None, high: float, said: str
) -> None:
    """Of a share that hardly varies: "0.1 % to 0.1 %" says nothing."""
    result = results_made.one()
    result = replace(result, verdict=replace(result.verdict, share=Share(0.0012, low, high)))
    assert interval(low, high) == said
    for report in (" ".join(printed(result).split()), page(result)):
        assert ("95 % interval" in report.split("GPU time")[0].split("<h2")[0]) == bool(said)
    assert said in printed(result)
