"""Paths that a table's other columns make up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from helpers.photos import folder
from helpers.tables import FORMATS, every, write

import fastfeed as ff
from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources import Table

IDS = {"id": [7, 12, None], "kind": ["a", "b", "b"]}


def read_paths(source: Table) -> list[str]:
    assert source.paths is not None
    return source.paths.tolist()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("template", "paths"),
    [
        ("{kind}/{id}.jpg", ["a/7.jpg", "b/12.jpg", ""]),
        ("{{{id:04d}}}-{id}", ["{0007}-7", "{0012}-12", ""]),
        ("{kind}", ["a", "b", "b"]),
    ],
)
def test_values_of_every_format(tmp_path, format, template, paths):
    table = write(tmp_path / f"t.{format}", IDS)
    source = Table(table, path=template, label="kind", columns=["kind"])
    assert read_paths(source) == paths
    assert source.label(every(source)).tolist() == [0, 1, 1]
    assert source.columns(every(source))["kind"].tolist() == ["a", "b", "b"]


def test_texts_stay_as_they_are_and_whole_floats_are_integers(tmp_path):
    values = {"id": ["007", "8"], "f": [3.0, 1.5]}
    assert read_paths(Table(values, path="{id}-{f}")) == ["007-3", "8-1.5"]
    assert read_paths(Table(write(tmp_path / "t.csv", values), path="{id}-{f}")) == [
        "007-3.0",
        "8-1.5",
    ]


def test_addresses_of_a_template_are_remote():
    assert Table({"id": [1, 2]}, path="https://example.org/{id}.jpg").remote
    assert not Table({"id": [1, 2]}, path="{id}.jpg").remote


def test_fields_of_structs_and_folders_that_partition(tmp_path):
    info = pa.array([{"id": 1}, {"id": 2}])
    write(tmp_path / "t" / "kind=a" / "p.parquet", {"info": info})
    assert read_paths(Table(tmp_path / "t", path="{kind}/{info.id}.png")) == ["a/1.png", "a/2.png"]


def test_rules_of_access_hold_for_the_path(tmp_path):
    folder(tmp_path / "data", {"a": 1})
    write(tmp_path / "data" / "t.csv", {"id": ["a/0000", "../secret"]})
    source = Table(tmp_path / "data" / "t.csv", path="{id}.jpg")
    good, bad = source.read([0, 1])
    assert isinstance(good, bytes)
    assert isinstance(bad, ff.Failure) and bad.reason == "not_allowed"


def test_a_row_without_a_value_is_a_bad_sample(tmp_path):
    failure = Table(write(tmp_path / "t.csv", IDS), path="{id}.jpg").read([2])[0]
    assert isinstance(failure, ff.Failure)
    assert (failure.reason, failure.detail) == ("not_found", "row 2: no path")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("x.jpg", "got 'x.jpg': each pair of braces must hold the name of a column"),
        ("{}.jpg", "got '{}.jpg': each pair of braces must hold the name of a column"),
        ("{id!r}", "each pair of braces must hold the name of a column"),
        ("{id", "got '{id': expected '}' before end of string"),
        ("{other}", "Table: no column 'other' in dict; it has 'id', 'v'"),
    ],
)
def test_templates_that_are_refused(template, text):
    with pytest.raises(ConfigError) as error:
        Table({"id": [1], "v": [[1, 2]]}, path=template)
    assert text in str(error.value)


def test_values_that_have_no_place_in_a_path():
    with pytest.raises(SourceError, match=r"row 0: column 'v' must hold what \{v\} can write"):
        Table({"v": [[1, 2]]}, path="{v}")
    with pytest.raises(SourceError, match=r"row 1: column 'v' must hold what \{v:04d\} can write"):
        Table({"v": ["1", "x"]}, path="{v:04d}")


def test_chunks_of_many_rows():
    count = (1 << 16) + 3
    source = Table({"id": np.arange(count)}, path="{id}")
    assert source.uris([0, count - 1]) == ["0", str(count - 1)]
