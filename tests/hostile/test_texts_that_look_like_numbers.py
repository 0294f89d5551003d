"""Texts such as 001, 1E5 and 9007199254740993: names and codes, which reading as numbers would
change or merge.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import CliRunner
from helpers.mosaic import mds_shard
from helpers.photos import jpeg
from helpers.records import example, frame
from helpers.shards import tar_of
from helpers.tables import write

import fastfeed as ff
from fastfeed.cli import app
from fastfeed.errors import SourceError
from fastfeed.sources.class_names import canonical_integers

JPEG = jpeg(0, (8, 8))
BLANKS = ("csv", "tsv", "jsonl", "parquet")


def _table(folder, format, **columns):
    (folder / "x.jpg").write_bytes(JPEG)
    return write(
        folder / f"t.{format}", {"image": ["x.jpg"] * len(next(iter(columns.values()))), **columns}
    )


def _of_table(folder, format, texts, **options):
    return ff.Table(_table(folder, format, key=texts), image="image", label="key", **options)


def _of_tar(folder, kind, texts, **options):
    members = []
    for k, text in enumerate(texts):
        data = text.encode() if kind == "cls" else json.dumps({"key": text}).encode()
        members += [(f"{k}.jpg", JPEG), (f"{k}.{kind}", data)]
    (folder / "a.tar").write_bytes(tar_of(members))
    label = "cls" if kind == "cls" else "json:key"
    return ff.TarShards(folder / "a.tar", label=label, **{"label_kind": "name"} | options)


def _of_records(folder, format, texts, **options):
    records = [frame(example({"image/encoded": JPEG, "key": text.encode()})) for text in texts]
    (folder / "a.tfrecord").write_bytes(b"".join(records))
    return ff.TFRecords(folder / "a.tfrecord", label="key", **options)


def _of_mds(folder, format, texts, **options):
    (folder / "a.mds").write_bytes(
        mds_shard({"image": "jpeg", "key": "str"}, [{"image": JPEG, "key": text} for text in texts])
    )
    return ff.MDSShards(folder / "a.mds", label="key", **options)


SOURCES = [
    *((_of_table, format) for format in BLANKS),
    (_of_tar, "cls"),
    (_of_tar, "json"),
    (_of_records, ""),
    (_of_mds, ""),
]
NAMES = [f"{make.__name__[4:]}-{kind}".strip("-") for make, kind in SOURCES]
everywhere = pytest.mark.parametrize(("make", "kind"), SOURCES, ids=NAMES)


def _labels(source):
    return source.label(np.arange(len(source))).tolist()


@everywhere
@pytest.mark.parametrize(
    ("texts", "classes"),
    [
        (["001", "01", "1", "01"], ("001", "01", "1")),
        (["1E5", "1e5", "100000"], ("100000", "1E5", "1e5")),
        (["+1", "1"], ("+1", "1")),
        (["0x10", "16"], ("0x10", "16")),
        (["10", "9", "2"], ("2", "9", "10")),  # all are integers, so in the order of numbers
        (["10", "9", "02"], ("02", "10", "9")),
        (["9007199254740993", "9007199254740992"], ("9007199254740992", "9007199254740993")),
    ],
    ids=str,
)
def test_a_text_stays_a_text_unless_all_are_integers(tmp_path, make, kind, texts, classes):
    source = make(tmp_path, kind, texts)
    assert source.classes == classes
    assert _labels(source) == [classes.index(text) for text in texts]


@everywhere
def test_indices_that_are_asked_for_may_have_leading_zeros(tmp_path, make, kind):
    source = make(tmp_path, kind, ["002", "000", "10"], label_kind="index")
    assert (_labels(source), source.classes) == ([2, 0, 10], ())


@everywhere
def test_texts_of_integers_are_indices_where_these_are_meant(tmp_path, make, kind):
    source = make(tmp_path, kind, ["2", "0", "10"], label_kind="index")
    assert (_labels(source), source.classes) == ([2, 0, 10], ())


@everywhere
def test_the_classes_of_folders_with_leading_zeros(tmp_path, make, kind):
    for name in ("001", "002", "010"):
        (tmp_path / "p" / name).mkdir(parents=True)
        (tmp_path / "p" / name / "x.jpg").write_bytes(JPEG)
    train = ff.ImageFolder(tmp_path / "p")
    val = make(tmp_path, kind, ["010", "001"], classes=train.classes)
    assert (val.classes, _labels(val)) == (train.classes, [2, 0])


# -- fractions are no classes


@pytest.mark.parametrize("format", BLANKS)
@pytest.mark.parametrize("kind", ["name", "index"])
def test_floats_that_are_integers_are_integers(tmp_path, format, kind):
    source = _of_table(tmp_path, format, [3.0, 0.0, 10.0], label_kind=kind)
    assert (_labels(source), source.classes) == {
        "name": ([1, 0, 2], ("0", "3", "10")),
        "index": ([3, 0, 10], ()),
    }[kind]


@pytest.mark.parametrize("format", BLANKS)
@pytest.mark.parametrize("kind", ["name", "index"])
@pytest.mark.parametrize("ages", [[0.0, 1.5, 20.0], [20, 1e-07, 1.5]], ids=str)
def test_other_floats_are_an_error_that_says_what_to_do(tmp_path, format, kind, ages):
    with pytest.raises(
        SourceError,
        match=r"row 1: column 'key' must hold whole numbers >= 0 .* pass label_kind='value'",
    ):
        _of_table(tmp_path, format, ages, label_kind=kind)
    columns = ff.Table(tmp_path / f"t.{format}", image="image", columns=["key"]).columns(
        np.arange(3)
    )
    assert columns["key"].tolist() == ages


# -- columns


@pytest.mark.parametrize(
    "texts",
    [
        ["0012345", "0000007", "1000000"],
        ["1E5", "2E3", "1E5"],
        [str(2**53 + 1), "1.5", ""],
        ["1", "2", "x"],
        [str(2**53 + 1), "", "1"],
        ["True", "", "False"],
        ["+1", "1", "2"],
        ["1.5", "2.5", "01.5"],
        [str(2**64), "1", "2"],
    ],
    ids=str,
)
def test_columns_keep_what_numbers_would_change(tmp_path, texts):
    source = ff.Table(_table(tmp_path, "csv", key=texts), image="image", columns=["key"])
    assert source.columns(np.arange(3))["key"].tolist() == texts


@pytest.mark.parametrize(
    "values", [[1, -2, 2**53 + 1], [0.5, 1e-07, 3.0], [True, False, True]], ids=str
)
def test_columns_of_numbers_are_numbers(tmp_path, values):
    source = ff.Table(_table(tmp_path, "csv", key=values), image="image", columns=["key"])
    assert source.columns(np.arange(3))["key"].tolist() == values


def test_a_job_keeps_what_numbers_would_change(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p").mkdir()
    for k in range(2):
        (tmp_path / "p" / f"{k}.jpg").write_bytes(jpeg(k, (8, 8)))
    values = {
        "code": ["0012345", "7"],
        "lot": ["1E5", "2E3"],
        "id": [2**53 + 1, 2],
        "n": [1.5, 2.0],
    }
    write(tmp_path / "t.csv", {"path": ["0.jpg", "1.jpg"], **values})
    columns = ",".join(values)
    command = [
        "preprocess",
        "p",
        "out",
        "--labels",
        "t.csv",
        "--columns",
        columns,
        "--size",
        "8",
        "-f",
        "parquet",
        "-w",
        "1",
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, (result.output, result.exception)
    rows = [
        row
        for file in sorted(tmp_path.glob("out/*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    kept = [json.loads(row["meta"])["columns"] for row in sorted(rows, key=lambda row: row["uri"])]
    assert kept == [{name: column[k] for name, column in values.items()} for k in range(2)]


def test_large_integers_among_fractions_are_said(tmp_path):
    table = _table(tmp_path, "jsonl", key=[2**53 + 1, 0.5])
    with pytest.raises(
        SourceError, match=r"row 0: column 'key' holds 9007199254740993 among fractions"
    ):
        ff.Table(table, image="image", columns=["key"])


def test_the_rule():
    assert canonical_integers(["0", "-1", str(2**63 - 1)]) == [0, -1, 2**63 - 1]
    for text in ("00", "-0", "1.0", "1e5", " 1", "1_0", "", str(2**63), "٣"):
        assert canonical_integers(["1", text]) is None


def test_typed_texts_are_never_fractions(tmp_path):
    """Parquet says that it is a text."""
    source = _of_table(tmp_path, "parquet", pa.array(["1.5", "2.0"]))
    assert source.classes == ("1.5", "2.0")
