"""Parquet shards, read by PyArrow and by Table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.preprocess.packing import entries, large_entries, write

from fastfeed.preprocess.model.recipe import Packing
from fastfeed.sources import Table

pq = pytest.importorskip("pyarrow.parquet", reason="no PyArrow; pip install 'fastfeed[parquet]'")

PARQUET = Packing("parquet")
NAME = "shard-000000.parquet"


def test_pyarrow_reads_it(tmp_path: Path) -> None:
    found = entries(7)
    write(tmp_path, PARQUET, found)
    table = pq.read_table(tmp_path / NAME)
    assert {field.name: str(field.type) for field in table.schema} == {
        "key": "string",
        "image": "binary",
        "extension": "string",
        "height": "int32",
        "width": "int32",
        "label": "int64",
        "class": "string",
        "text": "string",
        "uri": "string",
        "meta": "string",
    }
    rows = table.to_pylist()
    assert [json.loads(row.pop("meta")) for row in rows] == [one.meta for one in found]
    assert rows == [
        {
            "key": one.key,
            "image": one.image,
            "extension": "jpg",
            "height": 8,
            "width": 10,
            "label": one.label,
            "class": one.meta.get("class"),
            "text": one.text and one.text.replace("\udcff", "\ufffd"),
            "uri": one.meta["uri"].replace("\udce9", "\ufffd"),
        }
        for one in found
    ]


@pytest.mark.parametrize("most", [1, 100_000, 1_000_000, 1 << 40])
def test_row_groups_are_counted_in_bytes(most: int, tmp_path: Path) -> None:
    found = list(large_entries(40, 60_000))
    found[7] = replace(found[7], image=bytes(1_500_000))
    write(tmp_path, Packing("parquet", group_bytes=most), found)
    about = pq.ParquetFile(tmp_path / NAME).metadata
    groups = [about.row_group(k) for k in range(about.num_row_groups)]
    assert about.num_rows == 40
    assert all(group.num_rows == 1 or group.total_byte_size <= most for group in groups)
    small = [group.num_rows for group in groups if group.total_byte_size < 1_000_000]
    assert max(small, default=40) == {1: 1, 100_000: 1, 1_000_000: 16, 1 << 40: 40}[most]
    assert pq.read_table(tmp_path / NAME)["image"].to_pylist() == [one.image for one in found]


def test_images_are_neither_packed_nor_compared(tmp_path: Path) -> None:
    write(tmp_path, PARQUET, entries(7))
    group = pq.ParquetFile(tmp_path / NAME).metadata.row_group(0)
    columns = {
        column.path_in_schema: column for column in map(group.column, range(group.num_columns))
    }
    image = columns["image"]
    assert (image.compression, image.has_dictionary_page, image.statistics) == (
        "UNCOMPRESSED",
        False,
        None,
    )
    assert columns["meta"].compression == "ZSTD"
    assert columns["label"].statistics.null_count == 3


def test_fastfeed_reads_it(tmp_path: Path) -> None:
    found = [one for one in entries(9) if one.label]
    write(tmp_path, Packing("parquet", group_bytes=3000), found[:4], "shard-000000")
    write(tmp_path, PARQUET, [], "shard-000001")
    write(tmp_path, PARQUET, found[4:], "shard-000002")
    source = Table(
        tmp_path, image="image", label="label", label_kind="index", classes=["none", "a", "b"]
    )
    assert source.read(range(6)) == [one.image for one in found]
    assert source.label(np.arange(6)).tolist() == [one.label for one in found]
    named = Table(tmp_path, image="image", label="class", columns=["key", "text", "height"])
    assert tuple(named.classes or ()) == ("classé 1", "classé 2")


def test_an_empty_shard_has_the_columns(tmp_path: Path) -> None:
    write(tmp_path, PARQUET, [])
    write(tmp_path, PARQUET, entries(1), "other")
    empty = pq.read_table(tmp_path / NAME)
    assert empty.num_rows == 0
    assert empty.schema == pq.read_schema(tmp_path / "other.parquet")
