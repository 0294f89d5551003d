"""Folders as people have them: unpacked on a Mac, split into train and val, links across classes,
classes of one.
"""

from __future__ import annotations

import os
import warnings

import pytest
from helpers.photos import jpeg
from helpers.remotes import uploaded

import fastfeed as ff
from fastfeed.errors import SourceError
from fastfeed.sources.detect import detect_kind
from fastfeed.sources.listing.listing import list_images
from fastfeed.sources.listing.skipped_files import SYSTEM_FOLDERS


def _photos(root, *names):
    for i, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(jpeg(i, (16, 16)))
    return root


def test_a_zip_from_a_mac(tmp_path):
    root = _photos(tmp_path, "ant/1.jpg", "ant/__MACOSX/ant/2.jpg", "bee/1.jpg")
    for name in ("ant/._1.jpg", "__MACOSX/._ant", "__MACOSX/ant/._1.jpg"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"\0\5\26\7" + bytes(60))
    source = ff.ImageFolder(root)
    assert (source.classes, len(source)) == (("ant", "bee"), 2)
    assert source.skipped == {"(hidden)": 3}
    assert len(ff.ImageFolder(root, labeled=False)) == 2


@pytest.mark.parametrize("folder", sorted(SYSTEM_FOLDERS))
def test_folders_that_systems_and_network_disks_keep(tmp_path, folder):
    root = _photos(
        tmp_path / "p",
        "ant/1.jpg",
        f"ant/{folder}/1.jpg/SYNOPHOTO_THUMB_M.jpg",
        f"{folder}/2.jpg",
        "bee/1.jpg",
    )
    source = ff.ImageFolder(root)
    assert (source.classes, len(source)) == (("ant", "bee"), 2)
    assert source.skipped == {"(hidden)": 2}
    assert len(ff.ImageFolder(root, labeled=False)) == 2
    assert ff.ImageFolder(uploaded(root)).skipped == {"(hidden)": 2}
    list_images(str(root), str(tmp_path / "l.csv"), storage=ff.Storage())
    assert len(ff.ImageFolder(root, listing=tmp_path / "l.csv")) == 2


def test_shards_on_a_network_disk_are_shards(tmp_path):
    (tmp_path / "@eaDir").mkdir()
    (tmp_path / "a.tar").write_bytes(b"")
    assert detect_kind(str(tmp_path)) == "tar"


@pytest.mark.parametrize("names", [["1", "2", "10"], ["9", "10"]], ids=str)
def test_numbers_that_a_table_would_number_otherwise_are_said(tmp_path, names):
    root = _photos(tmp_path, *(f"{name}/1.jpg" for name in names))
    with pytest.warns(
        UserWarning, match=r"sorted as texts: class \d is '10'; .* classes=train.classes"
    ):
        source = ff.ImageFolder(root)
    assert source.classes == tuple(sorted(names))  # as torchvision and Keras have them
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ff.ImageFolder(root, classes=sorted(names, key=int))
        ff.ImageFolder(root, labeled=False)


@pytest.mark.parametrize("names", [["1", "2", "9"], ["01", "02", "10"], ["1", "10", "x"]], ids=str)
def test_numbers_in_one_order_only_are_not(tmp_path, names):
    assert ff.ImageFolder(_photos(tmp_path, *(f"{name}/1.jpg" for name in names))).classes == tuple(
        names
    )


def test_a_class_of_one_image_and_a_class_of_none(tmp_path):
    root = _photos(tmp_path, "ant/1.jpg", "bee/1.jpg", "bee/2.jpg")
    assert len(ff.ImageFolder(root)) == 3
    with pytest.raises(
        SourceError,
        match=r"'ant' has 1 image, .* at least 2; .* the folder, or pass min_per_class=1$",
    ):
        ff.ImageFolder(root, min_per_class=2)
    (root / "cat").mkdir()
    with pytest.raises(
        SourceError, match=r"class 'cat' has 0 images, .* at least 1; .* or pass min_per_class=0$"
    ):
        ff.ImageFolder(root)


@pytest.mark.parametrize(
    "parts", [("train", "val"), ("test", "train", "validation"), ("Train", "Val")]
)
def test_the_folder_above_train_and_val(tmp_path, parts):
    root = _photos(tmp_path, *(f"{part}/ant/1.jpg" for part in parts))
    source = ff.ImageFolder(root)
    train = next(part for part in source.classes if part.lower() == "train")
    text = (
        f"classes are {', '.join(source.classes)}, parts of a data set: pass {root}/{train} for its"
        " classes"
    )
    assert text in source.notes
    assert text in str(source)
    with ff.Feed(source, [ff.Resize((8, 8))], batch=2, threads=1) as feed:
        assert text in str(feed)
    assert not any("parts of" in note for note in ff.ImageFolder(root / parts[0]).notes)


def test_one_file_with_two_labels(tmp_path):
    root = _photos(tmp_path / "photos", "ant/1.jpg", "bee/2.jpg", "bee/3.jpg")
    os.symlink("../bee/2.jpg", root / "ant/x.jpg")
    with pytest.raises(SourceError) as error:
        ff.ImageFolder(root)
    assert (
        str(error.value)
        == f"ImageFolder: ant/x.jpg and bee/2.jpg in {root} are one file, reached through links"
        " from two classes, and an image has one label: remove one of them, or pass"
        " labeled=False"
    )
    assert len(ff.ImageFolder(root, labeled=False)) == 4
    (root / "ant/x.jpg").unlink()
    os.symlink("1.jpg", root / "ant/y.jpg")
    assert len(ff.ImageFolder(root)) == 4, "twice in one class: two samples"
    os.symlink("bee", root / "wasp")
    with pytest.raises(SourceError, match=r"bee/2\.jpg and wasp/2\.jpg .* are one file"):
        ff.ImageFolder(root)


def test_links_that_are_left_out_are_warned_of_once(tmp_path):
    outside = _photos(tmp_path / "outside", "x.jpg")
    root = _photos(tmp_path / "photos", "ant/1.jpg", "bee/2.jpg")
    os.symlink(outside, root / "ant/more")
    os.symlink(outside / "x.jpg", root / "bee/x.jpg")
    os.symlink("..", root / "ant/up")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        source = ff.ImageFolder(root, allow_links=())
    assert [str(w.message) for w in caught] == [
        f"ImageFolder: {root}: left out 1 link to a folder that contains it: ant/up; "
        "left out 2 links that lead out of the folder, such as ant/more"
    ]
    assert caught[0].filename == __file__
    assert len(source) == 2
    assert len(source.notes) == 2
