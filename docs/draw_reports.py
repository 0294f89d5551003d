"""Draws the reports that README and docs/proving.md show, in light and dark: python docs/draw_reports.py

Needs Chromium and, for the report of the profiler, PyTorch's example trace of ResNet-50 with num_workers=0: one of the
recordings that tests read, or the argument. The proof is of a script with known costs, in simulated time.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.profiler.browser import browser
from helpers.real_data import real_data
from helpers.scripted import Costs, Pages, Script, scripted_feed
from PIL import Image

import fastfeed as ff
import fastfeed.proof.measure.session
from fastfeed.profiler import analyze, read
from fastfeed.profiler.reports import page

DOCS = Path(__file__).resolve().parent
TRACE = "traces/kineto/tb_resnet50_nw0_span1.pt.trace.json.gz"
WIDTH, HEIGHTS = 1100, {"report": 1308, "proof": 1000}  # pixels
COSTS = Costs(step=40, copy=4, contention=6, make=80, fetch=30)


def report(trace: Path) -> str:
    """The page of the profiler."""
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / "resnet50.json.gz"  # as the report names it
        link.symlink_to(trace.resolve())
        return page.page(analyze([read(link)], again="fastfeed diff resnet50.json.gz AFTER"))


def proof() -> str:
    """The page of the proof; its table is printed, for docs/proving.md."""
    fastfeed.proof.measure.session.FilePages = Pages  # type: ignore[misc, assignment]
    script = Script(COSTS)
    with scripted_feed(script, name="train") as feed:
        result = ff.prove(lambda batch: script.train_on(feed), feed, seconds=40)
    print(result)
    return result.html()


def main() -> None:
    trace = Path(sys.argv[1]) if len(sys.argv) > 1 else real_data() / TRACE
    pages = {"report": report(trace), "proof": proof()}
    with tempfile.TemporaryDirectory() as folder, browser() as chrome:
        for name, text in pages.items():
            file = Path(folder) / f"{name}.html"
            file.write_text(text, encoding="utf-8")
            for dark in (False, True):
                with chrome.tab(file, WIDTH, dark=dark) as tab:
                    picture = Image.open(io.BytesIO(tab.picture())).convert("RGB")
                path = DOCS / f"{name}{'_dark' if dark else ''}.png"
                picture = picture.crop((0, 0, WIDTH, HEIGHTS[name])).quantize(
                    256, Image.Quantize.MAXCOVERAGE
                )
                picture.save(path, optimize=True)
                print(path)


if __name__ == "__main__":
    main()
