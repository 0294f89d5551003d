"""Labels, captions and further columns that travel with the photographs of shards and tables."""

from __future__ import annotations

import io
import json
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.mosaic import mds_index, mds_shard
from helpers.photos import jpeg
from helpers.records import example
from helpers.records import write as write_records
from helpers.remotes import uploaded
from helpers.shards import tar_of
from helpers.tables import image_bytes, write

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.preprocess import run
from fastfeed.preprocess.inputs.source_spec import open_input
from fastfeed.sources import TarShards, TFRecords

COUNT = 5


def members(i: int) -> dict[str, bytes]:
    """Before and behind the image; number 3 has no caption."""
    found = {
        "txt": f"caption ä {i}".encode(),
        "jpg": jpeg(i),
        "cls": str(i % 2).encode(),
        "json": json.dumps({"id": i, "from": {"page": f"p{i}"}}).encode(),
        "seg.npy": b"\x93NUMPY\xff",
    }
    return {name: data for name, data in found.items() if name != "txt" or i != 3}


def tars(root: Path) -> Path:
    root.mkdir()
    for shard, ids in (("0", range(3)), ("1", range(3, COUNT))):
        content = tar_of(
            [(f"v1.0/{i:04d}.{name}", data) for i in ids for name, data in members(i).items()]
        )
        (root / f"s-{shard}.tar").write_bytes(content)
    return root


def records(root: Path) -> Path:
    root.mkdir()
    for shard, ids in (("0", range(3)), ("1", range(3, COUNT))):
        features: list[dict[str, Any]] = [
            {
                "image/caption": f"caption ä {i}".encode(),
                "image/class/label": i % 2,
                "image/encoded": jpeg(i),
                "id": i,
                "box": [0.5, 0.25],
                "tags": [b"a", b"b"],
                "no": -1,
                "empty": [],
            }
            for i in ids
        ]
        for feature in features:
            if feature["id"] == 3:
                del feature["image/caption"]
        write_records(root / f"s-{shard}.tfrecord", [example(feature) for feature in features])
    return root


def mds(root: Path) -> Path:
    root.mkdir()
    kinds = {"image": "jpeg", "label": "int", "caption": "str", "about": "json", "score": "float32"}
    for shard, ids in (("0", range(3)), ("1", range(3, COUNT))):
        samples = [
            {
                "image": jpeg(i),
                "label": i % 2,
                "caption": "" if i == 3 else f"caption ä {i}",
                "score": i / 2,
                "about": {"id": i, "from": {"page": f"p{i}"}},
            }
            for i in ids
        ]
        (root / f"s-{shard}.mds").write_bytes(mds_shard(kinds, samples))
    (root / "index.json").write_text(mds_index(["s-0.mds", "s-1.mds"]))
    return root


def parquet(root: Path) -> Path:
    captions = [None if i == 3 else f"caption ä {i}" for i in range(COUNT)]
    root.mkdir()
    labels = [i % 2 for i in range(COUNT)]
    image_bytes(
        root / "t.parquet",
        list(map(jpeg, range(COUNT))),
        2,
        label=labels,
        caption=captions,
        id=range(COUNT),
    )
    return root / "t.parquet"


KINDS = {  # -> columns, and what they hold for sample i
    tars: (
        ["json", "json:from.page"],
        lambda i: {"json": json.loads(members(i)["json"]), "json:from.page": f"p{i}"},
    ),
    records: (
        ["id", "box", "tags", "no", "empty"],
        lambda i: {"id": i, "box": [0.5, 0.25], "tags": ["a", "b"], "no": -1, "empty": None},
    ),
    mds: (["score", "about:id"], lambda i: {"score": i / 2, "about:id": i}),
    parquet: (["id"], lambda i: {"id": i}),
}


@pytest.mark.parametrize("remote", [False, True], ids=["local", "remote"])
@pytest.mark.parametrize("make", KINDS)
def test_all_of_it_travels_along(make: Any, remote: bool, tmp_path: Path) -> None:
    place, (columns, expected) = make(tmp_path / "data"), KINDS[make]
    if remote:
        place = uploaded(place) if place.is_dir() else f"{uploaded(place.parent)}/{place.name}"
        place += {tars: "/*.tar", records: "/*.tfrecord", mds: "/*.mds"}.get(make, "")
    given = pickle.loads(pickle.dumps(open_input(str(place), columns=columns)))
    assert given.source.label(np.arange(COUNT)).tolist() == [0, 1, 0, 1, 0]
    ids = [4, 0, 3, 4]
    assert given.source.read(ids) == [jpeg(i) for i in ids]
    notes = given.notes(np.array(ids))
    assert [note.get("text") for note in notes] == [
        "caption ä 4",
        "caption ä 0",
        None,
        "caption ä 4",
    ]
    assert [note["columns"] for note in notes] == [expected(i) for i in ids]
    assert json.loads(json.dumps(notes)) == notes


@pytest.mark.parametrize("make", KINDS)
def test_captions_and_labels_can_be_left_off(make: Any, tmp_path: Path) -> None:
    place = make(tmp_path / "data")
    given = open_input(str(place), label="", caption="")
    assert given.notes([0, 1]) == [{}, {}]
    assert given.source.label(np.arange(2)).tolist() == [-1, -1]
    assert given.fingerprint != open_input(str(place)).fingerprint


def test_captions_in_a_field(tmp_path: Path) -> None:
    given = open_input(str(tars(tmp_path / "data")), caption=".JSON:from.page", columns=["CLS"])
    assert given.notes([2]) == [{"text": "p2", "columns": {"cls": "0"}}]
    (failure,) = open_input(str(tmp_path / "data"), caption="json:from").notes([2])
    assert isinstance(failure, Failure)
    assert failure.reason == "corrupt"
    assert failure.detail == "json:from: a caption must be a string, got {'page': 'p2'}"


def test_the_fingerprint_knows_other_captions(tmp_path: Path) -> None:
    root = tars(tmp_path / "data")
    before = open_input(str(root)).fingerprint
    assert open_input(str(root), caption="json:from.page").fingerprint != before
    content = tar_of(
        [
            (f"v1.0/{i:04d}.{n}", b"longer " * (n == "txt") + x)
            for i in range(3)
            for n, x in members(i).items()
        ]
    )
    (root / "s-0.tar").write_bytes(content)
    assert open_input(str(root)).fingerprint != before


def test_what_cannot_be_read_is_a_bad_sample_each(tmp_path: Path) -> None:
    said = [
        b"fine",
        b"latin \xe9",
        b"x" * ((1 << 20) + 1),
        b"\xef\xbb\xbfmarked",
        b"cut off here" * 100,
    ]
    parts = [
        (f"{i}.{name}", data)
        for i, text in enumerate(said)
        for name, data in (("jpg", jpeg(i)), ("txt", text))
    ]
    whole = tar_of(parts)
    (tmp_path / "a.tar").write_bytes(whole[: whole.index(said[-1]) + 100])
    given = open_input(str(tmp_path / "a.tar"))
    fine, latin, large, marked, cut = given.notes(range(5))
    assert (fine, marked) == ({"text": "fine"}, {"text": "marked"})
    assert isinstance(latin, Failure)
    assert latin.reason == "corrupt"
    assert "txt: 'utf-8' codec can't decode byte 0xe9" in latin.detail
    assert isinstance(large, Failure)
    assert (large.id, large.reason, large.detail) == (
        2,
        "bomb",
        "txt: 1048577 bytes, the limit is 1048576",
    )
    assert isinstance(cut, Failure)
    assert cut.reason == "truncated"


def test_a_shard_that_changes_gives_no_wrong_caption(tmp_path: Path) -> None:
    place = tars(tmp_path / "data")
    given = open_input(str(place))
    (place / "s-0.tar").write_bytes(
        tar_of([(f"{i}.{n}", x) for i in range(5, 8) for n, x in members(i).items()])
    )
    (failure,) = given.notes([1])
    assert isinstance(failure, Failure)
    assert failure.reason == "changed"


def test_members_that_are_not_files_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:

        def add(name: str, data: bytes = b"", **more: Any) -> None:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in more.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data))

        add("0.jpg", jpeg(0))
        add("0.txt", type=tarfile.SYMTYPE, linkname=str(tmp_path / "secret.txt"))
        add("1.txt", type=tarfile.LNKTYPE, linkname="../secret.txt")
        add("1.jpg", jpeg(1))
        add("2.jpg", jpeg(2))
        add("2.txt", type=tarfile.CHRTYPE, devmajor=1, devminor=5)
        add("3.jpg", jpeg(3))
        add(str(tmp_path / "3.txt"), b"absolute")
        add("../4.txt", b"out")
        add("4.jpg", jpeg(4))
        add("5.txt", type=tarfile.FIFOTYPE)
        add("5.jpg", type=tarfile.SYMTYPE, linkname=str(tmp_path / "secret.txt"))
        add("6.jpg", jpeg(6))
        add("6.txt", b"its own")
    before = sorted(os.listdir(tmp_path))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.tar").write_bytes(out.getvalue())
    given = open_input(str(tmp_path / "in" / "a.tar"), caption="txt")
    assert given.source.read(range(6)) == [jpeg(i) for i in (0, 1, 2, 3, 4, 6)]
    assert len(given.source) == 6
    assert given.notes(range(6)) == [{}] * 5 + [{"text": "its own"}]
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "in"])
    assert sorted(os.listdir(tmp_path / "in")) == [".fastfeed", "a.tar"]


def test_columns_in_batches(tmp_path: Path) -> None:
    source = TarShards(tars(tmp_path / "data"), columns=["txt"])
    columns = source.columns(np.array([3, 0]))
    assert list(columns) == ["txt"]
    assert (columns["txt"].dtype, columns["txt"].tolist()) == (
        np.dtype(object),
        ["", "caption ä 0"],
    )
    assert (source.weights(np.array([0])), source.boxes(np.array([0]))) == (None, None)
    assert TarShards(tmp_path / "data").columns(np.array([0])) == {}
    assert TFRecords(records(tmp_path / "r"), columns=["id"]).columns(np.array([4, 1]))[
        "id"
    ].tolist() == [4, 1]


def test_tables_of_paths(tmp_path: Path) -> None:
    (tmp_path / "0.jpg").write_bytes(jpeg(0))
    table = write(
        tmp_path / "t.csv",
        {"file_name": ["0.jpg", "none.jpg"], "text": ["hello", None], "n": [1, None]},
    )
    given = open_input(str(table), columns=["n"])
    assert given.caption == "text"
    assert given.notes([0, 1]) == [{"text": "hello", "columns": {"n": 1}}, {"columns": {"n": None}}]
    good, gone = given.source.read([0, 1])
    assert good == jpeg(0)
    assert gone.reason == "not_found"


def test_labels_that_are_usual_but_empty(tmp_path: Path) -> None:
    samples = [{"image": jpeg(i), "label": -1, "id": f"{i}"} for i in range(2)]
    (tmp_path / "a.mds").write_bytes(
        mds_shard({"image": "jpeg", "label": "int", "id": "str"}, samples)
    )
    assert open_input(str(tmp_path)).source.read([0, 1]) == [jpeg(0), jpeg(1)]
    with pytest.raises(SourceError, match="no sample has a label"):
        open_input(str(tmp_path), label="label")


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (records, {"image": "other"}, "no record has an image: no other"),
        (
            mds,
            {"columns": ["other"]},
            r"no column 'other' in .*; it has about, caption, image, label, score",
        ),
        (parquet, {"columns": ["other"]}, r"no column 'other'"),
        (tars, {"columns": ["txt", "txt", ""]}, "columns must be names"),
    ],
)
def test_wrong_names(make: Any, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, SourceError), match=message):
        open_input(str(make(tmp_path / "data")), **options)


def test_names_that_no_sample_has(tmp_path: Path) -> None:
    shards = tmp_path / "in.tar"
    with tarfile.open(shards, "w") as tar:
        for k in range(3):
            for extension, content in (("jpg", jpeg(k)), ("txt", b"a caption"), ("json", b"{}")):
                member = tarfile.TarInfo(f"{k}.{extension}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    for options in (
        {"caption": "text", "columns": ["txt"]},
        {"caption": "txt", "columns": ["text"]},
    ):
        with pytest.raises(
            ConfigError, match=r"no sample has a column 'text'; .*in\.tar has jpg, json, txt; pass"
        ):
            open_input(str(shards), label="", **options)
    given = open_input(str(shards), caption="txt", columns=["json:none"], label="")
    assert given.missing() == ["json:none"]
    with pytest.raises(
        ConfigError, match=r"no checked sample of .*in\.tar has json:none; use the names"
    ):
        run(given, tmp_path / "out", workers=1)
