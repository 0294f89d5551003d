"""Targets of a table go into shards as columns, from which sources read them as labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.small_jobs import InlineEngine, recipe
from helpers.targets import CAPTIONS, COUNT, FLAGS, MATRICES, WANTED, table

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.preprocess import open_input, run
from fastfeed.sources.base import Source

HOLDER = {"webdataset": "json", "tfrecord": "image/meta", "mds": "meta"}
COLUMNS = ["price", "age", "vector", *FLAGS, "caption"]
VECTORS = np.array(MATRICES, np.float32).reshape(COUNT, 6)


def opened(format: str, place: Path, target: str, kind: str) -> Source:
    names = {"numbers": ["price", "age"], "flags": list(FLAGS)}.get(target, [target])
    names = [f"{HOLDER[format]}:columns.{name}" for name in names]
    label = names if len(names) > 1 else names[0]
    if format == "mds":
        return ff.MDSShards(place, label=label, label_kind=kind)
    source = ff.TarShards if format == "webdataset" else ff.TFRecords
    pattern = "*.tar" if format == "webdataset" else "*.tfrecord"
    return source(f"{place}/{pattern}", label=label, label_kind=kind)


@pytest.mark.parametrize("format", HOLDER)
def test_shards_read_back_what_the_table_held(tmp_path: Path, format: str) -> None:
    data = open_input(str(table(tmp_path / "data", "parquet")), caption="", columns=COLUMNS)
    run(data, tmp_path / "shards", recipe(format, samples=5), engine=InlineEngine())
    places = {"price": WANTED["number"], "numbers": WANTED["numbers"], "vector": VECTORS}
    kinds = {"flags": ("multi", WANTED["flags"]), "caption": ("text", WANTED["text"])}
    kinds |= {name: ("value", wanted) for name, wanted in places.items()}
    order = None
    for target, (kind, wanted) in sorted(kinds.items()):
        source = opened(format, tmp_path / "shards", target, kind)
        found = source.label(np.arange(COUNT))
        order = order or [CAPTIONS.index(text) for text in found]  # "caption" is the first
        np.testing.assert_array_equal(found, wanted[order])
        assert found.dtype == wanted.dtype


def test_targets_are_no_labels_of_a_job(tmp_path: Path) -> None:
    made = str(table(tmp_path / "data", "csv"))
    with pytest.raises(ConfigError, match=r"go into shards as columns \(--columns\)"):
        open_input(made, label="price", label_kind="value")
    held = ff.Table(made, image="path", label="price", label_kind="value")
    with pytest.raises(ConfigError, match="preprocess needs class numbers as labels, got float32"):
        run(held, tmp_path / "shards", recipe(samples=5), engine=InlineEngine())
