"""docs/augmentations.md has every op, in a table, and pictures of those that can be seen."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.photos import folder

import fastfeed
from fastfeed.cli.show.ops import FAMILIES
from fastfeed.ops import OPS

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "augmentations.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", TEXT, re.MULTILINE))
MOST = 650_000  # bytes: of all pictures


def test_every_op_stands_in_the_table():
    assert set(ROWS) == {kind.__name__ for kind in OPS}, (
        "a new op needs a row in docs/augmentations.md"
    )


@pytest.mark.parametrize("kind", OPS, ids=lambda kind: kind.__name__)
def test_a_row_names_all_parameters_and_says_something(kind):
    assert kind.__name__ in ROWS, "a new op needs a row in docs/augmentations.md"
    what, parameters, _definition = re.split(r" ?\| ", ROWS[kind.__name__] + " ", maxsplit=2)
    assert len(what) > 5
    named = {
        name
        for quoted in re.findall(r"`([^`]+)`", parameters)
        for name in re.findall(r"\w+", quoted)
    }
    missing = [name for name in inspect.signature(kind).parameters if name not in named]
    assert missing == ([] if kind.__name__ != "ToLayout" else ["layout"]), (
        "ToLayout's are its values"
    )


def test_every_family_has_its_picture():
    shown = set(re.findall(r"!\[[^\]]+\]\((augmentations/\w+\.webp)\)", TEXT))
    assert shown == {f"augmentations/{family}.webp" for family in FAMILIES}
    sizes = [(DOCS / picture).stat().st_size for picture in shown]
    assert min(sizes) > 10_000 and sum(sizes) < MOST


def test_links_within_the_page_lead_somewhere():
    headings = {
        line.lstrip("#").strip().lower().replace(" ", "-").replace(",", "")
        for line in TEXT.splitlines()
        if line.startswith("##")
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", TEXT)) <= headings


def test_code_on_the_page_runs(tmp_path, monkeypatch):
    """Block after block, as a reader would; every list is then fed."""
    folder(tmp_path / "photos" / "train", {"a": 130, "b": 126}, (24, 24))
    monkeypatch.chdir(tmp_path)
    said = {"np": np, "ff": fastfeed}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(block, said)
        if block.startswith("ff.MultiCrop"):
            said["ops"] = [eval(block, said)]
        with fastfeed.Feed(fastfeed.ImageFolder("photos/train"), said["ops"], batch=8) as feed:
            assert next(iter(feed)).images.shape[0] == 8 and not feed.stats().bad
