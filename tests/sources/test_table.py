"""Table: which files it is, where its images are, and what rows without one do."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers.tables import FORMATS, every, files, image_bytes, labels, write

from fastfeed.faults import Failure
from fastfeed.sources import Table
from fastfeed.sources.base import Annotated, Fetching, Sharded
from fastfeed.spec import ENCODED


def paths(folder: Path, *images: str | None, name: str = "t.csv", **more: list) -> Path:
    return write(folder / name, {"path": list(images), "label": list(range(len(images))), **more})


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_says_the_same(tmp_path, format):
    columns = {
        "path": files(tmp_path, 4),
        "kind": ["owl", "ant", None, "owl"],
        "number": [7, 0, 2, 0],
        "weight": [1, 0.5, 0, 2.25],
        "box": [[1, 2, 30, 40], [0.5, 0, 1, 1], None, [3, 3, 3, 3]],
        "year": [1999, 2000, 2001, 2002],
        "share": [0.5, None, 1e9, -1],
        "good": [True, False, True, True],
        "who": ['ä,"b"', "", "c\nd", "e"],
    }
    table = write(tmp_path / f"t.{format}", columns)
    source = Table(
        table,
        image="path",
        label="kind",
        weight="weight",
        box="box",
        columns=("year", "share", "good", "who", "number"),
    )
    assert (len(source), source.spec, source.classes) == (4, ENCODED, ("ant", "owl"))
    assert labels(source) == [1, 0, -1, 1]
    assert str(source) == f"Table({table}): 4 images of 2 classes"
    assert source.read([3, 0]) == [b"3.jpg", b"0.jpg"]
    assert source.weights(every(source)).dtype == np.float32
    assert source.weights(np.array([3, 0])).tolist() == [2.25, 1]
    nan = np.nan
    boxes = [[2, 1, 40, 30], [0, 0.5, 1, 1], [nan] * 4, [3, 3, 3, 3]]
    np.testing.assert_array_equal(
        source.boxes(every(source)), np.array(boxes, np.float64), strict=True
    )
    carried = source.columns(np.array([2, 1]))
    assert list(carried) == ["year", "share", "good", "who", "number"]
    assert [(a.dtype.str, a.tolist()) for a in carried.values()] == [
        ("<i8", [2001, 2000]),
        ("<f8", [1e9, pytest.approx(nan, nan_ok=True)]),
        ("|b1", [True, False]),
        ("|O", ["c\nd", ""]),
        ("<i8", [2, 0]),
    ]
    assert labels(Table(table, image="path", label="number", label_kind="index")) == [7, 0, 2, 0]


@pytest.mark.parametrize("format", FORMATS)
def test_without_anything_but_paths(tmp_path, format):
    source = Table(write(tmp_path / f"t.{format}", {"path": files(tmp_path, 2)}), image="path")
    assert (labels(source), source.classes) == ([-1, -1], ())
    assert (source.weights(every(source)), source.boxes(every(source))) == (None, None)
    assert source.columns(every(source)) == {}
    assert source.read([0]) == [b"0.jpg"], "no label was asked for, so none is missing"


def test_optional_sides(tmp_path):
    source = Table(paths(tmp_path, "a.jpg", "b.jpg"), image="path")
    assert (
        isinstance(source, Annotated)
        and isinstance(source, Fetching)
        and isinstance(source, Sharded)
    )
    assert not source.remote
    assert source.bounds.tolist() == [0, 2], "files lie one by one: all of them are one unit"
    assert source.sizes(every(source)).tolist() == [0, 0]
    assert source.shard(0) == str(tmp_path / "t.csv")


# -- where images are


def test_relative_paths_begin_at_the_table(tmp_path, monkeypatch):
    files(tmp_path / "photos", 2)
    table = paths(tmp_path, "photos/0.jpg", "./photos/1.jpg")
    assert Table(table, image="path").read([0, 1]) == [b"0.jpg", b"1.jpg"]
    monkeypatch.chdir(tmp_path)
    assert Table("t.csv", image="path").read([0, 1]) == [b"0.jpg", b"1.jpg"]


def test_relative_paths_begin_at_a_root(tmp_path):
    files(tmp_path / "photos", 2)
    table = paths(tmp_path / "lists", "0.jpg", "1.jpg")
    source = Table(table, image="path", root=tmp_path / "photos")
    assert source.read([0, 1]) == [b"0.jpg", b"1.jpg"]
    assert source.uri(1) == str(tmp_path / "photos" / "1.jpg")


def test_absolute_paths_and_file_urls_stay_as_they_are(tmp_path):
    files(tmp_path / "photos", 3)
    table = paths(
        tmp_path, f"{tmp_path}/photos/0.jpg", f"file://{tmp_path}/photos/1.jpg", "photos/2.jpg"
    )
    source = Table(table, image="path")
    assert source.read([0, 1, 2]) == [b"0.jpg", b"1.jpg", b"2.jpg"]
    assert source.uri(1) == f"{tmp_path}/photos/1.jpg"
    assert [pending.result() for pending in source.fetch([2, 0])] == [b"2.jpg", b"0.jpg"]


def test_several_tables_each_with_its_own_folder(tmp_path):
    for name in ("a", "b"):
        files(tmp_path / name, 2)
        paths(tmp_path / name, "0.jpg", "1.jpg", name=f"{name}.csv")
    source = Table(
        [tmp_path / "b" / "b.csv", tmp_path / "a" / "a.csv"], image="path", label="label"
    )
    assert [os.path.relpath(source.uri(i), tmp_path) for i in range(4)] == [
        "b/0.jpg#row 0",
        "b/1.jpg#row 1",
        "a/0.jpg#row 2",
        "a/1.jpg#row 3",
    ], "the same texts in both tables: they are told apart by their rows"
    assert labels(source) == [0, 1, 0, 1]
    assert str(source) == f"Table({tmp_path}/b/b.csv and 1 more): 4 images of 2 classes"


def test_names_that_are_no_utf8_text(tmp_path):
    (tmp_path / "Übergröße, 日本.jpg").write_bytes(b"x")
    source = Table(paths(tmp_path, "Übergröße, 日本.jpg", "a\0b.jpg", name="t.jsonl"), image="path")
    good, bad = source.read([0, 1])
    assert good == b"x"
    assert (bad.reason, bad.detail) == ("not_found", "embedded null byte")
    (tmp_path / "u.jsonl").write_text('{"path": "\\ud800.jpg"}\n')
    (bad,) = Table(tmp_path / "u.jsonl", image="path").read([0])
    assert bad.reason == "not_found"


def test_an_image_in_several_rows(tmp_path):
    files(tmp_path, 2)
    source = Table(paths(tmp_path, "0.jpg", "1.jpg", "0.jpg", None, None), image="path")
    assert [os.path.basename(source.uri(i)) for i in range(5)] == [
        "0.jpg#row 0",
        "1.jpg",
        "0.jpg#row 2",
        "t.csv#3",
        "t.csv#4",
    ]
    assert source.read([0, 2]) == [b"0.jpg", b"0.jpg"]


# -- rows without


@pytest.mark.parametrize("format", FORMATS)
def test_rows_without_path_or_label_are_bad_samples(tmp_path, format):
    names = files(tmp_path, 4)
    table = write(
        tmp_path / f"t.{format}",
        {"path": [names[0], None, "", names[3]], "label": ["a", "a", None, None]},
    )
    source = Table(table, image="path", label="label")
    found = source.read([0, 1, 2, 3])
    assert found[0] == b"0.jpg"
    assert found[1] == Failure(1, f"{table}#1", "read", "not_found", "row 1: no path")
    assert found[2] == Failure(2, f"{table}#2", "read", "label_missing", "row 2: no label")
    assert found[3] == Failure(
        3, str(tmp_path / "3.jpg"), "read", "label_missing", "row 3: no label"
    )
    assert [pending.result() for pending in source.fetch([0, 1, 2, 3])] == found


def test_bad_files_are_bad_samples(tmp_path):
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    source = Table(paths(tmp_path, "gone.jpg", "empty.jpg", "folder.jpg", "pipe.jpg"), image="path")
    assert [failure.reason for failure in source.read(range(4))] == [
        "not_found",
        "empty",
        "not_image",
        "not_image",
    ]


def test_an_address_that_no_one_can_read(tmp_path):
    table = paths(tmp_path, "nosuch://x/y.jpg")
    (bad,) = Table(table, image="path", allow_scheme=["nosuch"], allow_host=["x"]).read([0])
    assert bad.reason == "not_found"
    assert "nosuch" in bad.detail


# -- as all sources


def test_pickles_and_threads(tmp_path):
    names = files(tmp_path, 50)
    source = Table(
        write(tmp_path / "t.csv", {"path": names, "who": names}),
        image="path",
        label="who",
        columns=["who"],
    )
    again = pickle.loads(pickle.dumps(source))
    assert again.columns(np.array([7]))["who"].tolist() == ["7.jpg"]
    assert (again.classes, again.fingerprint, str(again)) == (
        source.classes,
        source.fingerprint,
        str(source),
    )
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: again.read([i])[0], list(range(50)) * 4))
    assert found == [name.encode() for name in names] * 4


def test_fingerprints(tmp_path):
    columns = {
        "path": ["a", "b", "c"],
        "label": [1, 2, 3],
        "weight": [1.0, 2.0, 3.0],
        "box": [[1, 2, 3, 4]] * 3,
        "who": ["x", "y", "z"],
        "year": [1, 2, 3],
    }

    def of(name: str = "", values: list | None = None, **more: object) -> str:
        table = write(tmp_path / "t.jsonl", {**columns, name: values} if name else columns)
        asked = {
            "label": "label",
            "weight": "weight",
            "box": "box",
            "columns": ("who", "year"),
        } | more
        return Table(table, image="path", **asked).fingerprint

    found = [
        of(),
        of("path", ["a", "b", "d"]),
        of("path", ["ab", "", "c"]),
        of("label", [1, 2, 4]),
        of("weight", [1.0, 2.0, 3.5]),
        of("box", [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 5]]),
        of("who", ["x", "yz", ""]),
        of("year", [1, 2, 4]),
        of(label_kind="index", classes=("a", "b", "c", "d")),
        of(weight=None),
    ]
    assert len(set(found)) == len(found)
    assert of() == found[0]
    before, now = (
        dict(zip(text.split()[::2], text.split()[1::2], strict=True))
        for text in (found[0], found[3])
    )
    assert [name for name in before if before[name] != now[name]] == ["labels"]


def test_parquet_without_pyarrow(python, tmp_path):
    write(tmp_path / "t.csv", {"path": ["x.jpg"]})
    done = python(
        "import sys; sys.modules['pyarrow'] = None\n"
        "import fastfeed as ff\n"
        "from fastfeed.errors import MissingExtra\n"
        "assert len(ff.Table(sys.argv[1] + '/t.csv', image='path')) == 1\n"
        "try:\n"
        "    ff.Table(sys.argv[2], image='image')\n"
        "except MissingExtra as error:\n"
        "    assert str(error) == \"Table needs PyArrow: pip install 'fastfeed[parquet]'\", error\n"
        "else:\n"
        "    raise AssertionError\n",
        tmp_path,
        image_bytes(tmp_path / "t.parquet", [b"x"], 1),
    )
    assert done.returncode == 0, done.stderr


def test_csv_loads_no_pyarrow(python, tmp_path):
    write(tmp_path / "t.csv", {"path": ["x.jpg"]})
    code = (
        "import sys, fastfeed as ff; ff.Table(sys.argv[1], image='path').read([0]); assert"
        " 'pyarrow' not in sys.modules"
    )
    assert python(code, tmp_path / "t.csv").returncode == 0
