"""Whatever a source of files leaves out is said by `notes` and `print`, with a count and an
example.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from helpers.listings import listed
from helpers.remotes import uploaded
from helpers.tars import entry
from helpers.trees import names, tree

from fastfeed import Feed, RandomResizedCrop
from fastfeed.errors import SourceError
from fastfeed.sources import Arrays, ImageFolder, Mixture, Objects, Table, TarShards, base
from fastfeed.sources.notes import source_notes

ODD = (
    *(
        "a/1.jpg",
        "a/2.jpg",
        "a/sub/3.jpg",
        "b/1.jpg",
        "empty/",
        "void/x.txt",
        "loose.jpg",
        "other.png",
        "README",
    ),
    *(
        "a/notes.txt",
        "b/more.TXT",
        "b/clip.mp4",
        "a/Makefile",
        ".git/1.jpg",
        "a/.hidden.jpg",
        "a/sub/.DS_Store",
    ),
)
LINKS = ("b/loop -> ../b", "a/gone -> nowhere", "a/gone.jpg -> nowhere", "b/more -> {outside}")
NOTES = [  # of the files, those that local and remote folders share
    "left out 3 .txt files, such as a/notes.txt",
    "left out 3 hidden files and folders, such as .git",
    "left out 2 files without an extension, such as README",
    "left out 2 images outside the class folders, such as loose.jpg",
    "left out 1 .mp4 file: b/clip.mp4",
]
EMPTY = "2 classes without images, such as empty"


def odd(tmp_path: Path) -> Path:
    outside = tree(tmp_path / "outside", "x.jpg", "list.csv")
    return tree(tmp_path / "photos", *ODD, *(link.format(outside=outside) for link in LINKS))


@pytest.mark.filterwarnings("ignore:ImageFolder")
def test_a_folder_with_everything_odd_in_it(tmp_path):
    source = ImageFolder(odd(tmp_path), min_per_class=0)
    assert names(source) == [
        "a/1.jpg",
        "a/2.jpg",
        "a/gone.jpg",
        "a/sub/3.jpg",
        "b/1.jpg",
        "b/more/x.jpg",
    ]
    assert sorted(source.notes) == sorted(
        [
            *NOTES,
            "left out 1 .csv file: b/more/list.csv",
            "left out 1 link that leads nowhere: a/gone",
            "left out 1 link to a folder that contains it: b/loop",
            EMPTY,
        ]
    )
    assert str(source).splitlines() == [
        f"ImageFolder({str(tmp_path / 'photos')!r}): 6 images of 4 classes",
        *(f"  {note}" for note in source.notes),
    ]
    assert repr(source).startswith(f"{str(source).splitlines()[0]}; left out: 3 ")
    assert "left out: 3 " in str(Feed(source, [RandomResizedCrop(8)], batch=2)).splitlines()[0]
    assert pickle.loads(pickle.dumps(source)).notes == source.notes


def test_a_remote_one(tmp_path):
    root = uploaded(tree(tmp_path / "photos", *(name for name in ODD if not name.endswith("/"))))
    source = ImageFolder(root, min_per_class=0)
    expected = [note.replace("such as README", "such as a/Makefile") for note in NOTES]
    assert sorted(note.replace("README", "a/Makefile") for note in source.notes) == sorted(
        [*expected, "1 class without images, such as void"]
    )


@pytest.mark.filterwarnings("ignore:ImageFolder")
@pytest.mark.parametrize("suffix", [".parquet", ".ffarrays"])
def test_a_listing_remembers_what_was_left_out(tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="needs PyArrow: pip install 'fastfeed[parquet]'")
    root = odd(tmp_path)
    listed(root, tmp_path / f"out{suffix}")
    source = ImageFolder(root, listing=tmp_path / f"out{suffix}", min_per_class=0)
    direct = ImageFolder(root, min_per_class=0)
    assert sorted(source.notes) == sorted(note for note in direct.notes if note != EMPTY)


@pytest.mark.filterwarnings("ignore:ImageFolder")
def test_a_listing_that_was_interrupted_remembers_too(tmp_path, monkeypatch):
    from fastfeed.sources.listing.local_tree import LocalTree

    root, below = odd(tmp_path), LocalTree.below

    def breaks(self, folders, skipped_by_folder):
        if folders == ["void"]:
            raise KeyboardInterrupt
        return below(self, folders, skipped_by_folder)

    monkeypatch.setattr(LocalTree, "below", breaks)
    with pytest.raises(KeyboardInterrupt):
        listed(root, tmp_path / "out.ffarrays")
    monkeypatch.undo()
    assert listed(root, tmp_path / "out.ffarrays").resumed == 3
    source = ImageFolder(root, listing=tmp_path / "out.ffarrays", min_per_class=0)
    assert "left out 1 link to a folder that contains it: b/loop" in source.notes
    assert "left out 3 .txt files, such as a/notes.txt" in source.notes


def test_names_that_are_not_text_can_be_printed(tmp_path):
    root = tree(tmp_path / "photos", "a/1.jpg", "a/2.jpg")
    (root / "a" / b"\xff.txt".decode("utf-8", "surrogateescape")).write_bytes(b"x")
    source = ImageFolder(root)
    assert source.notes == ["left out 1 .txt file: a/\\xff.txt"]
    str(source).encode()


def test_nothing_is_left_out(tmp_path):
    source = ImageFolder(tree(tmp_path, "a/1.jpg", "a/2.jpg"))
    assert (source.notes, str(source)) == ([], repr(source))


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path, monkeypatch):
    """As root may read everything, the file system's answer is made up."""
    root = tree(tmp_path / "photos", "a/1.jpg", "a/2.jpg", "b/locked/1.jpg")
    stat = __import__("os").stat

    def refuses(path, *args, **options):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return stat(path, *args, **options)

    monkeypatch.setattr("os.stat", refuses)
    with pytest.raises(
        SourceError, match=r"^ImageFolder: cannot list .*/b/locked: Permission denied$"
    ):
        ImageFolder(root)


def test_a_folder_of_tables(tmp_path):
    tree(tmp_path, "t/_SUCCESS", "t/.part.csv", "t/readme.md", "t/old/1.csv")
    (tmp_path / "t" / "a.csv").write_text("path\n1.jpg\n")
    table = Table(tmp_path / "t", image="path")
    assert table.notes == [f"left out 4 other entries of {tmp_path}/t, such as .part.csv"]
    assert str(table) == f"Table({tmp_path}/t/a.csv): 1 images\n  {table.notes[0]}"
    assert repr(table) == f"Table({tmp_path}/t/a.csv): 1 images; 1 note, see .notes"
    assert pickle.loads(pickle.dumps(table)).notes == table.notes
    assert Table(tmp_path / "t" / "a.csv", image="path").notes == []


def test_a_folder_of_shards(tmp_path):
    for name in ("a.tar", ".b.tar"):
        (tmp_path / name).write_bytes(entry("1.jpg", b"1") + entry("1.cls", b"0") + bytes(1024))
    tree(tmp_path, "c.tar.gz", "more/c.tar", "z.idx", "_job/plan.json", "report.json")
    source = TarShards(tmp_path)
    assert source.notes == [f"left out 3 other entries of {tmp_path}, such as .b.tar"]
    assert str(source) == f"TarShards({tmp_path}/a.tar): 1 images\n  {source.notes[0]}"
    assert repr(source).endswith("1 images; 1 note, see .notes")


def test_sources_of_sources(tmp_path):
    import numpy as np

    folder = ImageFolder(tree(tmp_path, "a/1.jpg", "a/2.jpg", "a/x.txt"))
    note = "left out 1 .txt file: a/x.txt"
    boxes = Objects(folder, [[[0, 0, 1, 1]], []])
    assert boxes.notes == [note]
    assert (
        str(boxes)
        == f"ImageFolder({str(tmp_path)!r}): 2 images of 1 classes with 1 boxes\n  {note}"
    )
    mixture = Mixture({"one": folder, "two": boxes})
    assert mixture.notes == [f"one: {note}", f"two: {note}"]
    assert str(mixture).splitlines()[1:] == [f"  one: {note}", f"  two: {note}"]
    assert source_notes(Arrays(np.zeros((1, 2, 2), np.uint8))) == []


def test_many_notes_are_printed_in_part(tmp_path):
    source = ImageFolder(tree(tmp_path, "a/1.jpg", "a/2.jpg", *(f"a/1.x{i:02}" for i in range(12))))
    assert len(source.notes) == 12
    assert str(source).splitlines()[10:] == [
        "  left out 1 .x09 file: a/1.x09",
        "  and 2 more, see .notes",
    ]


@pytest.mark.parametrize("name", ["Holding", "Located", "Noted"])
def test_former_names_of_protocols_still_work(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{name} is now called"):
        assert getattr(base, name) in (base.BlockReader, base.HasObjects, base.HasNotes)
