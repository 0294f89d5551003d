"""Pictures and links of README and docs."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
from conftest import ROOT

PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "benchmarks/**/*.md",
        "examples/*.md",
        "fastfeed/*.md",
        "tests/**/*.md",
    )
    for path in ROOT.glob(pattern)
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path):
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    gone = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not gone, f"{page.relative_to(ROOT)} links to what is not there: {', '.join(gone)}"


def test_the_plot_of_rates_shows_the_measured_ones():
    draw = runpy.run_path(str(ROOT / "benchmarks" / "draw_rates.py"))
    made = draw["picture"](json.loads(draw["RESULTS"].read_text()))
    assert draw["PICTURE"].read_text() == made, "run: python benchmarks/draw_rates.py"


def test_readme_fits_on_a_screen_or_two():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110
