"""Structure of items by that of `yields`, as pyright finds them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs

import fastfeed as ff

pytestmark = [pytest.mark.slow, needs("pyright")]

PROGRAM = """
from typing import Any

import tensorflow as tf
from typing_extensions import assert_type

import fastfeed as ff


def trained(feed: ff.Feed, names: tuple[str, ...] | None, last: bool) -> None:
    for images, targets in feed.to_torch("cuda"):
        targets["boxes"].sum()  # a dict, of sources of objects
        images[1].sum()  # a tuple, of views
    for images, labels, weights in feed.to_torch(yields=("image", "label", "weight")):
        weights.sum()
    for item in feed.to_torch(yields=names):
        assert_type(item, tuple[Any, ...])
    for captions in feed.to_torch(yields="caption"):
        captions[0].split()
    for batch in feed.to_torch(yields={"pixel_values": "image", "text": "caption"}):
        assert_type(batch, dict[str, Any])
    for item in feed.to_torch("cuda", "host", ["image", {"boxes": "boxes"}]):
        assert_type(item, Any)
    loader = feed.to_torch()
    loader.load_state_dict(loader.state_dict())
    for batch in feed.to_torch():
        batch["image"]  # refused
    feed.to_torch(yields=3)  # refused

    for item in feed.to_jax():
        assert_type(item, tuple[Any, ...])
    for batch in feed.to_jax(convert="host", yields={"x": "image"}):
        assert_type(batch, dict[str, Any])
    feed.to_jax(yield_="image")  # refused

    data: tf.data.Dataset[Any] = feed.to_tfdata(yields="image")
    data.take(len(feed))
"""


def test_items_have_the_structure_of_yields(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    settings = {"include": ["program.py"], "extraPaths": [str(Path(ff.__file__).parents[1])]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, "--project", str(tmp_path)], capture_output=True, text=True, check=False
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    wanted = [n for n, line in enumerate(PROGRAM.splitlines()) if line.endswith("# refused")]
    lines = sorted({problem["range"]["start"]["line"] for problem in found})
    assert lines == wanted, found
