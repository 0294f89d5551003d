"""Every HTML page that fastfeed writes: what screen readers and keyboards need.

Landmarks, a language, named cells.
"""

from __future__ import annotations

import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from helpers.photos import folder
from helpers.profiler.kineto_files import starved_steps, write

import fastfeed as ff
from fastfeed import profiler
from fastfeed.live.http.serve import live_page
from fastfeed.preprocess import Recipe, Scaling, Selection, run
from fastfeed.preprocess.reports.preview import PAGE as PREVIEW
from fastfeed.preprocess.reports.preview import preview
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.target import open_target
from fastfeed.profiler.compare.compare import compare
from fastfeed.profiler.reports import difference_page, page

_LANDMARKS = {"main", "header", "footer", "nav", "aside"}
# may hold text outside of landmarks
_OUTSIDE = {
    "html",
    "head",
    "title",
    "style",
    "script",
    "body",
}
_VOID = {
    "meta",
    "link",
    "img",
    "br",
    "hr",
    "input",
    "path",
    "rect",
    "line",
    "circle",
    "use",
    "col",
    "wbr",
}


class Page(HTMLParser):
    """What is wrong with a page, in `faults`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.mains = 0
        self._open: list[str] = []
        self._cell: list[str] | None = None
        self.feed(text)
        self.close()
        if self.mains != 1:
            self.faults.append(f"{self.mains} main landmarks")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.mains += tag == "main"
        if tag == "html" and not told.get("lang"):
            self.faults.append("no language")
        if tag == "img" and "alt" not in told:  # empty where a caption says it
            self.faults.append(f"an image without a text: {str(told.get('src'))[:40]}")
        if told.get("role") == "img" and not told.get("aria-label"):
            self.faults.append(f"a drawing without a label: {tag}")
        if tag == "th":
            self._cell = []
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "th" and self._cell is not None and not "".join(self._cell).strip():
            self.faults.append("an empty table header")
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)
        if (
            data.strip()
            and not _LANDMARKS & set(self._open)
            and self._open[-1:]
            and self._open[-1] not in _OUTSIDE
        ):
            self.faults.append(f"outside of all landmarks: {data.strip()[:60]}")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("pages")
    result = profiler.analyze([profiler.read(write(root / "trace.json", starved_steps()))])
    feed = ff.Feed(ff.Arrays(np.zeros((32, 8, 8, 3), np.uint8)), [], batch=4)
    proof = ff.prove(lambda batch: time.sleep(0.001), feed, seconds=1)
    made = {
        "analyze": page.page(result),
        "diff": difference_page.page(compare(result, result)),
        "prove": proof.html(),
        "watch": live_page(),
    }
    return made | preprocessed(root)


def preprocessed(root: Path) -> dict[str, str]:
    photos, shards = folder(root / "photos", {"cat": 3, "dog": 3}), root / "shards"
    (photos / "dog" / "again.jpg").write_bytes(next(photos.glob("cat/*")).read_bytes())
    (photos / "dog" / "bad.jpg").write_bytes(b"no photograph")
    report = run(photos, shards, Recipe(Scaling(16), choice=Selection(dedupe="near")))
    preview(open_job(open_target(str(shards))))
    return {name: (shards / name).read_text() for name in (report.duplicates, PREVIEW)}


def test_pages_have_landmarks_labels_and_headers(pages: dict[str, str]):
    assert len(pages) == 6
    assert {name: Page(text).faults for name, text in pages.items()} == {name: [] for name in pages}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("<html><main>x</main></html>", "no language"),
        ("<html lang=en><p>x</p><main></main></html>", "outside of all landmarks: x"),
        ("<html lang=en><main><table><th> </th></table></main></html>", "an empty table header"),
        ("<html lang=en><main><img src='a.png'></main></html>", "an image without a text: a.png"),
        (
            "<html lang=en><main><svg role=img></svg></main></html>",
            "a drawing without a label: svg",
        ),
        ("<html lang=en></html>", "0 main landmarks"),
    ],
)
def test_what_is_missed(text: str, fault: str):
    assert Page(text).faults == [fault]
