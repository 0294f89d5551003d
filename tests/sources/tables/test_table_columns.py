"""Table: what its columns may hold, and what is refused, by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.tables import FORMATS, every, labels, write

from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources import Table


def table(folder: Path, format: str, **columns: Any) -> Path:
    count = len(next(iter(columns.values())))
    return write(folder / f"t.{format}", {"path": [f"{i}.jpg" for i in range(count)], **columns})


# -- labels


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([3, 0, 200], [3, 0, 200]),
        ([3, None, 2**24 - 1], [3, -1, 2**24 - 1]),
        ([-1, 5, 0], [-1, 5, 0]),
        ([1.0, 4.0, None], [1, 4, -1]),
        (["b", "a", None], [1, 0, -1]),
        (["b", "", "é"], [0, -1, 1]),
        ([None, None, 7], [-1, -1, 7]),
    ],
)
@pytest.mark.parametrize("format", FORMATS)
def test_labels(tmp_path, format, values, found):
    given = table(tmp_path, format, label=values)
    assert labels(Table(given, image="path", label="label", label_kind="index")) == found


def test_labels_of_parquet_types(tmp_path):
    for values in (
        pa.array([True, False, None]),
        pa.array([1, 0, None], pa.uint64()),
        pa.array([1, 0, None], pa.float32()),
        pa.array([np.float16(1), np.float16(0), None], pa.float16()),
        pa.array([1, 0, None]).dictionary_encode(),
        pa.array(["b", "a", None], pa.string_view()),
        pa.array(["b", "a", None], pa.large_string()),
        pa.array(["b", "a", None]).dictionary_encode(),
        pa.chunked_array([pa.array(["b"]), pa.array(["a", None])]),
    ):
        source = Table(table(tmp_path, "parquet", label=values), image="path", label="label")
        assert labels(source) == [1, 0, -1], values


def test_texts_that_are_integers_are_in_the_order_of_numbers(tmp_path):
    for format in FORMATS:
        source = Table(
            table(tmp_path, format, label=["10", "9", "10"]), image="path", label="label"
        )
        assert labels(source) == [1, 0, 1]
        assert source.classes == ("9", "10")
    mixed = Table(table(tmp_path, "csv", label=["10", "9", "x"]), image="path", label="label")
    assert (labels(mixed), mixed.classes) == ([0, 1, 2], ("10", "9", "x"))
    for odd in ("1_0", "9" * 30, "1e3", "inf"):
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
    options = {"image": "path", "label": "label", "label_kind": "index"}
    assert Table(numbered, classes=["x", "y", "z"], **options).classes == ("x", "y", "z")
    with pytest.raises(SourceError) as error:
        Table(numbered, classes=["x", "y"], **options)
    assert str(error.value) == f"Table: {numbered}, row 2: label 2, but there are 2 classes"


def test_names_of_classes_from_hugging_face(tmp_path):
    named = b'{"info": {"features": {"label": {"names": ["owl", "ant"], "_type": "ClassLabel"}}}}'
    columns = pa.table({"path": ["x", "y"], "label": [1, 0]})
    for about, classes in ((named, ("owl", "ant")), (b"{}", ("0", "1")), (b"no JSON", ("0", "1"))):
        pa.parquet.write_table(
            columns.replace_schema_metadata({"huggingface": about}), tmp_path / "t.parquet"
        )
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
        got = "'1.5'"
    with pytest.raises(SourceError) as error:
        Table(given, image="path", **{side: "values"})
    text = str(error.value)
    assert (
        text.partition("; ")[0]
        == f"Table: {given}, row {row}: column 'values' must hold {NEEDED[side]}, got {got}"
    )
    assert ("pass label_kind='value'" in text) == (side == "label" and "1.5" in got)


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
    assert (
        str(error.value) == f"Table: {two}, row 0: column 'l' must hold numbers as above, got 'owl'"
    )


@pytest.mark.parametrize("format", FORMATS)
def test_no_row_has_a_label(tmp_path, format):
    given = table(
        tmp_path,
        format,
        label=[None, None] if format != "parquet" else pa.array([None, None], pa.int64()),
    )
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
    np.testing.assert_array_equal(
        found, np.array([[2, 1, 4, 3], [nan] * 4, [0, 0.5, 1 / 3, 7]]), strict=True
    )


def test_half_a_box(tmp_path):
    columns = {"x": [1, 1], "y": [2, 2], "w": [3, None], "h": [4, 4]}
    given = table(tmp_path, "parquet", **columns)
    with pytest.raises(
        SourceError, match=r"row 1: column 'x, y, w, h' must hold .*, got \[1.0, 2.0, nan, 4.0\]"
    ):
        Table(given, image="path", box=("x", "y", "w", "h"))


@pytest.mark.parametrize(
    "values", [[[1, 2, 3]], [[1, 2, 3, "a"]], [{"x": 1}], ["1 2 3 4"], [[1, 2, 3, None]], [7]]
)
@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_what_is_no_box(tmp_path, format, values):
    with pytest.raises(SourceError, match="row 0: column 'b'"):
        Table(table(tmp_path, format, b=values), image="path", box="b")


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int32()), pa.large_list(pa.float32()), pa.list_(pa.float64(), 4)]
)
def test_boxes_of_parquet_types(tmp_path, kind):
    if pa.types.is_fixed_size_list(kind) and int(pa.__version__.split(".")[0]) < 26:
        pytest.skip(
            "PyArrow before 26 cannot read lists of one size with nulls among them from a Parquet"
            " file"
        )
    values = pa.array([None, [1, 2, 3, 4], [5, 6, 7, 8]], kind)
    source = Table(table(tmp_path, "parquet", b=values), image="path", box="b")
    assert source.boxes(np.array([2, 1])).tolist() == [[6, 5, 8, 7], [2, 1, 4, 3]]
    assert np.isnan(source.boxes(np.array([0]))).all()


def test_the_largest_numbers(tmp_path):
    largest = 2**63 - 1
    source = Table(table(tmp_path, "parquet", v=[largest, -1]), image="path", label="v")
    assert (labels(source), source.classes) == ([0, -1], (str(largest),))
    for values in (
        pa.array([0, 2**63], pa.uint64()),
        pa.array([0, 1e19]),
        pa.array([0, float("inf")]),
    ):
        with pytest.raises(SourceError, match="row 1: column 'v' must hold whole numbers >= 0"):
            Table(table(tmp_path, "parquet", v=values), image="path", label="v")


def test_images_in_a_second_role(tmp_path):
    given = table(tmp_path, "parquet", image=[b"x"])
    with pytest.raises(ConfigError) as error:
        Table(given, image="image", label="image")
    assert (
        str(error.value)
        == "Table: column 'image' holds the images; it cannot be label, weight or box as well"
    )
    with pytest.raises(ConfigError) as error:
        Table(given, image="image", columns=["image"])
    assert (
        str(error.value) == "Table: column 'image' holds images as bytes; leave it out of columns"
    )
