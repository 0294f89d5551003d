"""Table: DataFrames, Arrow's tables and dicts of lists."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.needs import require
from helpers.tables import every, files, labels

from fastfeed.errors import ConfigError, MissingExtra, SourceError
from fastfeed.sources import Table


class Series:
    """A column as pandas has it."""

    ndim = 1

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def isna(self) -> Series:
        return Series([value is None or value != value for value in self.values])

    def to_numpy(self) -> np.ndarray:
        numbers = {type(value) for value in self.values} <= {int, float, bool}
        return np.array(self.values, None if numbers else object)


class Frame:
    """What is used of a DataFrame of pandas."""

    iloc = None

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = {name: Series(values) for name, values in columns.items()}

    def to_parquet(self) -> None: ...

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __iter__(self) -> Any:
        return iter(self._columns)

    def __getitem__(self, name: str) -> Series:
        return self._columns[name]


class Stream:
    """A table of some other library that speaks Arrow's C interface."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._table = pa.table(columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def of_pandas(columns: dict[str, list[Any]]) -> Any:
    require("pandas")
    import pandas

    return pandas.DataFrame(columns)


def of_polars(columns: dict[str, list[Any]]) -> Any:
    require("polars")
    import polars

    return polars.DataFrame(columns)


KINDS: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "dict": dict,
    "as pandas": Frame,
    "pyarrow.Table": pa.table,
    "pyarrow.RecordBatch": pa.record_batch,
    "a stream": Stream,
    "pandas": of_pandas,
    "polars": of_polars,
}


@pytest.fixture(params=KINDS)
def frame(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return lambda **columns: KINDS[request.param](columns)


def test_every_kind_of_column(tmp_path, frame):
    names = files(tmp_path, 3)
    table = frame(
        file=names,
        kind=["dog", None, "cat"],
        trust=[1, 2, 3],
        where=[[0.0, 0.0, 2.0, 2.0]] * 3,
        year=[2019, 2020, 2021],
        gap=[1.5, None, 3.0],
        caption=["a", None, "höher"],
        flag=[True, False, True],
    )
    source = Table(
        table,
        image="file",
        label="kind",
        weight="trust",
        box="where",
        columns=["year", "gap", "caption", "flag"],
        root=tmp_path,
    )
    assert source.classes == ("cat", "dog")
    assert labels(source) == [1, -1, 0]
    good, bad, other = source.read([0, 1, 2])
    assert (good, other) == (b"0.jpg", b"2.jpg")
    assert bad.reason == "label_missing"
    assert source.weights(every(source)).tolist() == [1, 2, 3]
    assert source.boxes(every(source)).tolist() == [[0, 0, 2, 2]] * 3
    columns = source.columns(every(source))
    np.testing.assert_array_equal(columns["year"], np.array([2019, 2020, 2021]), strict=True)
    np.testing.assert_array_equal(columns["gap"], np.array([1.5, np.nan, 3.0]), strict=True)
    np.testing.assert_array_equal(columns["flag"], np.array([True, False, True]), strict=True)
    assert columns["caption"].tolist() == ["a", "", "höher"]
    assert source.uris([2, 0]) == [str(tmp_path / name) for name in ("2.jpg", "0.jpg")]
    again = pickle.loads(pickle.dumps(source))
    assert again.read([0]) == [b"0.jpg"] and again.fingerprint == source.fingerprint


def test_values_of_numpy_and_paths(tmp_path):
    names = [tmp_path / name for name in files(tmp_path, 2)]
    table = {
        "p": names,
        "l": np.array(["x", "y"]),
        "f": (np.float32(0.5), np.float32(1)),
        "v": [np.array([1, 2]), np.array([3, 4])],
        "m": np.ones((2, 3), np.float32),
        "o": np.array(["a", np.nan], object),
    }
    source = Table(table, image="p", label="l", columns=["f", "v", "m", "o"])
    assert source.read([1]) == [b"1.jpg"] and source.classes == ("x", "y")
    columns = source.columns(every(source))
    np.testing.assert_array_equal(columns["f"], np.array([0.5, 1.0]), strict=True)
    np.testing.assert_array_equal(columns["v"], np.array([[1, 2], [3, 4]]), strict=True)
    assert columns["m"].dtype == np.float32 and columns["m"].shape == (2, 3)
    assert columns["o"].tolist() == ["a", ""]


def test_later_changes_have_no_effect():
    table = {"p": ["a", "b"], "n": np.array([1, 2]), "l": np.array([3, 4])}
    arrow = pa.table(table)
    source, held = (Table(t, image="p", label="l", columns=["n"]) for t in (table, arrow))
    before = source.fingerprint
    table["p"][0] = "c"
    table["n"][0] = 9
    table["l"][0] = 9
    assert source.uri(0) == "a" and source.columns(np.arange(2))["n"].tolist() == [1, 2]
    assert source.fingerprint == before and source.classes == ("3", "4")
    # numbers are copies: Arrow's own would keep its whole table in memory
    assert held.columns(np.arange(2))["n"].tolist() == [1, 2]
    assert held._arrays["carried n"].base is None


def test_a_path_may_lead_anywhere(tmp_path):
    """A table in memory is the program's own."""
    name = str(tmp_path / files(tmp_path, 1)[0])
    source = Table({"p": [name]}, image="p", root=tmp_path / "elsewhere")
    assert source.read([0]) == [b"0.jpg"]
    with pytest.raises(ConfigError, match="allow_scheme are for tables in files, got them with a"):
        Table({"p": [name]}, image="p", allow_path=tmp_path)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "lengths": (
        {"p": ["a", "b"], "v": [1]},
        "Table: columns of dict must have the same length, got 2 p, 1",
    ),
    "a column": ({"p": ["a"]}, "Table: no column 'v' in dict; it has 'p'"),
    "mixed": ({"p": ["a", "b"], "v": [1, "x"]}, "column 'v' holds \"x\"; a column holds numbers"),
    "in lists": ({"p": ["a"], "v": [[{1}]]}, "row 0: column 'v' holds set, which no format can"),
    "a text": ({"p": "a", "v": [1]}, "Table: p must be a list or an array, got 'a'"),
    "a number": ({"p": ["a"], "v": 3}, "Table: v must be a list or an array, got 3"),
    "no rows": ({"p": [], "v": []}, "Table: dict has no rows"),
    "a field": (pa.table({"p": ["a"]}), "Table: no column 'v' in pyarrow.Table; it has 'p'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_refused(what):
    table, text = WRONG[what]
    with pytest.raises((ConfigError, SourceError)) as error:
        Table(table, image="p", columns=["v"])
    assert text in str(error.value)


def test_two_columns_of_one_name():
    require("pandas")
    import pandas

    table = pandas.DataFrame([["a", "b"]], columns=["p", "p"])
    with pytest.raises(ConfigError, match=r"2 columns of pandas.DataFrame are called 'p'"):
        Table(table, image="p")


def test_arrow_is_asked_for(monkeypatch):
    stream = Stream({"p": ["a"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "fastfeed.sources.tables.arrow", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install 'fastfeed\[parquet\]'"):
        Table(stream, image="p")
    assert len(Table({"p": ["a"]}, image="p")) == 1


def test_relative_paths_of_a_table_begin_at_the_working_folder(tmp_path: Path, monkeypatch):
    files(tmp_path, 1)
    monkeypatch.chdir(tmp_path)
    assert Table({"p": ["0.jpg"]}, image="p").read([0]) == [b"0.jpg"]
