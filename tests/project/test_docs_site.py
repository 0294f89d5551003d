"""The site that `make docs` builds: what can be said of it without building it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

SITE = ROOT / "docs" / "site"
NAV = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return runpy.run_path(str(SITE / "reference.py"))


def test_the_reference_has_every_public_name_and_command(reference: dict[str, Any]) -> None:
    pages = reference["pages"]()
    assert "::: fastfeed.feed.feed.Feed" in pages["reference/feed.md"]
    assert "## fastfeed analyze" in pages["reference/cli.md"] and "`--fail-on LIMIT`" in pages["reference/cli.md"]
    assert "### fastfeed preprocess verify" in pages["reference/cli.md"]


def test_every_page_is_in_the_navigation(reference: dict[str, Any]) -> None:
    named = set(re.findall(r"[:-] ([\w/]+\.md)$", NAV, re.M))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    missing = (there | set(reference["pages"]())) - named
    assert not missing, f"mkdocs.yml, nav, should have {', '.join(sorted(missing))}"
    gone = [name for name in named - there - set(reference["pages"]()) - {"index.md"} if not (ROOT / name).exists()]
    assert not gone, f"mkdocs.yml, nav, names what is not there: {', '.join(gone)}"


def test_no_op_lacks_a_page_and_methods_of_the_compiler_are_left_out(reference: dict[str, Any]) -> None:
    ops = reference["pages"]()["reference/ops.md"]
    normalize = ops.partition('heading: "ff.Normalize"')[2].partition(":::")[0]
    assert "members: ['imagenet']" in normalize
    crop = ops.partition('heading: "ff.RandomResizedCrop"')[2].partition(":::")[0]
    assert "members: false" in crop


def test_faults_of_a_built_site_are_named(tmp_path: Path) -> None:
    complaints = runpy.run_path(str(SITE / "check.py"))["complaints"]
    (tmp_path / "a.html").write_text('<h2 id="x">X</h2><a href="b.html#y">Y</a><img src="a.png" alt="A picture">')
    (tmp_path / "a.png").touch()
    (tmp_path / "b.html").write_text('<h2 id="y">Y</h2><a href="https://example.org">elsewhere</a>')
    assert complaints(tmp_path) == []
    (tmp_path / "b.html").write_text(
        '<a href="c.html">C</a><img src="a.png"><script src="//example.org/a.js"></script>'
    )
    assert set(complaints(tmp_path)) == {
        "a.html: no such place: b.html#y",
        "b.html: no page: c.html",
        "b.html: a picture without alt: a.png",
        "b.html: comes from another host: //example.org/a.js",
    }
