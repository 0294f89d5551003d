"""The page in a browser: nothing overflows, nothing is asked for, and pointing at a gap names its
cause.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.products import in_turn
from helpers.profiler import results_made
from helpers.profiler.browser import Browser, Tab, browser, found
from helpers.profiler.results_made import EVERY
from helpers.profiler.screenshots import take

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import DeviceResult
from fastfeed.profiler.reports.page import page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        found() is None, reason="no Chromium; install it (Debian: apt-get install chromium)"
    ),
]

WIDTHS = (360, 1280)
TIP = "document.getElementById('tip')"
INPUT = Cause.INPUT.title
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name, make in {**EVERY, "crowded": lambda: results_made.crowded(50_000)}.items():
        made[name] = folder / f"{name}.html"
        made[name].write_text(page(make()), encoding="utf-8")
    return made


def at(
    tab: Tab, time: int, device: DeviceResult, canvas: str = "canvas.device"
) -> tuple[float, float]:
    """Where a time of the first device is on the screen, in the middle lane of its picture."""
    tab.value(f"document.querySelector('{canvas}').scrollIntoView({{block: 'center'}})")
    left, top, width, low, high = tab.value(
        "(c => { const r = c.getBoundingClientRect(); return [r.left, r.top, r.width,"
        f" +c.dataset.start, +c.dataset.end]; }})(document.querySelector('{canvas}'))"
    )
    return left + (time - device.first - low) / (high - low) * width, top + 40


def middle(device: DeviceResult) -> int:
    """The middle of the longest gap of the verdict."""
    return (device.worst[0].start + device.worst[0].end) // 2


def tip(tab: Tab) -> str:
    return "" if tab.value(f"{TIP}.hidden") else tab.value(f"{TIP}.innerText")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("name", "width"), in_turn([*EVERY, "crowded"], WIDTHS, pytest.mark.nightly)
)
def test_fits_its_width_without_a_complaint_or_a_request(
    chrome: Browser, pages: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    with chrome.tab(pages[name], width, dark=dark, touch=width < 600) as tab:
        shown, room = tab.value(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert shown <= room == width
        over = f"e.getClientRects().length && e.getBoundingClientRect().right > {width} + 0.5"
        most = "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, svg'))"
        wide = tab.value(f"{most}.filter(e => {over}).map(e => e.outerHTML.slice(0, 99))")
        assert wide == []
        assert tab.value("getComputedStyle(document.body).backgroundColor") == (
            "rgb(20, 23, 28)" if dark else "rgb(255, 255, 255)"
        )
        assert tab.complaints() == []
        assert tab.requests() == []


@pytest.mark.parametrize("name", ["one", "crowded", "hostile", "many"])
def test_pointing_at_a_gap_names_its_cause(
    chrome: Browser, pages: dict[str, Path], name: str
) -> None:
    make = {**EVERY, "crowded": lambda: results_made.crowded(50_000)}[name]
    device = max(make().devices, key=lambda one: one.share.value)
    with chrome.tab(pages[name], 1280) as tab:
        if name == "crowded":  # 5 ms of minutes: close up first
            tab.value("document.querySelector('[data-show]').click()")
        x, y = at(tab, middle(device), device)
        tab.hover(x, y)
        text = tip(tab)
        assert text.startswith(INPUT), text
        assert Cause.INPUT.means in text
        assert device.worst[0].step.split()[0] in text or name == "hostile"
        if name == "one":
            assert (
                "MainThread (4011) in DataLoader.__next__" in text
                and "part of a gap of 45.3 ms" in text
            )
        tab.hover(x, 2)
        assert tip(tab) == ""


def test_tapping_a_gap_names_its_cause(chrome: Browser, pages: dict[str, Path]) -> None:
    device = results_made.one().devices[0]
    with chrome.tab(pages["one"], 360, touch=True) as tab:
        tab.tap(*at(tab, middle(device), device))
        assert tip(tab).startswith(INPUT)
        left, right = tab.value(f"(r => [r.left, r.right])({TIP}.getBoundingClientRect())")
        assert left >= 0 and right <= 360


def test_the_keyboard_goes_from_gap_to_gap(chrome: Browser, pages: dict[str, Path]) -> None:
    with chrome.tab(pages["one"], 1280) as tab:
        tab.value("document.querySelector('canvas.device').focus()")
        seen = []
        for _ in range(3):
            tab.press("ArrowRight")
            seen.append(tip(tab).splitlines()[0])
        titles = [cause.title for cause in (Cause.MODULE_LOAD, Cause.ALLOC, Cause.INPUT)]
        assert [text.split(",")[0] for text in seen] == titles
        tab.press("Escape")
        assert tip(tab) == ""


def test_work_steps_and_waits_say_what_they_are(chrome: Browser, pages: dict[str, Path]) -> None:
    device = results_made.one().devices[0]
    copy = device.busy["comm"][10]
    with chrome.tab(pages["one"], 1280) as tab:
        x, y = at(tab, int(copy.mean()), device)
        tab.value("document.querySelector('[data-do=in]').click()")
        tab.hover(x, y - 36)
        assert tip(tab).startswith("ProfilerStep#")
        tab.value("document.querySelector('[data-do=whole]').click()")
        x, y = at(tab, middle(device), device)
        tab.hover(x, y + 50)
        assert tip(tab).startswith("host waits for input, 48.")


def test_zoom_and_drag_move_what_is_seen(chrome: Browser, pages: dict[str, Path]) -> None:
    view = "(c => [+c.dataset.start, +c.dataset.end])(document.querySelector('canvas.device'))"
    device = results_made.one().devices[0]
    with chrome.tab(pages["one"], 1280) as tab:
        x, y = at(tab, middle(device), device)
        whole = tab.value(view)
        assert whole == [0, device.last - device.first]
        tab.value("document.querySelector('[data-do=in]').click()")
        low, high = tab.value(view)
        assert high - low == pytest.approx((whole[1] - whole[0]) / 2)
        tab.drag(x, y, x - 200)
        moved = tab.value(view)
        assert moved[0] > low and moved[1] - moved[0] == pytest.approx(high - low)
        tab.value("document.querySelector('[data-do=judged]').click()")
        spans = device.judged.spans
        assert tab.value(view) == [
            int(spans[0, 0]) - device.first,
            int(spans[-1, 1]) - device.first,
        ]


def test_the_close_up_of_a_gap_can_be_pointed_at(chrome: Browser, pages: dict[str, Path]) -> None:
    device = results_made.one().devices[0]
    with chrome.tab(pages["one"], 1280) as tab:
        tab.hover(*at(tab, middle(device), device, "canvas.gap"))
        assert tip(tab).startswith(f"{INPUT}, 45.2 ms")


def test_pictures_are_drawn_in_their_colors(chrome: Browser, pages: dict[str, Path]) -> None:
    color = [int(Cause.INPUT.color[at : at + 2], 16) for at in (1, 3, 5)]
    device = results_made.one().devices[0]
    with chrome.tab(pages["one"], 1280) as tab:
        x, y = at(tab, middle(device), device)
        drawn = tab.value(
            "(c => { const r = c.getBoundingClientRect(); return"
            f" [...c.getContext('2d').getImageData({x} - r.left, {y} - r.top, 1, 1).data];"
            " })(document.querySelector('canvas.device'))"
        )
        assert drawn == [*color, 255]


def test_can_be_printed(chrome: Browser, pages: dict[str, Path]) -> None:
    with chrome.tab(pages["one"], 800, dark=True) as tab:
        made = base64.b64decode(tab.call("Page.printToPDF", printBackground=True)["data"])
        assert made.startswith(b"%PDF") and len(made) > 10_000
        tab.value("dispatchEvent(new Event('beforeprint'))")
        assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        tab.value("dispatchEvent(new Event('afterprint'))")
        assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
        assert tab.complaints() == []


def test_screenshots_are_taken_at_two_widths_light_and_dark(
    chrome: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    files = take(chrome, pages["one"], tmp_path)
    assert [file.name for file in files] == [
        f"one-{width}-{scheme}.png" for width in WIDTHS for scheme in ("light", "dark")
    ]
    assert len({file.read_bytes() for file in files}) == 4
    assert all(file.read_bytes().startswith(PNG) for file in files)
