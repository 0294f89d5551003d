"""The report of duplicates: every pair in the list, some as pictures on a page that needs nothing
else.
"""

from __future__ import annotations

import base64
import io
import json
import re

import numpy as np
import pytest
from helpers.preprocess.surveying import BytesSource, MemoryTarget, saved, scene
from PIL import Image

from fastfeed.preprocess.model.layout import DUPLICATES
from fastfeed.preprocess.planning.duplicates_page import PAIRS, write_duplicates
from fastfeed.preprocess.planning.select import DuplicatePair


class Flowers(BytesSource):
    """With labels, and names that are trouble."""

    classes = ("<roses>", "tulips")

    def uri(self, i: int) -> str:
        return f"/photos/{i} <b>&\udcff.jpg"

    def label(self, ids: np.ndarray) -> np.ndarray:
        return np.asarray(ids) % 2


def written(pairs: list[DuplicatePair], blobs: list[bytes | None]) -> tuple[list[dict], str]:
    shelf = MemoryTarget()
    write_duplicates(shelf, Flowers(blobs), pairs)  # type: ignore[arg-type]
    assert set(shelf.held) == {PAIRS, DUPLICATES}
    lines = [json.loads(line) for line in shelf.held[PAIRS].splitlines()]
    return lines, shelf.held[DUPLICATES].decode()


def pictures(page: str) -> list[Image.Image]:
    found = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)
    return [Image.open(io.BytesIO(base64.b64decode(text))) for text in found]


def test_every_pair_is_listed_by_uri() -> None:
    lines, _ = written(
        [
            DuplicatePair(0, 1, "duplicate_near", 3, conflict=True),
            DuplicatePair(0, 2, "duplicate_exact"),
        ],
        [None] * 3,
    )
    uri = "/photos/{} <b>&\udcff.jpg".format
    assert lines == [
        {
            "kept": uri(0),
            "dropped": uri(1),
            "reason": "duplicate_near",
            "bits": 3,
            "labels_differ": True,
            "ids": [0, 1],
        },
        {
            "kept": uri(0),
            "dropped": uri(2),
            "reason": "duplicate_exact",
            "bits": 0,
            "labels_differ": False,
            "ids": [0, 2],
        },
    ]


def test_both_photographs_of_a_pair_are_shown_upright_and_small() -> None:
    exif = Image.Exif()
    exif[0x0112] = 8
    blobs: list[bytes | None] = [saved(scene(1, 600, 1200)), saved(scene(1, 90, 40), exif=exif)]
    _, page = written([DuplicatePair(0, 1, "duplicate_near", 2)], blobs)
    assert [image.size for image in pictures(page)] == [(300, 150), (90, 40)]
    assert (
        page.index("kept</em>")
        < page.index("1200 × 600")
        < page.index("left out</em>")
        < page.index("90 × 40")
    )
    assert "1 image left out as a duplicate" in page
    assert "2 bits of 64 differ" in page


def test_names_are_text_and_nothing_is_loaded() -> None:
    _, page = written(
        [DuplicatePair(0, 1, "duplicate_near", 1, conflict=True)],
        [saved(scene(0)), saved(scene(0))],
    )
    assert "/photos/0 &lt;b&gt;&amp;\\xff.jpg" in page
    assert "the labels differ: &lt;roses&gt;, tulips" in page
    assert "1 bit of 64 differs" in page
    assert "<b>&" not in page
    assert not re.search(
        r"""https?:|<script|<link (?!rel="icon" href="data:,")|@import|url\(""", page
    )
    assert "prefers-color-scheme: dark" in page


def test_what_cannot_be_shown_says_why() -> None:
    _, page = written(
        [DuplicatePair(0, 1, "duplicate_exact"), DuplicatePair(0, 2, "duplicate_exact")],
        [None, b"text", saved(scene(1))],
    )
    assert "io_error" in page
    assert "not_image" in page
    assert len(pictures(page)) == 1


@pytest.mark.parametrize(("reason", "most"), [("duplicate_near", 100), ("duplicate_exact", 20)])
def test_of_many_pairs_the_doubtful_ones_are_shown(reason: str, most: int) -> None:
    pairs = [
        DuplicatePair(0, id, reason, id % 5 if reason == "duplicate_near" else 0, id == 1200)
        for id in range(1, 1235)
    ]
    lines, page = written(pairs, [saved(scene(0, 8, 8))] * 1235)
    assert len(lines) == 1234
    assert "1,234 images left out" in page
    assert f"{most} are shown, {1234 - most:,} more are not" in page
    heads = re.findall(r"<div class=pair><b>(.*?)</b>", page)
    assert len(heads) == most
    assert "the labels differ" in heads[0]
    assert not any("the labels differ" in head for head in heads[1:])
    if reason == "duplicate_near":
        assert all(head.startswith("4 bits") for head in heads[1:])
