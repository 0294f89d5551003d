"""Declared types of metadata columns, and values that do not fit them."""

from __future__ import annotations

import csv
import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.preprocess.one_column import json_lines, one_column, pictures
from helpers.small_jobs import InlineEngine, recipe

from fastfeed.errors import ConfigError
from fastfeed.preprocess import open_input, run
from fastfeed.preprocess.model.columns import canonical, declared_types
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.target import open_target

UTC = timezone.utc


def test_csv_with_declared_types(tmp_path: Path) -> None:
    rows = [
        ("path", "keywords", "day", "at", "price", "flag", "stock", "note"),
        ("0.jpg", "cat, dog", "2024-01-05", "2024-01-05 10:00+02:00", "12.5", "true", "7", "a"),
        ("1.jpg", '["x, y"]', "", "2024-01-05T10:00Z", "", "", "", ""),
        ("2.jpg", "a; b, c", "2024-01-06", "", "3", "0", "-1", "7"),
    ]
    pictures(tmp_path / "data")
    with open(tmp_path / "data/t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    types = ["keywords=list", "day=date", "at=utc", "price=decimal(10,2)", "flag=bool", "stock=int"]
    data = open_input(str(tmp_path / "data/t.csv"), columns=list(rows[0][1:]), column_types=types)
    run(data, tmp_path / "s", recipe("parquet"), engine=InlineEngine())
    found = pq.read_table(tmp_path / "s").select(rows[0][1:]).to_pylist()
    assert found == [
        {
            "keywords": ["cat", "dog"],
            "day": date(2024, 1, 5),
            "at": datetime(2024, 1, 5, 8, tzinfo=UTC),
            "price": Decimal("12.50"),
            "flag": True,
            "stock": 7,
            "note": "a",
        },
        {
            "keywords": ["x, y"],
            "day": None,
            "at": datetime(2024, 1, 5, 10, tzinfo=UTC),
            "price": None,
            "flag": None,
            "stock": None,
            "note": "",
        },
        {
            "keywords": ["a", "b, c"],
            "day": date(2024, 1, 6),
            "at": None,
            "price": Decimal("3.00"),
            "flag": False,
            "stock": -1,
            "note": "7",
        },
    ]


def test_tars_have_any_json_unless_types_are_declared(tmp_path: Path) -> None:
    first = tmp_path / "first"
    place = json_lines(tmp_path / "d", [["a"], ["b", "c"], None])
    data = open_input(place, columns=["v"])
    run(data, first, recipe("webdataset"), engine=InlineEngine())
    plan = open_job(open_target(first, writes=False)).plan
    (first / "__job" / "plan.json").unlink()  # now it is any tar
    for types, kind in (((), "json"), (("json:columns.v=list",), ["list", "text"])):
        name = "json:columns.v"
        data = open_input(f"{first}/*.tar", columns=[name], column_types=types)
        shards = tmp_path / f"then{len(types)}"
        run(data, shards, recipe("parquet"), engine=InlineEngine())
        assert open_job(open_target(shards, writes=False)).plan.columns == {name: kind}
        texts = ['["a"]', '["b","c"]', None]
        found = pq.read_table(shards).column(name).to_pylist()
        assert found == (texts if kind == "json" else [["a"], ["b", "c"], None])
    assert plan.columns == {"v": ["list", "text"]}


def test_values_that_do_not_fit_are_bad_samples(tmp_path: Path) -> None:
    rows = [["x"] * 3, ["y" * 10] * 200_000, ["z"]]
    one_column(tmp_path, json_lines(tmp_path / "d", rows))
    assert bad(tmp_path) == [
        "v: a value of 200,000 items takes 2,800,000 bytes as JSON; columns may have 1,048,576"
    ]
    other = tmp_path / "o"
    report = one_column(other, json_lines(other, ["1", "x", "2"]), "v=int")
    assert report.tally.samples == 2
    assert bad(other) == ["v: a column of integers holds 'x'"]


def bad(root: Path) -> list[str]:
    lines = (root / "shards/__job/bad.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert {row["reason"] for row in rows} == {"corrupt"}
    return [row["detail"] for row in rows]


def test_a_list_with_null_is_bad_in_tfrecords_alone(tmp_path: Path) -> None:
    place = json_lines(tmp_path / "d", [[1, None], [2], [3, 4]])
    assert one_column(tmp_path / "p", place).tally.samples == 3
    assert one_column(tmp_path, place, format="tfrecord").tally.samples == 2
    assert "v: a list with null in it" in (tmp_path / "shards/__job/bad.jsonl").read_text()


CANONICAL: list[tuple[Any, Any, Any]] = [
    ("bool", "TRUE", True),
    ("bool", 1.0, True),
    ("int", 3.0, 3),
    ("int", float("nan"), None),
    ("date", "", None),
    ("text", "", ""),
    ("text", 7, "7"),
    (["timestamp", "us", False], "2024-02-29 10:00", "2024-02-29T10:00:00.000000"),
    (["timestamp", "us", True], "2024-01-01T00:30+01:00", "2023-12-31T23:30:00.000000Z"),
    (["timestamp", "s", False], "2024-01-01T00:30:15", "2024-01-01T00:30:15"),
    (["decimal", 5, 2], "12.5", "12.50"),
    (["decimal", 5, 2], 3, "3.00"),
    (["list", "int"], [1.0, "2", None], [1, 2, None]),
    (["struct", [["a", "date"]]], '{"a": "2024-01-05"}', {"a": "2024-01-05"}),
]


@pytest.mark.parametrize(("kind", "value", "wanted"), CANONICAL)
def test_values_that_fit(kind: Any, value: Any, wanted: Any) -> None:
    assert canonical(kind, value) == wanted
    assert canonical(kind, wanted) == wanted


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bool", 2),
        ("bool", "yes"),
        ("int", 0.5),
        ("int", 1 << 63),
        ("date", "05.01.2024"),
        ("text", b"\xff"),
        (["timestamp", "us", False], "2024-02-30T10:00"),
        (["timestamp", "us", False], "2024-01-01T10:00Z"),
        (["timestamp", "ns", False], "1500-01-01T10:00"),
        (["decimal", 5, 2], "12.505"),
        (["decimal", 4, 2], "100"),
        (["decimal", 4, 2], "1e1"),
        (["list", "int"], ["x"]),
        (["list", "int"], {"a": 1}),
        (["struct", [["a", "int"]]], {"b": 1}),
    ],
)
def test_values_that_do_not_fit(kind: Any, value: Any) -> None:
    with pytest.raises(ValueError, match="hold"):
        canonical(kind, value)


@pytest.mark.parametrize(
    ("types", "text"),
    [
        (["v=set"], "column_types must be NAME=TYPE, with a type of bool, int, .*, got 'v=set'"),
        (["v=decimal(50,2)"], "got 'v=decimal"),
        (["v"], "got 'v'"),
        (["w=int"], "column_types names 'w', which is not one of the columns v"),
    ],
)
def test_declared_types_are_checked(types: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        declared_types(types, ["v"])


def test_bytes_need_a_name_that_a_tar_has_room_for(tmp_path: Path) -> None:
    pictures(tmp_path)
    values = pa.table({"path": ["0.jpg"], "Mask.1": [b"x"], "json": [b"x"]})
    pq.write_table(values, tmp_path / "t.parquet")
    for name in ("Mask.1", "json"):
        data = open_input(str(tmp_path / "t.parquet"), columns=[name])
        with pytest.raises(
            ConfigError, match=f"column '{name}' holds bytes, which webdataset shards"
        ):
            run(data, tmp_path / "shards", recipe("webdataset"), engine=InlineEngine())
