"""ImageFolder: what odd files do when they are read, fingerprints, and what is refused."""

from __future__ import annotations

import os
import pickle

import pytest
from helpers.photos import folder
from helpers.trees import tree

from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.sources import ImageFolder

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
    assert (bad.reason, bad.detail) == (
        "bomb",
        f"{(1 << 30) + 1:,} bytes, the limit is {1 << 30:,}",
    )


def refused(*_: object) -> None:
    """What the system says where permissions are missing, also to root, whom it would let
    through.
    """
    raise PermissionError(13, "Permission denied")


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    source = ImageFolder(tree(tmp_path, "a/1.jpg", "a/2.jpg"))
    monkeypatch.setattr(os, "open", refused)
    bad = source.read([0])[0]
    assert (bad.reason, bad.detail) == ("denied", "Permission denied")


def test_a_folder_that_may_not_be_listed(tmp_path, monkeypatch):
    tree(tmp_path, "a/1.jpg", "a/2.jpg", "a/locked/3.jpg")
    scan = os.scandir
    monkeypatch.setattr(
        os, "scandir", lambda at: refused() if str(at).endswith("locked") else scan(at)
    )
    with pytest.raises(SourceError) as error:
        ImageFolder(tmp_path)
    assert (
        str(error.value) == f"ImageFolder: cannot list {tmp_path / 'a/locked'}: Permission denied"
    )


def test_names_that_are_not_utf8(tmp_path):
    root = os.fsencode(tmp_path)
    os.mkdir(root + b"/caf\xe9")
    for name in (b"\xff.jpg", b"ok.jpg"):
        with open(root + b"/caf\xe9/" + name, "wb") as file:
            file.write(name)
    source = pickle.loads(pickle.dumps(ImageFolder(tmp_path)))
    assert source.read([0, 1]) == [b"ok.jpg", b"\xff.jpg"]
    assert source.classes == ("caf\udce9",)
    assert source.fingerprint == ImageFolder(tmp_path).fingerprint
    assert repr(source)


# -- fingerprint and size


def test_fingerprint(tmp_path):
    tree(tmp_path / "1", "a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg")
    base = ImageFolder(tmp_path / "1").fingerprint
    assert ImageFolder(tmp_path / "1").fingerprint == base
    tree(tmp_path / "2", "a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg")
    assert ImageFolder(tmp_path / "2").fingerprint == base, (
        "the same files elsewhere are the same files"
    )
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
            (
                "no class folders in {root}: 2 images lie in it directly; "
                "move them into one folder per class, or pass labeled=False"
            ),
        ),
        (
            ["a/1.jpg", "a/2.jpg", "b/1.jpg"],
            {"min_per_class": 2},
            (
                "class 'b' has 1 image, a class needs at least 2; add images, remove the folder, or"
                " pass min_per_class=1"
            ),
        ),
        (
            ["a/1.jpg", "a/2.jpg", "b/notes.txt"],
            {},
            (
                "class 'b' has 0 images, a class needs at least 1; add images, remove the folder,"
                " or pass min_per_class=0; left out: 1 .txt"
            ),
        ),
        (["a/"], {"min_per_class": 0}, "no images below {root}"),
        (["a/x.txt"], {"labeled": False}, "no images below {root}; left out: 1 .txt"),
        (
            ["data/x.parquet"],
            {"labeled": False},
            (
                "no images below {root}; left out: 1 .parquet; for tables give a pattern, such as"
                " '*.parquet', or use ff.HuggingFace(folder)"
            ),
        ),
        (
            ["a/1.jpg", "b/1.jpg", "c/1.jpg"],
            {"classes": ["a"]},
            "{root} has folders that are not in classes: b, c",
        ),
        (
            ["b/1.jpg"],
            {"classes": "b"},
            "classes must be a list of names, each once, got 'b'; pass ['b']",
        ),
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
    assert (
        str(error.value)
        == f"ImageFolder: {tmp_path / 'train'} does not exist; pass the folder that holds the"
        " images"
    )
    (tmp_path / "train").touch()
    with pytest.raises(SourceError) as error:
        ImageFolder(tmp_path / "train")
    assert (
        str(error.value)
        == f"ImageFolder: {tmp_path / 'train'} is not a folder; pass the folder that holds the"
        " images"
    )
