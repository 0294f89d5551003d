"""Types of items by the structure of `yields`, as pyright finds them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs

import fastfeed as ff

pytestmark = [pytest.mark.slow, needs("pyright", "torch", "jax")]

PROGRAM = """
from typing import Any

import tensorflow as tf
from jax import Array
from torch import Tensor
from typing_extensions import assert_type

import fastfeed as ff


def trained(feed: ff.Feed, names: tuple[str, ...] | None, last: bool) -> None:
    for images, labels in feed.to_torch("cuda"):
        assert_type(images, Tensor)
        assert_type(labels, Tensor)
    for images, labels, weights in feed.to_torch(yields=("image", "label", "weight")):
        assert_type(weights, Tensor)
    for item in feed.to_torch(yields=names):
        assert_type(item, tuple[Tensor, ...])
    for images in feed.to_torch(yields="image"):
        assert_type(images, Tensor)
    for batch in feed.to_torch(yields={"pixel_values": "image"}):
        assert_type(batch["pixel_values"], Tensor)
    for item in feed.to_torch("cuda", "host", ["image", {"boxes": "boxes"}]):
        assert_type(item, Any)
    loader = feed.to_torch()
    loader.load_state_dict(loader.state_dict())
    feed.to_torch(yields=3)  # refused

    for item in feed.to_jax():
        assert_type(item, tuple[Array, ...])
    for images in feed.to_jax(yields="image"):
        assert_type(images, Array)
    for batch in feed.to_jax(convert="host", yields={"x": "image"}):
        assert_type(batch["x"], Array)
    feed.to_jax(yield_="image")  # refused

    data: tf.data.Dataset[Any] = feed.to_tfdata(yields="image")
    data.take(len(feed))
"""


def test_items_have_types(tmp_path: Path) -> None:
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
