"""What a folder that a user names becomes: photographs, labels, and a list that is kept."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.photos import folder, jpeg
from helpers.remotes import uploaded

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.inputs.source_spec import SourceSpec, job_source, open_input
from fastfeed.sources import Arrays, ImageFolder, Table, Together

ODD = [
    "plain.jpg",
    "two.dots.jpg",
    "with space.jpg",
    "new\nline.jpg",
    "quo\"te,'s.jpg",
    "#hash?query%41.jpg",
    "日本 é.jpg",
    "latin\udce9.jpg",
    "n" * 251 + ".jpg",
    os.path.join("d" * 255, "e" * 255, "deep.jpg"),
    os.path.join("v1.0", "same.jpg"),
    os.path.join("v2.0", "same.jpg"),
    os.path.join("caf\udce9", "same.jpg"),
]


def names(given: Input) -> list[str]:
    source = given.source
    assert isinstance(source, ImageFolder)
    return [os.path.relpath(source.uri(i), source.root) for i in range(len(source))]


def odd_folder(root: Path) -> dict[str, bytes]:
    """A photograph under each of these names."""
    found = {}
    for k, name in enumerate(ODD):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        found[name] = jpeg(k)
        path.write_bytes(found[name])
    return found


def test_class_folders_are_labels(tmp_path: Path) -> None:
    given = open_input(str(folder(tmp_path / "p", {"rose": 2, "daisy": 1})))
    assert given.source.classes == ("daisy", "rose")
    assert given.source.label(np.arange(3)).tolist() == [0, 1, 1]
    assert given.notes([0, 2]) == [{}, {}]
    assert given.fingerprint == given.source.fingerprint
    assert given.text == str(tmp_path / "p")


def test_photographs_next_to_folders_are_not_lost(tmp_path: Path) -> None:
    root = folder(tmp_path / "p", {"rose": 2})
    (root / "loose.jpg").write_bytes(jpeg(9))
    (root / "notes.txt").write_text("x")
    for keep in (None, str(tmp_path / "job" / "k-")):
        given = open_input(str(root), keep=keep)
        assert sorted(names(given)) == ["loose.jpg", "rose/0000.jpg", "rose/0001.jpg"]
        assert given.source.classes == ()
        assert given.skipped == {".txt": 1}
    with pytest.warns(DeprecationWarning, match="is now called skipped"):
        assert given.left_out == given.skipped


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    (tmp_path / "a.mpo").write_bytes(jpeg(1))
    given = open_input(str(tmp_path))
    assert (names(given), given.source.label(np.arange(1)).tolist()) == (["a.mpo"], [-1])


def test_parts_of_a_data_set_are_no_classes(tmp_path: Path) -> None:
    root = folder(tmp_path / "p", {"train": 2, "val": 2})
    with pytest.raises(
        ConfigError, match=r"holds train, val: these are parts .*preprocess each, .*/train"
    ):
        open_input(str(root))
    assert len(open_input(str(root), label="").source) == 4


def test_labels_of_folders_can_be_left_off(tmp_path: Path) -> None:
    given = open_input(str(folder(tmp_path / "p", {"a": 1, "b": 1})), label="")
    assert given.source.classes == ()


@pytest.mark.parametrize("keep", [False, True])
def test_odd_names(tmp_path: Path, keep: bool) -> None:
    found = odd_folder(tmp_path / "p")
    given = open_input(str(tmp_path / "p"), keep=str(tmp_path / "job") + "/" if keep else None)
    given = pickle.loads(pickle.dumps(given))
    assert sorted(names(given)) == sorted(found)
    assert given.source.read(range(len(found))) == [found[name] for name in names(given)]
    assert len(set(map(given.source.uri, range(len(found))))) == len(found)


def test_odd_class_names(tmp_path: Path) -> None:
    for name in ("caf\udce9", "a b\nc", "x" * 255):
        folder(tmp_path / "p", {name: 1})
    direct = open_input(str(tmp_path / "p"))
    kept = open_input(str(tmp_path / "p"), keep=f"{tmp_path}/k")
    assert direct.source.classes == kept.source.classes == ("a b\nc", "caf\udce9", "x" * 255)
    assert direct.fingerprint == kept.fingerprint


def test_a_kept_list_is_what_counts(tmp_path: Path) -> None:
    root, keep = folder(tmp_path / "p", {"a": 2, "b": 2}), str(tmp_path / "job" / "__job" / "")
    before = open_input(str(root), keep=keep)
    (root / "a" / "later.jpg").write_bytes(jpeg(7))
    (root / "a" / "0001.jpg").write_bytes(jpeg(8, (99, 99)))
    (root / "b" / "0000.jpg").unlink()
    after = open_input(str(root), keep=keep, fresh=False)
    assert (names(after), after.fingerprint) == (names(before), before.fingerprint)
    good, changed, gone, other = after.source.read(range(4))
    assert isinstance(good, bytes)
    assert isinstance(other, bytes)
    assert isinstance(changed, Failure)
    assert changed.reason == "changed"
    assert isinstance(gone, Failure)
    assert gone.reason == "not_found"
    assert "a/later.jpg" in names(open_input(str(root), keep=keep, fresh=True))


def test_a_list_of_another_folder_is_not_used(tmp_path: Path) -> None:
    one, other = folder(tmp_path / "p", {"a": 2}), folder(tmp_path / "q", {"b": 3})
    open_input(str(one), keep=f"{tmp_path}/k")
    found = names(open_input(str(other), keep=f"{tmp_path}/k", fresh=False))
    assert found == ["b/0000.jpg", "b/0001.jpg", "b/0002.jpg"]


def test_a_damaged_list_says_so(tmp_path: Path) -> None:
    root = folder(tmp_path / "p", {"a": 2})
    open_input(str(root), keep=f"{tmp_path}/k-")
    (tmp_path / "k-listing.ffarrays").write_bytes(b"x")
    with pytest.raises(
        SourceError, match=r"k-listing.ffarrays is not a listing, it is missing or damaged"
    ):
        open_input(str(root), keep=f"{tmp_path}/k-", fresh=False)


def test_without_a_plan_nothing_depends_on_the_list(tmp_path: Path) -> None:
    root, keep = folder(tmp_path / "p", {"a": 2}), str(tmp_path / "job") + "/"
    open_input(str(root), keep=keep)
    (root / "a" / "later.jpg").write_bytes(jpeg(7))
    assert len(open_input(str(root), keep=keep).source) == 3
    (tmp_path / "job" / "plan.json").write_text("{}")
    (root / "a" / "latest.jpg").write_bytes(jpeg(8))
    assert len(open_input(str(root), keep=keep).source) == 3
    assert len(open_input(str(root), keep=keep, fresh=True).source) == 4


def test_parts_of_a_job_list_one_after_another(tmp_path: Path) -> None:
    root, keep = str(folder(tmp_path / "p", {"a": 3, "b": 2})), str(tmp_path / "job") + "/"
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: open_input(root, keep=keep), range(6)))
    assert len({one.fingerprint for one in found}) == 1
    assert sorted(os.listdir(keep)) == ["listing.ffarrays", "listing.lock"]


def test_a_place_where_no_list_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("a file")
    with pytest.raises(
        SourceError, match=r"cannot keep the listing of .*/p at .*/job/listing.ffarrays"
    ):
        open_input(str(folder(tmp_path / "p", {"a": 2})), keep=str(tmp_path / "job") + "/")


def test_remote_folders(tmp_path: Path) -> None:
    remote = uploaded(folder(tmp_path / "p", {"a": 2, "b": 1}))
    given = open_input(remote, keep=f"{tmp_path}/k-")
    assert given.source.classes == ("a", "b")
    blobs = given.source.read(range(3))
    assert (
        blobs
        == open_input(str(tmp_path / "p")).source.read(range(3))
        == open_input(remote).source.read(range(3))
    )
    assert open_input(remote, keep=f"{tmp_path}/k-", fresh=False).fingerprint == given.fingerprint


def test_sources_from_python(tmp_path: Path) -> None:
    source = ImageFolder(folder(tmp_path / "p", {"a": 2}), labeled=False)
    remote: Any = SimpleNamespace()  # a target without a folder
    given = job_source(source)(remote)
    assert (given.source, given.text, given.notes([1])) == (source, repr(source), [{}])
    assert job_source(given)(remote) is given
    assert job_source(lambda target: given if target is remote else None)(remote) is given  # type: ignore[return]
    (tmp_path / "t.csv").write_text("path,n\np/a/0000.jpg,7\n")
    table = Table(tmp_path / "t.csv", image="path", columns=["n"])
    assert job_source(table)(remote).notes([0]) == [{"columns": {"n": 7}}]
    assert len(SourceSpec(str(tmp_path / "p"))(remote).source) == 2
    with pytest.raises(ConfigError, match="holds pixels, not encoded images"):
        job_source(Arrays(np.zeros((2, 4, 4, 3), np.uint8)))(remote)
    pair = job_source(Together({"left": source, "right": source}))(remote)
    assert (pair.images, pair.text) == (("left", "right"), str(source.root))
    assert pair.fingerprint.endswith(" images left,right")
    pixels = Arrays(np.zeros((2, 4, 4, 3), np.uint8))
    with pytest.raises(ConfigError, match="holds pixels, not encoded images"):
        job_source(Together({"left": source, "right": pixels}))(remote)
    with pytest.raises(ConfigError, match=r"must be a source such as ImageFolder.*got list"):
        job_source(["a.jpg"])(remote)  # type: ignore[arg-type]


def test_bad_arguments(tmp_path: Path) -> None:
    root = str(folder(tmp_path / "p", {"a": 2}))
    with pytest.raises(
        ConfigError,
        match=r"caption is for shards and tables, got 'txt' for the folder .*; pass labels_file",
    ):
        open_input(root, caption="txt")
    with pytest.raises(ConfigError, match="labels of a folder are its subfolders, got 'x'"):
        open_input(root, label="x")
    with pytest.raises(ConfigError, match='missing must be "error" or "drop"'):
        open_input(root, missing="x")
    with pytest.raises(SourceError, match="does not exist"):
        open_input(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="columns must be a list of names"):
        open_input(root, columns="json")
