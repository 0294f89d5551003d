"""Previews: samples as readers see them, on sheets and on one page that needs nothing else."""

from __future__ import annotations

import io
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers.photos import picture
from helpers.small_jobs import IN_TURN, finished_job
from PIL import Image

from fastfeed.contact_sheet import draw_sheet
from fastfeed.preprocess.model.record import BadSample
from fastfeed.preprocess.reports.bad_groups import BadGroup, BadGroups
from fastfeed.preprocess.reports.preview import PAGE, draw_cells, page, preview
from fastfeed.preprocess.reports.statistics import statistics
from fastfeed.preprocess.targets.job_state import open_job


class Links(HTMLParser):
    """What a page loads, and which elements are open at its end."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.loaded += [
            value
            for name, value in attrs
            if name in ("src", "href") and not value.startswith("data:")
        ]

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("format", IN_TURN)
def test_cells_are_the_samples_of_the_shard(tmp_path, format):
    job = finished_job(tmp_path, format)
    record = job.records[1]
    found = draw_cells(job, record, 4, 64)
    assert [cell.title for cell in found] == [f"cats  #{id}" for id in record.ids[:4]]
    for cell, id in zip(found, record.ids, strict=False):
        assert cell.image is not None and cell.image.mode == "RGB"
        seed = id - 3  # broken files come before the second picture
        whole = Image.fromarray(picture(seed)).resize(cell.image.size, Image.Resampling.BOX)
        assert np.abs(np.asarray(whole, float) - np.asarray(cell.image, float)).mean() < 16
    mixed = {
        cell.title.split()[0]
        for record in job.records.values()
        for cell in draw_cells(job, record, 24, 64)
    }
    assert mixed == {"cats", "dogs"}
    assert not list(tmp_path.rglob("*.ffindex")), "looking leaves nothing behind"


def test_a_sheet_is_a_grid(tmp_path):
    job = finished_job(tmp_path)
    found = draw_cells(job, job.records[1], 6, 50)
    drawn = draw_sheet(found, 50)
    assert drawn.size == (3 * 58 + 8, 2 * 76 + 8)
    pixels = np.asarray(drawn)
    assert np.abs(pixels[8 + 13 : 8 + 37, 8 + 8 : 8 + 42].astype(int) - 240).mean() > 20, (
        "a picture in the middle"
    )
    assert (pixels[8:20, 8:58] == (238, 238, 234)).all(), "gray above it"
    assert draw_sheet([], 50).size == (66, 84)


def test_a_page_for_the_job(tmp_path):
    job = finished_job(tmp_path)
    told = []
    names = preview(
        job, shards=2, count=3, side=40, on_shard=lambda done, of: told.append((done, of))
    )
    assert names == [
        "__job/preview/shard-000000.jpg",
        "__job/preview/shard-000003.jpg",
        PAGE,
    ] and told == [(1, 2), (2, 2)]
    assert Image.open(io.BytesIO(job.target.read(names[0]) or b"")).format == "JPEG"
    text = (job.target.read(PAGE) or b"").decode()
    found = Links(text)
    assert found.loaded == [], "it needs no other file"
    assert text.count("data:image/jpeg;base64,") == 2
    for words in (
        "18 of 21, 3 are bad (14.29%)",
        "3 bad images",
        "2 of 4 shards, spread over the job",
        "24x34",
    ):
        assert words in found.text
    for bad in job.bad:
        assert bad.uri in found.text and bad.reason in found.text
    files = {name for name in job.target.files() if not name.startswith("__job/preview/")}
    assert {
        name for name in files if name.startswith("__job") and not name.startswith("__job/records/")
    } <= {f"__job/{x}" for x in FILES}
    again = preview(job, shards=2, count=3, side=40)
    assert again == names and (job.target.read(PAGE) or b"").decode() == text


FILES = (
    "manifest.json",
    "bad.jsonl",
    "plan.json",
    "order.npy",
    "samples.npy",
    "times.jsonl",
    "listing.ffarrays",
    "listing.lock",
)


def test_what_is_named_strangely_does_no_harm(tmp_path):
    job = finished_job(tmp_path)
    bad = [BadSample(k, f"<script>alert({k})</script>&.jpg", "corrupt", "<b>") for k in range(60)]
    groups = [
        BadGroups("class", [BadGroup("<u>x", 1, 2, {"corrupt": 1}, "<i>", "a '<b>'")] * 30, 99)
    ]
    text = page(statistics(job), [], bad, groups, job.plan.recipe.document())
    assert (
        "<script" not in text
        and "<b>&" not in text
        and "&lt;script&gt;alert(0)&lt;/script&gt;&amp;.jpg" in text
    )
    assert "<u>" not in text and "<i>" not in text and text.count("1 of 2") == 20
    assert "and 79 more" in text
    assert "and 10 more, in bad.jsonl" in text and len(re.findall("<li>", text)) == 50


def test_damaged_and_empty_shards_are_shown_as_such(tmp_path):
    job = finished_job(tmp_path)
    (tmp_path / "shards" / "shard-000001.tar").write_bytes(b"no tar".ljust(4096))
    (cell,) = draw_cells(job, job.records[1], 4, 64)
    assert cell.image is None and "no images in 1 shards" in cell.title
    assert draw_sheet([cell], 64).size == (80, 98)
    shutil.rmtree(tmp_path / "shards" / "__job" / "preview", ignore_errors=True)
    for name in job.target.files():
        if name.startswith("__job/records/"):
            job.target.remove(name)
    assert preview(open_job(job.target)) == [PAGE]
    assert "None." in (job.target.read(PAGE) or b"").decode()
