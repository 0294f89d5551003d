"""ImageFolder: what is found, what is left out, and what odd files do."""

from __future__ import annotations

import os

import pytest
from helpers.trees import labels, names, tree

from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.sources import ImageFolder
from fastfeed.spec import ENCODED


def test_classes_and_files_are_sorted(tmp_path):
    tree(
        tmp_path,
        "b/2.jpg",
        "b/10.jpg",
        "a/z.jpg",
        "a/B.jpg",
        "a/a.jpg",
        "a/sub/0.jpg",
        "C/1.png",
        "C/2.png",
    )
    source = ImageFolder(tmp_path)
    assert source.classes == ("C", "a", "b")
    assert names(source) == [
        "C/1.png",
        "C/2.png",
        "a/B.jpg",
        "a/a.jpg",
        "a/sub/0.jpg",
        "a/z.jpg",
        "b/10.jpg",
        "b/2.jpg",
    ]
    assert labels(source) == [0, 0, 1, 1, 1, 1, 2, 2]
    assert source.spec == ENCODED
    assert source.read([2, 0, 2]) == [b"a/B.jpg", b"C/1.png", b"a/B.jpg"]
    assert source.path(7) == tmp_path / "b" / "2.jpg"
    assert str(source) == f"ImageFolder({str(tmp_path)!r}): 8 images of 3 classes"


def test_the_class_is_the_first_folder(tmp_path):
    tree(tmp_path, "daisy/2019/may/a.jpg", "daisy/2020/b.jpg", "rose/daisy/c.jpg", "rose/d.jpg")
    assert list(zip(names(ImageFolder(tmp_path)), labels(ImageFolder(tmp_path)), strict=True)) == [
        ("daisy/2019/may/a.jpg", 0),
        ("daisy/2020/b.jpg", 0),
        ("rose/d.jpg", 1),
        ("rose/daisy/c.jpg", 1),
    ]


def test_what_is_no_image_by_its_name_is_counted(tmp_path):
    tree(
        tmp_path,
        "a/1.JPG",
        "a/2.Jpeg",
        "a/notes.txt",
        "a/b.TXT",
        "a/README",
        "a/clip.mp4",
        "a/sub/more.txt",
    )
    source = ImageFolder(tmp_path)
    assert names(source) == ["a/1.JPG", "a/2.Jpeg"]
    assert source.skipped == {".txt": 3, "(none)": 1, ".mp4": 1}
    with pytest.warns(DeprecationWarning, match="now called skipped"):
        assert source.left_out == source.skipped
    assert repr(source).endswith("2 images of 1 classes; left out: 3 .txt, 1 (none), 1 .mp4")


def test_hidden_files_and_folders_are_left_out(tmp_path):
    tree(
        tmp_path,
        "a/1.jpg",
        "a/2.jpg",
        "a/.3.jpg",
        "a/._1.jpg",
        "a/.thumbs/4.jpg",
        ".git/5.jpg",
        ".6.jpg",
    )
    source = ImageFolder(tmp_path)
    assert names(source) == ["a/1.jpg", "a/2.jpg"]
    assert source.skipped == {"(hidden)": 5}, "three files, two folders"


def test_images_next_to_the_class_folders_are_counted(tmp_path):
    source = ImageFolder(tree(tmp_path, "a/1.jpg", "a/2.jpg", "loose.jpg", "list.csv"))
    assert names(source) == ["a/1.jpg", "a/2.jpg"]
    assert source.skipped == {"(no class)": 1, ".csv": 1}


def test_other_extensions(tmp_path):
    tree(tmp_path, "a/1.raw", "a/2.RAW", "a/3.jpg")
    assert names(ImageFolder(tmp_path, extensions=[".raw"])) == ["a/1.raw", "a/2.RAW"]


def test_unlabeled_takes_images_anywhere(tmp_path):
    tree(tmp_path, "1.jpg", "a/2.jpg", "a/b/3.jpg", "notes.txt", ".hidden.jpg")
    source = ImageFolder(tmp_path, labeled=False)
    assert (names(source), labels(source), source.classes) == (
        ["1.jpg", "a/2.jpg", "a/b/3.jpg"],
        [-1, -1, -1],
        (),
    )


def test_given_classes_keep_their_numbers(tmp_path):
    tree(tmp_path, "c/1.jpg", "c/2.jpg", "a/1.jpg", "a/2.jpg")
    source = ImageFolder(tmp_path, classes=("c", "b", "a"))
    assert (source.classes, names(source)) == (
        ("c", "b", "a"),
        ["c/1.jpg", "c/2.jpg", "a/1.jpg", "a/2.jpg"],
    )
    assert labels(source) == [0, 0, 2, 2]


# -- links

LINKS = {  # what lies in photographs -> the samples; loops
    "to a file outside": (["a/1.jpg", "a/2.jpg -> {outside}/x.jpg"], ["a/1.jpg", "a/2.jpg"], 0),
    "two to one file outside": (
        ["a/1.jpg -> {outside}/x.jpg", "a/2.jpg -> {outside}/x.jpg", "a/3.jpg"],
        ["a/1.jpg", "a/2.jpg", "a/3.jpg"],
        0,
    ),
    "to a file that is listed": (
        ["a/1.jpg -> 2.jpg", "a/2.jpg", "a/3.jpg"],
        ["a/1.jpg", "a/2.jpg", "a/3.jpg"],
        0,
    ),
    "to a link": (["a/1.jpg -> 2.jpg", "a/2.jpg -> {outside}/x.jpg"], ["a/1.jpg", "a/2.jpg"], 0),
    "to a hidden file": (["a/1.jpg -> .x.jpg", "a/.x.jpg", "a/2.jpg"], ["a/1.jpg", "a/2.jpg"], 0),
    "to a file without a class": (
        ["a/1.jpg -> ../x.jpg", "x.jpg", "a/2.jpg"],
        ["a/1.jpg", "a/2.jpg"],
        0,
    ),
    "to a file without an extension": (
        ["a/1.jpg -> data", "a/data", "a/2.jpg"],
        ["a/1.jpg", "a/2.jpg"],
        0,
    ),
    "to a folder outside": (
        ["a/more -> {outside}", "a/1.jpg"],
        ["a/1.jpg", "a/more/x.jpg", "a/more/y.jpg"],
        0,
    ),
    "two to one folder outside": (
        ["a/one -> {outside}", "a/two -> {outside}"],
        [f"{folder}/{name}.jpg" for folder in ("a/one", "a/two") for name in "xy"],
        0,
    ),
    "as a class": (["a -> {outside}"], ["a/x.jpg", "a/y.jpg"], 0),
    "to its own parent": (["a/1.jpg", "a/up -> ..", "a/2.jpg"], ["a/1.jpg", "a/2.jpg"], 1),
    "to its own folder": (["a/1.jpg", "a/2.jpg", "a/here -> ."], ["a/1.jpg", "a/2.jpg"], 1),
    "to itself": (["a/1.jpg", "a/2.jpg", "a/x -> x"], ["a/1.jpg", "a/2.jpg"], 0),
    "two folders to each other": (
        ["a/b/1.jpg", "a/b/c -> ../c", "a/c/2.jpg", "a/c/b -> ../b"],
        ["a/b/1.jpg", "a/b/c/2.jpg", "a/c/2.jpg", "a/c/b/1.jpg"],
        2,
    ),
    "to a folder that is walked too": (
        ["a/first -> second", "a/second/1.jpg", "a/3.jpg"],
        ["a/3.jpg", "a/first/1.jpg", "a/second/1.jpg"],
        0,
    ),
    "to a folder and to a file in it": (
        ["a/1.jpg -> {outside}/x.jpg", "a/more -> {outside}"],
        ["a/1.jpg", "a/more/x.jpg", "a/more/y.jpg"],
        0,
    ),
    "to a folder around all of it": (
        ["a/1.jpg", "a/2.jpg", "a/up -> ../..", "b/1.jpg", "b/2.jpg", "x.jpg"],
        ["a/1.jpg", "a/2.jpg", "a/up/outside/x.jpg", "a/up/outside/y.jpg", "b/1.jpg", "b/2.jpg"],
        1,
    ),
}


@pytest.mark.filterwarnings("ignore:ImageFolder")
@pytest.mark.parametrize("what", LINKS)
def test_links(tmp_path, what):
    """Every path is a sample; only a link to a folder that it lies in leads nowhere."""
    outside = tree(tmp_path / "outside", "x.jpg", "y.jpg")
    files, expected, loops = LINKS[what]
    source = ImageFolder(
        tree(tmp_path / "photos", *(name.format(outside=outside) for name in files))
    )
    assert names(source) == sorted(expected)
    assert not any(isinstance(blob, Failure) for blob in source.read(range(len(source))))
    assert source.skipped["(loop)"] == loops


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_many_links_to_few_files_are_many_samples(tmp_path, link):
    photos = tree(tmp_path / "photos", *(f"{i}.jpg" for i in range(9)))
    for i in range(36):
        (tmp_path / "train" / "ab"[i % 9 % 2]).mkdir(parents=True, exist_ok=True)
        link(photos / f"{i % 9}.jpg", tmp_path / "train" / "ab"[i % 9 % 2] / f"{i}.jpg")
    source = ImageFolder(tmp_path / "train")
    assert (len(source), labels(source)) == (36, [0] * 20 + [1] * 16)
    assert sorted(source.read(range(36))) == sorted(f"{i % 9}.jpg".encode() for i in range(36))
    assert not source.skipped


def test_links_that_multiply_are_an_error(tmp_path):
    """Twenty folders with two links each to the next one: a million paths."""
    root = tree(tmp_path / "photos", "a/x.jpg", "a/n -> ../../chain/0")
    tree(
        tmp_path / "chain",
        *(f"{i}/{name} -> ../{i + 1}" for i in range(20) for name in "ab"),
        "20/x.jpg",
    )
    with pytest.raises(SourceError) as error:
        ImageFolder(root)
    assert (
        "ImageFolder: more than 10,000 paths lead through links to one folder, the last of them is"
        in str(error.value)
    )


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("a/2.jpg -> gone.jpg", "not_found"),
        ("a/2.jpg -> /nowhere/gone.jpg", "not_found"),
        ("a/2.jpg -> ../b/gone.jpg", "not_found"),
        ("a/2.jpg -> 2.jpg", "not_found"),
    ],
)
def test_dangling_links_are_bad_samples_not_missing_ones(tmp_path, link, reason):
    source = ImageFolder(tree(tmp_path, "a/1.jpg", link, "a/3.jpg"))
    assert names(source) == ["a/1.jpg", "a/2.jpg", "a/3.jpg"]
    bad = source.read([1])[0]
    assert (bad.id, bad.uri, bad.stage, bad.reason) == (
        1,
        str(tmp_path / "a/2.jpg"),
        "read",
        reason,
    )
