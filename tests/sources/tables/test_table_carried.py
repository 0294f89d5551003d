"""Table: columns that are carried along to the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.tables import FORMATS, every, write

from fastfeed.errors import SourceError
from fastfeed.sources import Table


def table(folder: Path, format: str, **columns: Any) -> Path:
    count = len(next(iter(columns.values())))
    return write(folder / f"t.{format}", {"path": [f"{i}.jpg" for i in range(count)], **columns})


@pytest.mark.parametrize(
    "kind", ["int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64", "bool_"]
)
def test_numbers_keep_their_type_in_parquet(tmp_path, kind):
    values = np.array([1, 0, 1], "bool" if kind == "bool_" else kind)
    source = Table(table(tmp_path, "parquet", v=pa.array(values)), image="path", columns=["v"])
    np.testing.assert_array_equal(source.columns(every(source))["v"], values, strict=True)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_lists_of_one_length(tmp_path, format):
    source = Table(
        table(tmp_path, format, v=[[1, 2], [3, 4], [5, 6]], w=[[0.5], None, [2]]),
        image="path",
        columns=["v", "w"],
    )
    found = source.columns(np.array([2, 1]))
    np.testing.assert_array_equal(found["v"], np.array([[5, 6], [3, 4]]), strict=True)
    np.testing.assert_array_equal(found["w"], np.array([[2.0], [np.nan]]), strict=True)
    none = [[], None, []]
    given = table(
        tmp_path, format, v=pa.array(none, pa.list_(pa.int8())) if format == "parquet" else none
    )
    empty = Table(given, image="path", columns=["v"])
    assert empty.columns(every(empty))["v"].shape == (3, 0)


@pytest.mark.parametrize("format", FORMATS)
def test_gaps(tmp_path, format):
    given = table(tmp_path, format, whole=[1, None, 3], text=["a", None, "b"], none=[None] * 3)
    source = Table(given, image="path", columns=["whole", "text", "none"])
    found = source.columns(every(source))
    np.testing.assert_array_equal(found["whole"], np.array([1.0, np.nan, 3.0]), strict=True)
    assert found["text"].tolist() == ["a", "", "b"]
    assert np.isnan(found["none"]).all()
    for values in ([True, None], [2**60 + 1, None]):
        given = table(tmp_path, format, v=values)
        if format in ("csv", "tsv"):  # they stay the texts that they are
            texts = Table(given, image="path", columns=["v"]).columns(np.arange(2))["v"]
            assert texts.tolist() == [str(values[0]), ""]


def test_a_column_that_becomes_another_kind(tmp_path):
    for first, then in (([1], ["a"]), (["a"], [[1]]), ([1], [[1]])):
        one = write(tmp_path / "a.jsonl", {"path": ["x", "y"], "v": [None, *first]})
        two = write(tmp_path / "b.jsonl", {"path": ["x", "y"], "v": [None, *then]})
        with pytest.raises(SourceError) as error:
            Table([one, two], image="path", columns=["v"])
        assert (
            str(error.value)
            == f"Table: {two}, row 1: column 'v' must hold what it holds above, such as"
            f" {first[0]!r}, got {then[0]!r}"
        )
    one = write(tmp_path / "a.jsonl", {"path": ["x"], "v": [1]})
    two = write(tmp_path / "b.jsonl", {"path": ["x"], "v": [0.5]})
    three = write(tmp_path / "c.jsonl", {"path": ["x"], "v": [None]})
    source = Table([one, two, three], image="path", columns=["v"])
    np.testing.assert_array_equal(source.columns(every(source))["v"], [1, 0.5, np.nan])


def test_a_label_that_is_also_carried(tmp_path):
    for format in FORMATS:
        given = table(tmp_path, format, kind=["b", "a", None])
        source = Table(given, image="path", label="kind", columns=["kind", "path"])
        found = source.columns(every(source))
        assert found["kind"].tolist() == ["b", "a", ""]
        assert found["path"].tolist() == ["0.jpg", "1.jpg", "2.jpg"]


def test_json_numbers_that_are_too_large(tmp_path):
    for values in ([1, 10**30], [1.5, 10**400], [[1, 2], [1, 10**30]]):
        with pytest.raises(SourceError, match="row 1: column 'v' holds"):
            Table(table(tmp_path, "jsonl", v=values), image="path", columns=["v"])


def test_columns_whose_names_look_alike(tmp_path):
    columns = {
        "x": ["a", "b"],
        "x ends": [1, 2],
        "ends x": [3, 4],
        "carried x": [5, 6],
        "weights": [7, 8],
    }
    source = Table(table(tmp_path, "jsonl", **columns), image="path", columns=list(columns))
    assert {
        name: array.tolist() for name, array in source.columns(every(source)).items()
    } == columns
