"""ImageFolder: what is found, what is left out, and what odd files do."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from photos import folder

from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.sources import ImageFolder
from fastfeed.spec import ENCODED


def tree(root: Path, *names: str) -> Path:
    """Files whose content is their name; ImageFolder looks at no content. A -> B is a link, a/ a folder."""
    for name in names:
        name, _, target = name.partition(" -> ")
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if target:
            path.symlink_to(target)
        elif name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(name.encode())
    return root


def names(source: ImageFolder) -> list[str]:
    return [os.path.relpath(source.uri(i), source.root) for i in range(len(source))]


def labels(source: ImageFolder) -> list[int]:
    return source.label(np.arange(len(source))).tolist()


def test_classes_and_files_are_sorted(tmp_path):
    tree(tmp_path, "b/2.jpg", "b/10.jpg", "a/z.jpg", "a/B.jpg", "a/a.jpg", "a/sub/0.jpg", "C/1.png", "C/2.png")
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
    tree(tmp_path, "a/1.JPG", "a/2.Jpeg", "a/notes.txt", "a/b.TXT", "a/README", "a/clip.mp4", "a/sub/more.txt")
    source = ImageFolder(tmp_path)
    assert names(source) == ["a/1.JPG", "a/2.Jpeg"]
    assert source.left_out == {".txt": 3, "(none)": 1, ".mp4": 1}
    assert str(source).endswith("2 images of 1 classes; left out: 3 .txt, 1 (none), 1 .mp4")


def test_hidden_files_and_folders_are_left_out(tmp_path):
    tree(tmp_path, "a/1.jpg", "a/2.jpg", "a/.3.jpg", "a/._1.jpg", "a/.thumbs/4.jpg", ".git/5.jpg", ".6.jpg")
    source = ImageFolder(tmp_path)
    assert names(source) == ["a/1.jpg", "a/2.jpg"]
    assert source.left_out == {"(hidden)": 5}, "three files, two folders"


def test_images_beside_the_class_folders_are_counted(tmp_path):
    source = ImageFolder(tree(tmp_path, "a/1.jpg", "a/2.jpg", "loose.jpg", "list.csv"))
    assert names(source) == ["a/1.jpg", "a/2.jpg"]
    assert source.left_out == {"(no class)": 1, ".csv": 1}


def test_other_extensions(tmp_path):
    tree(tmp_path, "a/1.raw", "a/2.RAW", "a/3.jpg")
    assert names(ImageFolder(tmp_path, extensions=[".raw"])) == ["a/1.raw", "a/2.RAW"]


def test_unlabeled_takes_images_anywhere(tmp_path):
    tree(tmp_path, "1.jpg", "a/2.jpg", "a/b/3.jpg", "notes.txt", ".hidden.jpg")
    source = ImageFolder(tmp_path, labeled=False)
    assert (names(source), labels(source), source.classes) == (["1.jpg", "a/2.jpg", "a/b/3.jpg"], [-1, -1, -1], ())


def test_given_classes_keep_their_numbers(tmp_path):
    tree(tmp_path, "c/1.jpg", "c/2.jpg", "a/1.jpg", "a/2.jpg")
    source = ImageFolder(tmp_path, classes=("c", "b", "a"))
    assert (source.classes, names(source)) == (("c", "b", "a"), ["c/1.jpg", "c/2.jpg", "a/1.jpg", "a/2.jpg"])
    assert labels(source) == [0, 0, 2, 2]


# -- links

LINKS = {
    "to a file outside": (["a/1.jpg", "a/2.jpg -> {outside}/x.jpg"], ["a/1.jpg", "a/2.jpg"]),
    "two to one file outside": (
        ["a/1.jpg -> {outside}/x.jpg", "a/2.jpg -> {outside}/x.jpg", "a/3.jpg"],
        ["a/1.jpg", "a/3.jpg"],
    ),
    "to a file that is listed": (["a/1.jpg -> 2.jpg", "a/2.jpg", "a/3.jpg"], ["a/2.jpg", "a/3.jpg"]),
    "to a file of another class": (
        ["a/0.jpg", "a/1.jpg -> ../b/2.jpg", "a/3.jpg", "b/1.jpg", "b/2.jpg"],
        ["a/0.jpg", "a/3.jpg", "b/1.jpg", "b/2.jpg"],
    ),
    "to a link": (["a/1.jpg -> 2.jpg", "a/2.jpg -> {outside}/x.jpg", "a/3.jpg"], ["a/1.jpg", "a/3.jpg"]),
    "to a hidden file": (["a/1.jpg -> .x.jpg", "a/.x.jpg", "a/2.jpg"], ["a/1.jpg", "a/2.jpg"]),
    "to a file without a class": (["a/1.jpg -> ../x.jpg", "x.jpg", "a/2.jpg"], ["a/1.jpg", "a/2.jpg"]),
    "to a file without an extension": (["a/1.jpg -> data", "a/data", "a/2.jpg"], ["a/1.jpg", "a/2.jpg"]),
    "to a folder outside": (["a/more -> {outside}", "a/1.jpg"], ["a/1.jpg", "a/more/x.jpg", "a/more/y.jpg"]),
    "as a class": (["a -> {outside}"], ["a/x.jpg", "a/y.jpg"]),
    "to its own parent": (["a/1.jpg", "a/up -> ..", "a/2.jpg"], ["a/1.jpg", "a/2.jpg"]),
    "to its own folder": (["a/1.jpg", "a/2.jpg", "a/here -> ."], ["a/1.jpg", "a/2.jpg"]),
    "to itself": (["a/1.jpg", "a/2.jpg", "a/x -> x"], ["a/1.jpg", "a/2.jpg"]),
    "two folders to each other": (
        ["a/b/1.jpg", "a/b/c -> ../c", "a/c/2.jpg", "a/c/b -> ../b"],
        ["a/b/1.jpg", "a/c/2.jpg"],
    ),
    "to a folder that is walked too": (
        ["a/first -> second", "a/second/1.jpg", "a/3.jpg"],
        ["a/3.jpg", "a/second/1.jpg"],
    ),
    "to a folder and to a file in it": (
        ["a/1.jpg -> {outside}/x.jpg", "a/more -> {outside}"],
        ["a/more/x.jpg", "a/more/y.jpg"],
    ),
    "to a file, then to its folder": (
        ["a/more -> {outside}", "a/z.jpg -> {outside}/x.jpg"],
        ["a/more/x.jpg", "a/more/y.jpg"],
    ),
    "to a folder of another class": (
        ["a/1.jpg", "a/2.jpg", "a/more -> ../b", "b/1.jpg", "b/2.jpg"],
        ["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"],
    ),
    "to a folder around all of it": (
        ["a/1.jpg", "a/2.jpg", "a/up -> ../..", "b/1.jpg", "b/2.jpg", "x.jpg"],
        ["a/1.jpg", "a/2.jpg", "a/up/outside/x.jpg", "a/up/outside/y.jpg", "b/1.jpg", "b/2.jpg"],
    ),
    "one class to another": (["a -> b", "b/1.jpg", "b/2.jpg", "c/1.jpg", "c/2.jpg"], None),
}


@pytest.mark.parametrize("what", LINKS)
def test_links(tmp_path, what):
    """Followed, and whatever can be reached twice is there once."""
    outside = tree(tmp_path / "outside", "x.jpg", "y.jpg")
    files, found = LINKS[what]
    root = tree(tmp_path / "photos", *(name.format(outside=outside) for name in files))
    if found is None:
        with pytest.raises(SourceError):
            ImageFolder(root)
        return
    source = ImageFolder(root)
    assert names(source) == sorted(found)
    assert not any(isinstance(blob, Failure) for blob in source.read(range(len(source))))
    real = [os.path.realpath(source.uri(i)) for i in range(len(source))]
    assert len(set(real)) == len(real)


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("a/2.jpg -> gone.jpg", "not_found"),
        ("a/2.jpg -> /nowhere/gone.jpg", "not_found"),
        ("a/2.jpg -> ../b/gone.jpg", "not_found"),
        ("a/2.jpg -> 2.jpg", "io_error"),
    ],
)
def test_dangling_links_are_bad_samples_not_missing_ones(tmp_path, link, reason):
    source = ImageFolder(tree(tmp_path, "a/1.jpg", link, "a/3.jpg"))
    assert names(source) == ["a/1.jpg", "a/2.jpg", "a/3.jpg"]
    bad = source.read([1])[0]
    assert (bad.id, bad.uri, bad.stage, bad.reason) == (1, str(tmp_path / "a/2.jpg"), "read", reason)


# -- bad files


def test_a_file_that_is_gone_when_it_is_read(tmp_path):
    source = ImageFolder(tree(tmp_path, "a/1.jpg", "a/2.jpg"))
    (tmp_path / "a/1.jpg").unlink()
    bad, good = source.read([0, 1])
    assert bad == Failure(0, str(tmp_path / "a/1.jpg"), "read", "not_found")
    assert good == b"a/2.jpg"


def test_an_empty_file(tmp_path):
    source = ImageFolder(tree(tmp_path, "a/1.jpg", "a/2.jpg"))
    (tmp_path / "a/2.jpg").write_bytes(b"")
    assert source.read([1]) == [Failure(1, str(tmp_path / "a/2.jpg"), "read", "empty")]


def test_a_named_pipe_does_not_stop_the_run(tmp_path):
    tree(tmp_path, "a/1.jpg", "a/2.jpg")
    os.mkfifo(tmp_path / "a/3.jpg")
    bad = ImageFolder(tmp_path).read([2])[0]
    assert (bad.reason, bad.detail) == ("not_image", "not a regular file")


def test_a_file_larger_than_any_photograph(tmp_path):
    tree(tmp_path, "a/1.jpg", "a/2.jpg")
    with (tmp_path / "a/1.jpg").open("wb") as file:
        file.truncate((1 << 30) + 1)  # a hole: takes no room on the disk
    bad = ImageFolder(tmp_path).read([0])[0]
    assert (bad.reason, bad.detail) == ("bomb", f"{(1 << 30) + 1} bytes, the limit is {1 << 30}")


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    source = ImageFolder(tree(tmp_path, "a/1.jpg", "a/2.jpg"))
    (tmp_path / "a/1.jpg").chmod(0)
    bad = source.read([0])[0]
    assert (bad.reason, bad.detail) == ("io_error", "Permission denied")


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_listed(tmp_path):
    tree(tmp_path, "a/1.jpg", "a/2.jpg", "a/locked/3.jpg")
    (tmp_path / "a/locked").chmod(0)
    with pytest.raises(SourceError) as error:
        ImageFolder(tmp_path)
    assert str(error.value) == f"ImageFolder: cannot list {tmp_path / 'a/locked'}: Permission denied"
    (tmp_path / "a/locked").chmod(0o700)


def test_names_that_are_not_utf8(tmp_path):
    root = os.fsencode(tmp_path)
    os.mkdir(root + b"/caf\xe9")
    for name in (b"\xff.jpg", b"ok.jpg"):
        with open(root + b"/caf\xe9/" + name, "wb") as file:
            file.write(name)
    source = pickle.loads(pickle.dumps(ImageFolder(tmp_path)))
    assert source.read([0, 1]) == [b"ok.jpg", b"\xff.jpg"]
    assert source.classes == ("caf\udce9",)
    assert len(source.fingerprint) == 32
    assert repr(source)


# -- fingerprint and size


def test_fingerprint(tmp_path):
    tree(tmp_path / "1", "a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg")
    base = ImageFolder(tmp_path / "1").fingerprint
    assert ImageFolder(tmp_path / "1").fingerprint == base
    tree(tmp_path / "2", "a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg")
    assert ImageFolder(tmp_path / "2").fingerprint == base, "the same files elsewhere are the same files"
    (tmp_path / "2/a/1.jpg").unlink()
    assert ImageFolder(tmp_path / "2", min_per_class=1).fingerprint != base
    assert ImageFolder(tmp_path / "1", classes=("b", "a")).fingerprint != base
    assert ImageFolder(tmp_path / "1", classes=("a", "b", "c")).fingerprint != base
    assert ImageFolder(tmp_path / "1", labeled=False).fingerprint != base


def test_pickle_is_small(tmp_path):
    source = ImageFolder(folder(tmp_path, {"a": 2}))
    (tmp_path / "b").mkdir()
    for i in range(2000):
        (tmp_path / f"b/{i:06}.jpg").touch()
    source = ImageFolder(tmp_path)
    assert len(pickle.dumps(source)) < 40 * len(source)
    again = pickle.loads(pickle.dumps(source))
    assert (len(again), again.uri(2001), repr(again)) == (2002, source.uri(2001), repr(source))


# -- refusals


@pytest.mark.parametrize(
    ("files", "how", "text"),
    [
        ([], {}, "no class folders in {root}: expected one folder per class"),
        (
            ["1.jpg", "2.png", "x.txt"],
            {},
            "no class folders in {root}: 2 images lie in it directly; "
            "move them into one folder per class, or pass labeled=False",
        ),
        (
            ["a/1.jpg", "a/2.jpg", "b/1.jpg"],
            {},
            "class 'b' has 1 image, a class needs at least 2; add images, remove the folder, or pass min_per_class=1",
        ),
        (
            ["a/1.jpg", "a/2.jpg", "b/notes.txt"],
            {},
            "class 'b' has 0 images, a class needs at least 2; add images, remove the folder, or pass min_per_class=1"
            "; left out: 1 .txt",
        ),
        (["a/"], {"min_per_class": 0}, "no images below {root}"),
        (["a/x.txt"], {"labeled": False}, "no images below {root}; left out: 1 .txt"),
        (
            ["a/1.jpg", "b/1.jpg", "c/1.jpg"],
            {"classes": ["a"]},
            "{root} has folders that are not in classes: b, c",
        ),
        (["b/1.jpg"], {"classes": "b"}, "classes must be a list of names, got 'b'"),
    ],
    ids=str,
)
def test_refuses(tmp_path, files, how, text):
    with pytest.raises((SourceError, ValueError)) as error:
        ImageFolder(tree(tmp_path, *files), **how)
    assert str(error.value) == f"ImageFolder: {text}".format(root=tmp_path)


def test_refuses_what_is_no_folder(tmp_path):
    with pytest.raises(SourceError) as error:
        ImageFolder(tmp_path / "train")
    assert str(error.value) == (
        f"ImageFolder: {tmp_path / 'train'} does not exist; pass the folder that holds the images"
    )
    (tmp_path / "train").touch()
    with pytest.raises(SourceError) as error:
        ImageFolder(tmp_path / "train")
    assert (
        str(error.value) == f"ImageFolder: {tmp_path / 'train'} is not a folder; pass the folder that holds the images"
    )
