"""The page of a comparison: text, data, and in a browser both timelines, which begin in the same
step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.commands import CliRunner
from helpers.profiler import results_made as made
from helpers.profiler.browser import Browser, browser, found
from helpers.profiler.simulator.cases import ALL
from helpers.profiler.simulator.write import write

from fastfeed.cli import app
from fastfeed.profiler.compare.compare import compare
from fastfeed.profiler.reports.difference_page import page
from fastfeed.profiler.reports.page import MAX_BYTES

MS = made.MS
NO_BROWSER = "no Chromium; install it (Debian: apt-get install chromium)"


def better() -> str:
    return page(
        compare(made.result(made.device(wait=30 * MS)), made.result(made.device(wait=MS, seed=1)))
    )


def data(html: str) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])


@pytest.mark.parametrize("name", sorted(made.EVERY))
def test_every_result_makes_a_page(name: str):
    for sides in ((made.EVERY[name](), made.healthy()), (made.healthy(), made.EVERY[name]())):
        html = page(compare(*sides))
        assert len(html.encode()) < MAX_BYTES
        assert html.count("<script") == 2 and "<script>alert" not in html
        assert len(re.findall('<canvas class="device"', html)) == len(data(html)["devices"])


def test_both_sides_are_drawn_and_their_steps_aligned():
    drawn = data(better())
    assert drawn["aligned"] is True
    before, after = drawn["devices"]
    assert before["anchors"][0] == after["anchors"][0] == 0, "time 0 is the first steady step"
    assert before["anchors"][1] > after["anchors"][1], "steps were longer before"
    assert "Before: " in better() and "After: " in better()


def test_it_says_what_moved():
    html = better()
    headline = re.search("<h1>(.*?)</h1>", html)[1]
    assert headline.startswith("Step 1.") and "→" in headline and "-&gt;" not in headline
    for text in ("input wait", "95 % interval", "less", "within noise"):
        assert text in html


def test_the_command_writes_it(tmp_path: Path):
    sides = []
    for name in ("slow_loader", "healthy"):
        (tmp_path / name).mkdir()
        sides += [str(path) for path in write(ALL[name].make(0), "chrome", tmp_path / name)]
    html = tmp_path / "diff.html"
    done = CliRunner().invoke(app, ["diff", *sides, "--html", str(html)])
    assert done.exit_code == 0, done.output
    assert html.read_text("utf-8").count('<canvas class="device"') == 2
    assert CliRunner().invoke(app, ["diff", *sides, "--html", str(html)]).exit_code == 0, (
        "its own page may be replaced"
    )
    foreign = tmp_path / "notes.html"
    foreign.write_text("<title>Mine</title>")
    refused = CliRunner().invoke(app, ["diff", *sides, "--html", str(foreign)])
    assert refused.exit_code != 0
    assert foreign.read_text() == "<title>Mine</title>"


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.mark.skipif(found() is None, reason=NO_BROWSER)
@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_and_both_begin_in_the_same_step(chrome: Browser, tmp_path: Path, width: int):
    path = tmp_path / "diff.html"
    path.write_text(better(), "utf-8")
    views = (
        "[...document.querySelectorAll('canvas.device')].map(c => [+c.dataset.start,"
        " +c.dataset.end])"
    )
    before, after = data(better())["devices"]
    with chrome.tab(path, width, touch=width < 600) as tab:
        shown, room = tab.value(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert shown <= room == width
        tab.value("document.querySelector('[data-do=judged]').click()")
        tab.value("document.querySelector('[data-do=in]').click()")
        (a, b), (c, d) = tab.value(views)
        assert b - a == pytest.approx(d - c), "at one scale"
        step = max(number for number, start in enumerate(before["anchors"]) if start <= a)
        part = (a - before["anchors"][step]) / (
            before["anchors"][step + 1] - before["anchors"][step]
        )
        length = after["anchors"][step + 1] - after["anchors"][step]
        assert c == pytest.approx(after["anchors"][step] + part * length, abs=1)
        assert step > 0
        assert tab.complaints() == []
        assert tab.requests() == []
