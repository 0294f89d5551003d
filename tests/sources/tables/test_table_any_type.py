"""Extra columns of any type: what `columns` returns, and the type it has."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastfeed import Table
from fastfeed.errors import SourceError

UTC = timezone.utc
# values in Arrow, the type, and what `columns` returns
ARROW: dict[str, tuple[pa.Array, Any, list[Any]]] = {
    "texts": (pa.array([["a", "ü"], None, []]), ["list", "text"], [["a", "ü"], "", []]),
    "coded": (
        pa.array([["a"], None, []]).cast(pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        ["list", "text"],
        [["a"], "", []],
    ),
    "date": (
        pa.array([date(2024, 1, 5), None, date(1, 1, 1)]),
        "date",
        ["2024-01-05", "", "0001-01-01"],
    ),
    "date64": (pa.array([date(2024, 1, 5)] * 3, pa.date64()), "date", ["2024-01-05"] * 3),
    "naive": (
        pa.array([datetime(2024, 1, 5, 10, 0, 0, 5), None, None], pa.timestamp("us")),
        ["timestamp", "us", False],
        ["2024-01-05T10:00:00.000005", "", ""],
    ),
    "zoned": (
        pa.array([datetime(2024, 1, 5, 10, tzinfo=UTC)] * 3, pa.timestamp("ns", "Europe/Zurich")),
        ["timestamp", "ns", True],
        ["2024-01-05T10:00:00.000000000Z"] * 3,
    ),
    "decimal": (
        pa.array([Decimal("12.50"), None, Decimal("-0.05")], pa.decimal128(10, 2)),
        ["decimal", 10, 2],
        ["12.50", "", "-0.05"],
    ),
    "struct": (
        pa.array([{"a": 1, "b": [{"c": date(2020, 1, 1)}]}, None, {"a": None, "b": None}]),
        ["struct", [["a", "int"], ["b", ["list", ["struct", [["c", "date"]]]]]]],
        [{"a": 1, "b": [{"c": "2020-01-01"}]}, "", {"a": None, "b": None}],
    ),
    "no items": (pa.array([None, [], None], pa.list_(pa.string())), ["list", "text"], ["", [], ""]),
    "no values": (pa.array([None] * 3, pa.list_(pa.string())), ["list", "text"], [np.nan] * 3),
    "large": (pa.array([2**60 + 1, None, 3]), "int", [2**60 + 1, "", 3]),
    "bytes": (pa.array([b"\xff\x00", None, b"x"]), "bytes", [b"\xff\x00", "", b"x"]),
    "ragged": (
        pa.array([[1.5, float("nan")], None, []]),
        ["list", "float"],
        [[1.5, None], "", []],
    ),
}


def paths(count: int = 3) -> list[str]:
    return [f"{k}.jpg" for k in range(count)]


@pytest.mark.parametrize("name", ARROW)
def test_arrow(tmp_path: Path, name: str) -> None:
    values, kind, wanted = ARROW[name]
    table = pa.table({"path": paths(), "v": values})
    pq.write_table(table, tmp_path / "t.parquet")
    for given in (table, tmp_path / "t.parquet"):
        source = Table(given, image="path", columns=["v"])
        assert source.column_types == {"v": kind}
        np.testing.assert_equal(source.columns(np.arange(3))["v"].tolist(), wanted)
        np.testing.assert_equal(
            source.columns(np.array([2, 0]))["v"].tolist(), [wanted[2], wanted[0]]
        )


def test_bools_with_gaps_are_numbers(tmp_path: Path) -> None:
    source = Table({"path": paths(), "v": [True, None, False]}, image="path", columns=["v"])
    np.testing.assert_array_equal(source.columns(np.arange(3))["v"], [1, np.nan, 0])
    assert source.column_types == {"v": "bool"}


def json_lines(path: Path, values: list[Any]) -> Path:
    rows = [
        {"path": name, "v": value} for name, value in zip(paths(len(values)), values, strict=True)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_json_lines_have_the_type_that_holds_all_of_their_values(tmp_path: Path) -> None:
    for values, kind in (
        ([["a"], None, []], ["list", "text"]),
        ([[1, 2], [0.5]], ["list", "float"]),
        ([{"x": 1}, {"y": ["a"]}], ["struct", [["x", "int"], ["y", ["list", "text"]]]]),
        ([[], []], ["list", "text"]),
        ([{}, {"a": 1}], "json"),
        ([{str(k): 1 for k in range(101)}], "json"),
    ):
        source = Table(json_lines(tmp_path / "t.jsonl", values), image="path", columns=["v"])
        assert source.column_types == {"v": kind}
        found = source.columns(np.arange(len(values)))["v"]
        if found.dtype == object:
            assert found.tolist() == ["" if value is None else value for value in values]


def test_types_of_several_files_are_united_or_refused(tmp_path: Path) -> None:
    one = json_lines(tmp_path / "a.jsonl", [[1, 2], [3, 4]])
    two = json_lines(tmp_path / "b.jsonl", [[0.5], None])
    source = Table([one, two], image="path", columns=["v"])
    assert source.column_types == {"v": ["list", "float"]}
    assert source.columns(np.arange(4))["v"].tolist() == [[1, 2], [3, 4], [0.5], ""]
    empty = json_lines(tmp_path / "b.jsonl", [[], []])
    assert Table([empty, one], image="path", columns=["v"]).column_types == {"v": ["list", "int"]}
    two = json_lines(tmp_path / "b.jsonl", [["x"]])
    with pytest.raises(
        SourceError,
        match=r"b\.jsonl, row 0: column 'v' must hold what it holds above, such as .1, 2.",
    ):
        Table([one, two], image="path", columns=["v"])


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


BAD: list[tuple[list[Any], str]] = [
    ([["a"], ["b", 3]], "row 1: column 'v' holds integers, those before texts"),
    ([["a"], {"b": 3}], "row 1: column 'v' holds"),
    ([[["a"]], [{"b": 3}]], "row 1: column 'v' holds structs of b, those before lists of texts"),
    ([nested(9)], "row 0: column 'v' is nested more than 8 deep"),
]


@pytest.mark.parametrize(("values", "text"), BAD)
def test_values_of_other_types_are_refused(tmp_path: Path, values: list[Any], text: str) -> None:
    with pytest.raises(SourceError, match=text):
        Table(json_lines(tmp_path / "t.jsonl", values), image="path", columns=["v"])


def test_types_of_arrow_that_no_format_can_carry(tmp_path: Path) -> None:
    for values, text in (
        (pa.array([[b"x"]]), "holds binary inside of lists or structs, which no format can carry"),
        (pa.array([1], pa.duration("s")), r"holds duration\[s\], which no format can carry"),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "which no format can carry"),
        (pa.array([nested(9)]), "is nested more than 8 deep"),
    ):
        with pytest.raises(SourceError, match=text):
            Table(pa.table({"path": ["a"], "v": values}), image="path", columns=["v"])
    invalid = pa.array([[b"\xff"]]).cast(pa.list_(pa.binary()))
    texts = pa.ListArray.from_arrays(
        [0, 1], pa.Array.from_buffers(pa.string(), 1, invalid.flatten().buffers())
    )
    with pytest.raises(SourceError, match=r"column 'v' of .* holds texts that are not UTF-8"):
        Table(pa.table({"path": ["a"], "v": texts}), image="path", columns=["v"])


def test_a_label_cannot_be_of_these_types(tmp_path: Path) -> None:
    table = pa.table({"path": ["a"], "v": pa.array([{"a": 1}])})
    with pytest.raises(
        SourceError, match=r"column 'v' of .* holds struct<a: int64>; numbers, bools"
    ):
        Table(table, image="path", label="v")


def test_dicts_of_python_objects() -> None:
    given = {
        "path": paths(2),
        "date": [date(2024, 1, 5), None],
        "time": np.array(["2024-01-05T10:00", "NaT"], "M8[ns]"),
        "price": [Decimal("1.5"), Decimal("10.25")],
        "tags": [["a", "b"], ("c",)],
        "facts": [{"a": np.int64(1)}, None],
    }
    source = Table(given, image="path", columns=list(given)[1:])
    found = {name: values.tolist() for name, values in source.columns(np.arange(2)).items()}
    assert found == {
        "date": ["2024-01-05", ""],
        "time": ["2024-01-05T10:00:00", ""],
        "price": ["1.5", "10.25"],
        "tags": [["a", "b"], ["c"]],
        "facts": [{"a": 1}, ""],
    }
    assert source.column_types["price"] == ["decimal", 4, 2]


def test_large_tables_are_kept_with_their_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastfeed.sources.tables.open_table.KEEP_BYTES", 1)
    path = json_lines(tmp_path / "t.jsonl", [["a"], ["b", "c"]])
    for _ in range(2):
        source = Table(path, image="path", columns=["v"])
        assert source.column_types == {"v": ["list", "text"]}
        assert source.columns(np.arange(2))["v"].tolist() == [["a"], ["b", "c"]]
