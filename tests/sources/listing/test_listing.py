"""Listings: what is in them, in whatever form, and what cannot be listed."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest
from helpers.listings import content, listed
from helpers.remotes import uploaded
from helpers.trees import labels, names, tree

from fastfeed.errors import ConfigError, MissingExtra, SourceError
from fastfeed.sources import ImageFolder, Table

FILES = (
    *(
        "b/1.jpg",
        "b/2.JPG",
        "b/sub/0.png",
        "b/sub-1/0.jpg",
        "b/.hidden.jpg",
        "b/notes.txt",
        "loose.jpg",
        "README",
    ),
    *(
        "a/1.jpg",
        "a-b/1.jpg",
        "c d/é.jpg",
        "c d/.thumbs/1.jpg",
        "c d/.thumbs/2.jpg",
        ".git/1.jpg",
        "none/x.txt",
    ),
)
ROWS = [  # path, class, label; in the order of a walk
    ("a/1.jpg", "a", 0),
    ("a-b/1.jpg", "a-b", 1),
    ("b/1.jpg", "b", 2),
    ("b/2.JPG", "b", 2),
    ("b/sub/0.png", "b", 2),
    ("b/sub-1/0.jpg", "b", 2),
    ("c d/é.jpg", "c d", 3),
    ("loose.jpg", "", -1),
]


# -- what is in it


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize("remote", [False, True])
def test_rows(tmp_path, suffix, remote):
    root = tree(tmp_path / "photos", *FILES)
    found = listed(f"{uploaded(root) if remote else root}/", tmp_path / f"out{suffix}")
    rows = content(tmp_path / f"out{suffix}")
    assert [row[:3] for row in rows] == ROWS
    assert [row[3] for row in rows] == [len(path.encode()) for path, *_ in ROWS], (
        "their content is their name"
    )
    if not remote:
        assert [row[4] for row in rows] == [
            str((root / path).stat().st_mtime_ns) for path, *_ in ROWS
        ]
    assert all(row[4] for row in rows)
    assert (found.images, found.size) == (8, sum(row[3] for row in rows))
    assert found.classes == {"a": 1, "a-b": 1, "b": 4, "c d": 1}
    assert (found.folders, found.resumed) == (5, 0)
    assert found.skipped == {"(hidden)": 3, ".txt": 2, "(none)": 1}
    assert [p.name for p in tmp_path.iterdir() if p.name != "photos"] == [f"out{suffix}"], (
        "nothing else is left"
    )


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(
    "how",
    [
        {"min_per_class": 1},
        {"labeled": False},
        {"classes": ("z", "c d", "b", "a-b", "a"), "min_per_class": 1},
    ],
)
def test_a_source_from_a_listing_is_the_one_from_the_folder(tmp_path, suffix, remote, how):
    root = tree(tmp_path / "photos", *(name for name in FILES if not name.startswith("none/")))
    place = uploaded(root) if remote else root
    out = tmp_path / f"out{suffix}"
    listed(place, out)
    one, other = ImageFolder(place, **how), ImageFolder(place, listing=out, **how)
    assert [other.uri(i) for i in range(len(other))] == [one.uri(i) for i in range(len(one))]
    assert (labels(other), other.classes, other.fingerprint) == (
        labels(one),
        one.classes,
        one.fingerprint,
    )
    assert (
        other.read(range(len(other)))
        == one.read(range(len(one)))
        == [names_of(one, i) for i in range(len(one))]
    )


def names_of(source: ImageFolder, i: int) -> bytes:
    return source.uri(i).removeprefix(f"{source.root}/").encode()


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_table_reads_it_too(tmp_path, suffix):
    root = tree(tmp_path / "photos", *(name for name in FILES if name != "loose.jpg"))
    listed(root, tmp_path / f"out{suffix}")
    table = Table(tmp_path / f"out{suffix}", image="path", label="class", root=root)
    folder = ImageFolder(root, labeled=True, classes=(*table.classes, "none"), min_per_class=0)
    assert table.classes == ("a", "a-b", "b", "c d")
    assert labels(table) == labels(folder)
    assert table.read(range(len(table))) == folder.read(range(len(folder)))


def test_the_root_is_kept_in_parquet(tmp_path):
    parquet = pytest.importorskip(
        "pyarrow.parquet", reason="needs PyArrow: pip install 'fastfeed[parquet]'"
    )
    listed(tree(tmp_path / "photos", *FILES), tmp_path / "out.parquet")
    facts = json.loads(parquet.read_metadata(tmp_path / "out.parquet").metadata[b"fastfeed"])
    examples = {"(hidden)": ".git", ".txt": "b/notes.txt", "(none)": "README"}
    skipped = {"(hidden)": 3, ".txt": 2, "(none)": 1}
    assert facts == {
        "root": str(tmp_path / "photos"),
        "left_out": skipped,
        "left_out_examples": examples,
    }


@pytest.mark.filterwarnings("ignore:ImageFolder")
def test_links_are_followed_as_by_a_source(tmp_path):
    outside = tree(tmp_path / "outside", "x.jpg", "y.jpg")
    root = tree(
        *(
            tmp_path / "photos",
            "a/1.jpg -> ../b/2.jpg",
            "a/2.jpg",
            "b/2.jpg",
            f"b/x.jpg -> {outside}/x.jpg",
        ),
        *(f"c/all -> {outside}", "c/gone.jpg -> nowhere", "c/up -> ..", "both.jpg -> a/2.jpg"),
    )
    found = listed(root, tmp_path / "out.csv")
    rows = content_without_numbers(tmp_path / "out.csv")
    assert [path for path, _ in rows] == [
        *(
            "a/1.jpg",
            "a/2.jpg",
            "b/2.jpg",
            "b/x.jpg",
            "both.jpg",
            "c/all/x.jpg",
            "c/all/y.jpg",
            "c/gone.jpg",
        )
    ]
    assert names(ImageFolder(root, labeled=False)) == [path for path, _ in rows]
    assert dict(rows)["c/gone.jpg"] == "", "a bad sample, whose size is unknown"
    assert found.skipped == {"(loop)": 1}


def content_without_numbers(path: Path) -> list[tuple[str, str]]:
    with path.open(newline="") as file:
        return [(row["path"], row["size"]) for row in csv.DictReader(file)]


def test_names_that_no_table_can_hold(tmp_path):
    root = tree(tmp_path / "photos", "a/1.jpg", "a/2.jpg", "é/1.jpg")
    (root / "a" / os.fsdecode(b"\xff.jpg")).write_bytes(b"x")
    found = listed(root, tmp_path / "out.jsonl")
    assert [row[0] for row in content(tmp_path / "out.jsonl")] == ["a/1.jpg", "a/2.jpg", "é/1.jpg"]
    assert (found.images, found.skipped) == (3, {"(not UTF-8)": 1})


def test_other_extensions(tmp_path):
    root = tree(tmp_path / "photos", "a/1.raw", "a/2.jpg")
    assert listed(root, tmp_path / "out.csv", extensions=[".RAW"]).classes == {"a": 1}


# -- what is refused


@pytest.mark.parametrize("remote", [False, True])
def test_no_images(tmp_path, remote):
    root = tree(tmp_path / "photos", "a/x.txt", "train-0.tar")
    with pytest.raises(SourceError) as error:
        listed(uploaded(root) if remote else root, tmp_path / "out.csv")
    assert "no images below" in str(error.value)
    assert str(error.value).endswith(
        "left out: 1 .tar, 1 .txt; for shards give a pattern, such as '*.tar'"
    )
    assert not list(tmp_path.glob("out*")), "nothing that a later attempt would go on from"


def test_no_folder(tmp_path):
    with pytest.raises(SourceError) as error:
        listed(tmp_path / "photos", tmp_path / "out.csv")
    assert (
        str(error.value)
        == f"list_images: {tmp_path}/photos does not exist; pass the folder that holds the images"
    )
    with pytest.raises(
        SourceError, match="does not exist, or holds nothing; pass the folder that holds the images"
    ):
        listed("memory://nowhere/at/all", tmp_path / "out.csv")
    root = uploaded(tree(tmp_path / "photos", "1.jpg"))
    with pytest.raises(
        SourceError, match=r"1\.jpg is not a folder; pass the folder that holds the images"
    ):
        listed(f"{root}/1.jpg", tmp_path / "out.csv")
    assert not list(tmp_path.glob("out*"))


def test_where_it_cannot_be_written(tmp_path, monkeypatch):
    root = tree(tmp_path / "photos", "a/1.jpg")
    with pytest.raises(ConfigError) as wrong:
        listed(root, tmp_path / "out.txt")
    assert (
        str(wrong.value)
        == f"list_images: a listing must end in .parquet, .csv, .jsonl, got {tmp_path / 'out.txt'}"
    )
    with pytest.raises(SourceError) as error:
        listed(root, tmp_path / "nowhere" / "out.csv")
    assert "list_images: cannot write" in str(error.value) and "No such file or directory" in str(
        error.value
    )
    monkeypatch.setattr("fastfeed.sources.listing.listing_file.find_spec", lambda _: None)
    with pytest.raises(MissingExtra) as missing:
        listed(root, tmp_path / "out.parquet")
    assert (
        str(missing.value)
        == "list_images: a listing in Parquet needs PyArrow: pip install 'fastfeed[parquet]'; or"
        " write a .csv"
    )


def test_one_that_fails_leaves_the_older_one(tmp_path, monkeypatch):
    root, out = tree(tmp_path / "photos", "a/1.jpg"), tmp_path / "out.csv"
    listed(root, out)
    before = out.read_bytes()
    tree(root, "a/2.jpg")
    monkeypatch.setattr(
        os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(SourceError, match=r"cannot write .*No space left on device"):
        listed(root, out)
    assert out.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if ".new" in p.name] == []
    monkeypatch.undo()
    assert listed(root, out).resumed == 1
    assert len(content(out)) == 2
