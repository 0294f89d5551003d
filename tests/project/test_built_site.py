"""The site that `make docs` builds: its reference is complete, and it works in a browser on a phone
and on a desk.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from helpers.doc_site import build
from helpers.profiler.browser import Browser, browser, found
from helpers.reference import Subject, subjects

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    if found() is None:
        pytest.skip("no Chromium; install it (Debian: apt-get install chromium)")
    with browser() as one:
        yield one


def test_it_is_sound(site: Path) -> None:
    assert runpy.run_path(str(ROOT / "docs" / "site" / "check.py"))["complaints"](site) == []


def test_every_subject_of_the_reference_has_an_anchor(site: Path) -> None:
    pages = (site / "reference").glob("*.html")
    anchors = {
        anchor
        for page in pages
        for anchor in re.findall(r'id="(fastfeed\.[^"]+)"', page.read_text())
    }
    everything = subjects()
    tops = {
        name: subject.value
        for name, subject in everything.items()
        if subject.kind in ("class", "protocol")
    }

    def names(name: str, subject: Subject) -> set[str]:
        """Its own and, of a member, those under which heirs of its class have it."""
        home, _, member = name.rpartition(".")
        heirs = [
            top
            for top, value in tops.items()
            if home in {f"{b.__module__}.{b.__qualname__}" for b in value.__mro__}
        ]
        return {
            name,
            *(f"{heir}.{member}" for heir in heirs if subject.kind in ("method", "property")),
        }

    assert [
        name for name, subject in everything.items() if not names(name, subject) & anchors
    ] == []


@pytest.mark.parametrize(
    ("width", "dark", "every"),
    [
        (360, True, 6),
        (1280, False, 16),
        pytest.param(360, True, 1, marks=pytest.mark.nightly),
    ],
)
def test_no_page_is_wider_than_the_screen(
    chrome: Browser, site: Path, width: int, dark: bool, every: int
) -> None:
    """Some pages of each folder; nightly all, where there is little room."""
    pages = [
        page
        for page in sorted(site.rglob("*.html"))
        if not page.name.endswith((".py.html", "404.html"))
    ]
    assert len(pages) > 50
    wide = {}
    for page in pages[::every]:
        with chrome.tab(page, width, dark=dark, touch=width < 600) as tab:
            tab.wait(_scheme(dark))
            shown, room = tab.value(
                "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            )
            if shown > room:
                wide[page.relative_to(site).as_posix()] = shown
    assert wide == {}


def _scheme(dark: bool) -> str:
    """Whether the site has taken the system's colors."""
    return (
        f"document.body.getAttribute('data-md-color-scheme') === '{'slate' if dark else 'default'}'"
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pictures_have_the_colors_of_the_page(chrome: Browser, site: Path, dark: bool) -> None:
    with chrome.tab(site / "index.html", 1280, dark=dark) as tab:
        tab.wait(_scheme(dark))
        shown = tab.value(
            "[...document.querySelectorAll('article img')].filter(e =>"
            " e.getClientRects().length).map(e => e.src)"
        )
    report = [source for source in shown if "report" in source]
    assert len(report) == 1 and ("dark" in report[0]) is dark


def test_search_finds_a_class(chrome: Browser, site: Path) -> None:
    with chrome.tab(site / "index.html", 1280) as tab:
        tab.value("document.querySelector('input.md-search__input').focus()")
        for letter in "RandomResizedCrop":
            tab.press(letter)
        results = "[...document.querySelectorAll('.md-search-result__link')].map(e => e.href)"
        tab.wait(f"{results}.length > 0")
        assert any("reference/ops" in link for link in tab.value(results))
        assert tab.complaints() == []
