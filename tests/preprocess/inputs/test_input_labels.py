"""A folder's photographs joined with a table of labels and captions."""

from __future__ import annotations

import csv
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from helpers.photos import folder, jpeg
from helpers.remotes import uploaded
from helpers.tables import FORMATS, write

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.source_spec import open_input

PATHS = ["b/0001.jpg", "a/0000.jpg", "./b/0000.jpg", "a/0001.jpg"]
COLUMNS = {
    "path": PATHS,
    "label": ["x", "y", "x", "z"],
    "caption": ["one", "two", None, "four"],
    "n": [1.5, 2, 3, 4],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return folder(tmp_path / "p", {"a": 2, "b": 2})


@pytest.mark.parametrize("format", FORMATS)
def test_rows_find_their_photographs(root: Path, tmp_path: Path, format: str) -> None:
    table = write(tmp_path / f"labels.{format}", COLUMNS)
    given = pickle.loads(pickle.dumps(open_input(str(root), labels_file=str(table), columns=["n"])))
    source = given.source
    assert [os.path.relpath(source.uri(i), root) for i in range(4)] == [
        "a/0000.jpg",
        "a/0001.jpg",
        "b/0000.jpg",
        "b/0001.jpg",
    ]
    assert [source.classes[label] for label in source.label(np.arange(4))] == ["y", "z", "x", "x"]
    assert [note.get("text") for note in given.notes(range(4))] == ["two", "four", None, "one"]
    assert [float(note["columns"]["n"]) for note in given.notes([3, 0])] == [1.5, 2]
    assert source.read([0, 3]) == [jpeg(0), jpeg(3)]


def test_remote_folders_and_tables(root: Path, tmp_path: Path) -> None:
    write(tmp_path / "t" / "labels.csv", COLUMNS)
    given = open_input(uploaded(root), labels_file=uploaded(tmp_path / "t") + "/labels.csv")
    assert given.notes(range(4)) == [{"text": "two"}, {"text": "four"}, {}, {"text": "one"}]
    assert given.source.read([1]) == [jpeg(1)]


def test_the_fingerprint_knows_labels_and_captions(root: Path, tmp_path: Path) -> None:
    def fingerprint(**changed: list) -> str:
        return open_input(
            str(root), labels_file=str(write(tmp_path / "l.csv", COLUMNS | changed))
        ).fingerprint

    before = fingerprint()
    assert fingerprint() == before
    assert fingerprint(label=["x", "y", "x", "x"]) != before
    assert fingerprint(caption=["one", "two", None, "five"]) != before
    (root / "a" / "0000.jpg").write_bytes(jpeg(50, (60, 60)))
    assert fingerprint() != before


def test_what_does_not_match_is_said(root: Path, tmp_path: Path) -> None:
    for k in range(7):
        (root / "a" / f"more{k}.jpg").write_bytes(jpeg(k))
    table = write(tmp_path / "l.csv", {"path": [*PATHS, "a/gone.jpg"], "label": [1, 2, 3, 4, 5]})
    with pytest.raises(SourceError) as caught:
        open_input(str(root), labels_file=str(table))
    assert (
        str(caught.value)
        == f"labels file {table} does not match {root}: 7 of 11 images have no row:"
        " 'a/more0.jpg', 'a/more1.jpg', 'a/more2.jpg', 'a/more3.jpg', 'a/more4.jpg' and 2 more;"
        " 1 rows have no image: 'a/gone.jpg'. Its paths must be relative to that folder;"
        ' or leave such images out: missing="drop" (--drop-unlabeled)'
    )
    source = open_input(str(root), labels_file=str(table), missing="drop").source
    found = source.read(range(11))
    bad = [one for one in found if isinstance(one, Failure)]
    assert {one.reason for one in bad} == {"label_missing"}
    assert [one.id for one in bad] == list(range(2, 9))
    assert source.label(np.arange(11)).tolist() == [1, 3, *[-1] * 7, 2, 0]
    assert source.classes == ("1", "2", "3", "4", "5")
    raw = open_input(str(root), labels_file=str(table), missing="drop", label_kind="index").source
    assert raw.label(np.arange(11)).tolist() == [2, 4, *[-1] * 7, 3, 1]


def test_a_table_of_other_photographs_is_no_reason_to_drop_all(root: Path, tmp_path: Path) -> None:
    table = write(tmp_path / "l.csv", {"path": ["x.jpg"], "label": [1]})
    with pytest.raises(SourceError, match="4 of 4 images have no row"):
        open_input(str(root), labels_file=str(table), missing="drop")


def test_rows_without_a_label(root: Path, tmp_path: Path) -> None:
    table = write(tmp_path / "l.csv", {"path": PATHS, "label": [1, None, 3, 4]})
    found = open_input(str(root), labels_file=str(table)).source.read([0, 1])
    assert isinstance(found[0], Failure)
    assert str(found[0]).endswith("label_missing (no label in its row of the labels file)")
    assert isinstance(found[1], bytes)


def test_a_path_twice(root: Path, tmp_path: Path) -> None:
    table = write(tmp_path / "l.csv", {"path": [*PATHS, "b/0000.jpg"], "label": range(5)})
    with pytest.raises(SourceError, match=r"1 paths occur twice: 'b/0000.jpg' \(rows 2 and 4\)"):
        open_input(str(root), labels_file=str(table))


def test_bad_tables(root: Path, tmp_path: Path) -> None:
    table = write(tmp_path / "l.csv", {"place": PATHS, "label": range(4)})
    with pytest.raises(
        ConfigError, match=r"cannot tell which column of .*l.csv holds the images, got place, label"
    ):
        open_input(str(root), labels_file=str(table))
    assert len(open_input(str(root), labels_file=str(table), image="place").source) == 4
    table = write(tmp_path / "l.csv", {"path": PATHS, "kind": range(4)})
    with pytest.raises(
        ConfigError, match=r"has no column 'label', nor 'caption'; name one with label"
    ):
        open_input(str(root), labels_file=str(table))
    with pytest.raises(SourceError, match=r"none.csv"):
        open_input(str(root), labels_file=str(tmp_path / "none.csv"))
    with pytest.raises(ConfigError, match=r"labels_file is for folders, .*l.csv is a table"):
        open_input(str(table), labels_file=str(table))


def test_odd_names(tmp_path: Path) -> None:
    odd = [
        "new\nline.jpg",
        'quo"te,.jpg',
        "日本 é.jpg",
        os.path.join("d" * 200, "e" * 200, "x.y.jpg"),
        "b/same.jpg",
    ]
    raw = [*odd, "latin\udce9.jpg"]
    for k, name in enumerate(raw):
        (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "p" / name).write_bytes(jpeg(k))
    with (tmp_path / "l.jsonl").open("w") as file:
        file.writelines(
            json.dumps({"path": name, "label": f"k{k}"}) + "\n" for k, name in enumerate(raw)
        )
    source = open_input(
        str(tmp_path / "p"), labels_file=str(tmp_path / "l.jsonl"), keep=f"{tmp_path}/k"
    ).source
    for i in range(len(raw)):
        number = raw.index(os.path.relpath(source.uri(i), tmp_path / "p"))
        assert source.classes[source.label(np.array([i]))[0]] == f"k{number}"
        assert source.read([i]) == [jpeg(number)]
    (tmp_path / "p" / raw[-1]).unlink()
    with (tmp_path / "l.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *((name, k) for k, name in enumerate(odd))])
    assert len(open_input(str(tmp_path / "p"), labels_file=str(tmp_path / "l.csv")).source) == len(
        odd
    )
