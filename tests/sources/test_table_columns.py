"""Table: what its columns may hold, and what is refused, by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tables import FORMATS, every, labels, write

from fastfeed.errors import SourceError
from fastfeed.sources import Table


def table(folder: Path, format: str, **columns: Any) -> Path:
    count = len(next(iter(columns.values())))
    return write(folder / f"t.{format}", {"path": [f"{i}.jpg" for i in range(count)], **columns})


# -- labels


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([3, 0, 200], [3, 0, 200]),
        ([3, None, 2**40], [3, -1, 2**40]),
        ([-1, 5, 0], [-1, 5, 0]),
        ([1.0, 4.0, None], [1, 4, -1]),
        (["b", "a", None], [1, 0, -1]),
        (["b", "", "é"], [0, -1, 1]),
        ([None, None, 7], [-1, -1, 7]),
    ],
)
@pytest.mark.parametrize("format", FORMATS)
def test_labels(tmp_path, format, values, found):
    assert labels(Table(table(tmp_path, format, label=values), image="path", label="label")) == found


def test_labels_of_parquet_types(tmp_path):
    for values in (
        pa.array([True, False, None]),
        pa.array([1, 0, None], pa.uint64()),
        pa.array([1, 0, None], pa.float32()),
        pa.array(["b", "a", None], pa.large_string()),
        pa.array(["b", "a", None]).dictionary_encode(),
        pa.chunked_array([pa.array(["b"]), pa.array(["a", None])]),
    ):
        source = Table(table(tmp_path, "parquet", label=values), image="path", label="label")
        assert labels(source) == [1, 0, -1], values


def test_texts_that_are_numbers_are_labels_as_they_are_in_csv_and_classes_elsewhere(tmp_path):
    for format, found in (("csv", [10, 9, 10]), ("jsonl", [0, 1, 0]), ("parquet", [0, 1, 0])):
        source = Table(table(tmp_path, format, label=["10", "9", "10"]), image="path", label="label")
        assert labels(source) == found
        assert source.classes == (() if format == "csv" else ("10", "9"))
    mixed = Table(table(tmp_path, "csv", label=["10", "9", "x"]), image="path", label="label")
    assert (labels(mixed), mixed.classes) == ([0, 1, 2], ("10", "9", "x"))
    for odd in ("1_0", "9" * 30, "1.5", "1e3", "inf"):
        source = Table(table(tmp_path, "csv", label=["0", odd]), image="path", label="label")
        assert (labels(source), source.classes) == ([0, 1], ("0", odd))


@pytest.mark.parametrize("format", FORMATS)
def test_classes_give_the_numbers(tmp_path, format):
    given = table(tmp_path, format, label=["b", "a", None])
    source = Table(given, image="path", label="label", classes=("c", "b", "a"))
    assert (labels(source), source.classes) == ([1, 2, -1], ("c", "b", "a"))
    with pytest.raises(SourceError) as error:
        Table(given, image="path", label="label", classes=["b"])
    assert str(error.value) == "Table: labels that are not in classes: a"
    numbered = table(tmp_path, format, label=[1, 0, 2])
    assert Table(numbered, image="path", label="label", classes=["x", "y", "z"]).classes == ("x", "y", "z")
    with pytest.raises(SourceError) as error:
        Table(numbered, image="path", label="label", classes=["x", "y"])
    assert str(error.value) == f"Table: {numbered}, row 2: label 2, but there are 2 classes"


def test_names_of_classes_from_hugging_face(tmp_path):
    named = b'{"info": {"features": {"label": {"names": ["owl", "ant"], "_type": "ClassLabel"}}}}'
    columns = pa.table({"path": ["x", "y"], "label": [1, 0]})
    for about, classes in ((named, ("owl", "ant")), (b"{}", ()), (b"no JSON", ())):
        pa.parquet.write_table(columns.replace_schema_metadata({"huggingface": about}), tmp_path / "t.parquet")
        source = Table(tmp_path / "t.parquet", image="path", label="label")
        assert (source.classes, labels(source)) == (classes, [1, 0])


# -- what is refused

NEEDED = {
    "label": "whole numbers >= 0 (-1 for none), or texts",
    "weight": "numbers >= 0",
    "box": "[x, y, width, height] in pixels, width and height above 0",
}
REFUSED = [
    ("label", [0, 1.5, 2], 1, "1.5"),
    ("label", [0, 1, -2], 2, "-2"),
    ("weight", [1, 0, None], 2, "nothing"),
    ("weight", [1, -0.5, 1], 1, "-0.5"),
    ("weight", [1.0, 1e39, 1.0], 1, "1e+39"),
    ("box", [[1, 2, 3, 4], [1, 2, 0, 4], None], 1, "[1.0, 2.0, 0.0, 4.0]"),
    ("box", [[1, 2, 3, 4], None, [1, 2, 3, -4]], 2, "[1.0, 2.0, 3.0, -4.0]"),
]


@pytest.mark.parametrize(("side", "values", "row", "got"), REFUSED)
@pytest.mark.parametrize("format", FORMATS)
def test_values_that_are_refused(tmp_path, format, side, values, row, got):
    given = table(tmp_path, format, values=values)
    if (format, got) == ("csv", "1.5") or (format, got) == ("tsv", "1.5"):
        return  # a text like any other: CSV has no types
    with pytest.raises(SourceError) as error:
        Table(given, image="path", **{side: "values"})
    assert str(error.value) == f"Table: {given}, row {row}: column 'values' must hold {NEEDED[side]}, got {got}"


def test_not_a_number_is_no_weight(tmp_path):
    for format in FORMATS:
        with pytest.raises(SourceError, match="row 1: column 'w' must hold numbers >= 0, got nan"):
            Table(table(tmp_path, format, w=[1.0, float("nan")]), image="path", weight="w")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("side", ["weight", "box", "image"])
def test_columns_of_the_wrong_kind(tmp_path, format, side):
    values = [1, 2] if side == "image" else ["a", "b"]
    if side == "image" and format in ("csv", "tsv"):
        return  # 1 is a path there
    given = table(tmp_path, format, values=values)
    with pytest.raises(SourceError) as error:
        Table(given, **({"image": "path"} | {side: "values"}))
    assert "column 'values'" in str(error.value)
    assert "must hold" in str(error.value)


def test_the_file_and_its_row_are_named(tmp_path):
    one = write(tmp_path / "a.csv", {"path": ["x"] * 3, "w": [1] * 3})
    two = write(tmp_path / "b.csv", {"path": ["x"] * 3, "w": [1, -1, 1]})
    with pytest.raises(SourceError, match=rf"^Table: {two}, row 1: column 'w' must"):
        Table([one, two], image="path", weight="w")


def test_labels_of_two_kinds(tmp_path):
    one = write(tmp_path / "a.jsonl", {"path": ["x"], "l": [1]})
    two = write(tmp_path / "b.jsonl", {"path": ["x"], "l": ["owl"]})
    with pytest.raises(SourceError) as error:
        Table([one, two], image="path", label="l")
    assert str(error.value) == f"Table: {two}, row 0: column 'l' must hold numbers as above, got 'owl'"


@pytest.mark.parametrize("format", FORMATS)
def test_no_row_has_a_label(tmp_path, format):
    given = table(tmp_path, format, label=[None, None] if format != "parquet" else pa.array([None, None], pa.int64()))
    with pytest.raises(SourceError) as error:
        Table(given, image="path", label="label")
    assert str(error.value) == f"Table: no row of {given} has a label in column 'label'"


# -- boxes


@pytest.mark.parametrize("format", FORMATS)
def test_boxes_in_four_columns(tmp_path, format):
    columns = {"x": [1, None, 0.5], "y": [2, None, 0], "w": [3, None, 7], "h": [4, None, 1 / 3]}
    source = Table(table(tmp_path, format, **columns), image="path", box=("x", "y", "w", "h"))
    found = source.boxes(every(source))
    nan = np.nan
    np.testing.assert_array_equal(found, np.array([[2, 1, 4, 3], [nan] * 4, [0, 0.5, 1 / 3, 7]]), strict=True)


def test_half_a_box(tmp_path):
    columns = {"x": [1, 1], "y": [2, 2], "w": [3, None], "h": [4, 4]}
    given = table(tmp_path, "parquet", **columns)
    with pytest.raises(SourceError, match=r"row 1: column 'x, y, w, h' must hold .*, got \[1.0, 2.0, nan, 4.0\]"):
        Table(given, image="path", box=("x", "y", "w", "h"))


@pytest.mark.parametrize("values", [[[1, 2, 3]], [[1, 2, 3, "a"]], [{"x": 1}], ["1 2 3 4"], [[1, 2, 3, None]], [7]])
@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_what_is_no_box(tmp_path, format, values):
    with pytest.raises(SourceError, match="row 0: column 'b'"):
        Table(table(tmp_path, format, b=values), image="path", box="b")


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.float32()), pa.list_(pa.float64(), 4)])
def test_boxes_of_parquet_types(tmp_path, kind):
    values = pa.array([None, [1, 2, 3, 4], [5, 6, 7, 8]], kind)
    source = Table(table(tmp_path, "parquet", b=values), image="path", box="b")
    assert source.boxes(np.array([2, 1])).tolist() == [[6, 5, 8, 7], [2, 1, 4, 3]]
    assert np.isnan(source.boxes(np.array([0]))).all()


# -- columns


@pytest.mark.parametrize(
    "kind",
    ["int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64", "bool_"],
)
def test_numbers_keep_their_type_in_parquet(tmp_path, kind):
    values = np.array([1, 0, 1], "bool" if kind == "bool_" else kind)
    source = Table(table(tmp_path, "parquet", v=pa.array(values)), image="path", columns=["v"])
    np.testing.assert_array_equal(source.columns(every(source))["v"], values, strict=True)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_lists_of_one_length(tmp_path, format):
    source = Table(
        table(tmp_path, format, v=[[1, 2], [3, 4], [5, 6]], w=[[0.5], None, [2]]), image="path", columns=["v", "w"]
    )
    found = source.columns(np.array([2, 1]))
    np.testing.assert_array_equal(found["v"], np.array([[5, 6], [3, 4]]), strict=True)
    np.testing.assert_array_equal(found["w"], np.array([[2.0], [np.nan]]), strict=True)
    for values, text in (
        ([[1, 2], [3]], "row 1: column 'v' holds a list of 1, those above hold 2"),
        ([[1, 2], [3, None]], "row 1: column 'v' holds"),
    ):
        with pytest.raises(SourceError, match=text):
            Table(table(tmp_path, format, v=values), image="path", columns=["v"])


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
        with pytest.raises(SourceError, match=r"row 1: column 'v' must hold a value in every row .*, got nothing"):
            Table(given, image="path", columns=["v"])


def test_a_column_that_becomes_another_kind(tmp_path):
    for first, then in (([1], ["a"]), (["a"], [[1]]), ([[1, 2]], [[1]]), ([1], [[1]])):
        one = write(tmp_path / "a.jsonl", {"path": ["x", "y"], "v": [None, *first]})
        two = write(tmp_path / "b.jsonl", {"path": ["x", "y"], "v": [None, *then]})
        with pytest.raises(SourceError) as error:
            Table([one, two], image="path", columns=["v"])
        assert str(error.value) == (
            f"Table: {two}, row 1: column 'v' must hold what it holds above, such as {first[0]!r}, got {then[0]!r}"
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


def test_kinds_that_cannot_be_carried(tmp_path):
    for values in (pa.array([b"x"]), pa.array([{"a": 1}]), pa.array([1], pa.timestamp("s")), pa.array([["a"]])):
        given = table(tmp_path, "parquet", v=values)
        with pytest.raises(SourceError, match=r"column 'v' of .* holds .*; numbers, bools, texts and lists of numbers"):
            Table(given, image="path", columns=["v"])
    given = table(tmp_path, "jsonl", v=[{"a": 1}])
    with pytest.raises(SourceError, match=r"row 0: column 'v' holds \{.a.: 1\}; a column holds numbers, or texts"):
        Table(given, image="path", columns=["v"])


def test_json_numbers_that_are_too_large(tmp_path):
    for values in ([1, 10**30], [1.5, 10**400], [[1, 2], [1, 10**30]]):
        with pytest.raises(SourceError, match="row 1: column 'v' holds"):
            Table(table(tmp_path, "jsonl", v=values), image="path", columns=["v"])
