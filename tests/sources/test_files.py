"""Files: lists of paths, labels and columns."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from helpers.photos import folder, jpeg
from helpers.remotes import uploaded
from helpers.tables import every, files, labels

import fastfeed as ff
from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources import Files


def test_paths_labels_and_columns(tmp_path):
    paths = [tmp_path / name for name in files(tmp_path, 3)]
    source = Files(
        paths,
        ["dog", "cat", None],
        columns={"year": np.array([2019, 2020, 2021]), "caption": ["a", None, "c"]},
    )
    assert str(source) == "Files(list of paths): 3 images of 2 classes"
    assert source.classes == ("cat", "dog") and labels(source) == [1, 0, -1]
    assert source.read([1, 0]) == [b"1.jpg", b"0.jpg"]
    assert source.read([2])[0].reason == "label_missing"
    assert source.uris([2, 1]) == [str(paths[2]), str(paths[1])]
    found = source.columns(np.array([2, 1]))
    assert found["year"].tolist() == [2021, 2020] and found["caption"].tolist() == ["c", ""]


@pytest.mark.parametrize(
    ("given", "kind", "classes", "expected"),
    [
        ([2, 0, -1], None, (), [2, 0, -1]),
        (np.array([2, 0, 2], np.uint8), None, (), [2, 0, 2]),
        ([2, None, 0], None, (), [2, -1, 0]),
        ([7, 3, 7], "name", ("3", "7"), [1, 0, 1]),
        (["7", "3", "7"], None, ("3", "7"), [1, 0, 1]),
        (np.array(["b", "a", "b"]), None, ("a", "b"), [1, 0, 1]),
        (np.array(["b", None, "b"], object), None, ("b",), [0, -1, 0]),
    ],
)
def test_labels_are_names_or_count_classes(given, kind, classes, expected):
    source = Files(["a", "b", "c"], given, label_kind=kind)
    assert source.classes == classes and labels(source) == expected


def test_classes_given():
    assert labels(Files(["a", "b"], [1, 0], classes=["x", "y"])) == [1, 0]
    assert labels(Files(["a", "b"], ["y", "x"], classes=["x", "y", "z"])) == [1, 0]
    with pytest.raises(SourceError, match="labels that are not in classes: q"):
        Files(["a"], ["q"], classes=["x"])
    with pytest.raises(SourceError, match="label 2, but there are 2 classes"):
        Files(["a"], [2], classes=["x", "y"])


def test_paths_are_trusted_links_too(tmp_path):
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link.jpg").symlink_to(tmp_path / "secret")
    paths = [tmp_path / "data" / "link.jpg", tmp_path / "data" / ".." / "secret"]
    assert Files(paths).read([0, 1]) == [b"x", b"x"]
    assert Files(["link.jpg"], root=tmp_path / "data").read([0]) == [b"x"]


def test_missing_files_and_paths_are_bad_samples(tmp_path):
    source = Files([str(tmp_path / "no.jpg"), None, ""])
    assert [failure.reason for failure in source.read([0, 1, 2])] == ["not_found"] * 3
    assert source.uris([1]) == ["list of paths#1"]


def test_one_path_twice(tmp_path):
    names = [str(tmp_path / name) for name in files(tmp_path, 2)]
    source = Files([*names, names[0]])
    assert source.uris([0, 1, 2]) == [f"{names[0]}#row 0", names[1], f"{names[0]}#row 2"]
    assert source.read([2]) == [b"0.jpg"]


def test_local_and_remote_paths(tmp_path):
    folder(tmp_path / "data", {"a": 2})
    remote = uploaded(tmp_path / "data")
    source = Files([str(tmp_path / "data" / "a" / "0000.jpg"), f"{remote}/a/0001.jpg"])
    assert source.remote
    again = pickle.loads(pickle.dumps(source))
    local, other = again.read([0, 1])
    assert local == (tmp_path / "data" / "a" / "0000.jpg").read_bytes()
    assert other == (tmp_path / "data" / "a" / "0001.jpg").read_bytes()


def test_a_feed(tmp_path):
    paths = []
    for i in range(4):
        paths.append(tmp_path / f"{i}.jpg")
        paths[-1].write_bytes(jpeg(i, (40, 40)))
    source = Files(paths, [0, 1, 0, 1], columns={"year": [1, 2, 3, 4]})
    with ff.Feed(source, [ff.Resize((8, 8))], batch=4, seed=3) as feed:
        batch = next(iter(feed))
        state = feed.state()
    assert batch.columns["year"].tolist() == (batch.ids + 1).tolist()
    assert source.uris(batch.ids) == [str(paths[i]) for i in batch.ids]
    other = Files(paths[::-1], [0, 1, 0, 1], columns={"year": [1, 2, 3, 4]})
    with ff.Feed(other, [ff.Resize((8, 8))], batch=4, seed=3) as feed:
        with pytest.raises(ff.errors.StateError):
            feed.restore(state)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("*.jpg",), "paths, got '*.jpg'; pass sorted(glob.glob(pattern)), or use ImageFolder"),
        (([],), "list of paths has no rows"),
        (
            (["a", "b"], [1]),
            "columns of list of paths must have the same length, got 2 paths, 1 labels",
        ),
        ((["a"], [1.5]), "column 'labels' must hold whole numbers"),
        (([3],), "column 'paths' must hold paths"),
        (([b"a"],), "column 'paths' of list of paths, row 0 holds bytes"),
    ],
)
def test_refused(arguments, text):
    with pytest.raises((ConfigError, SourceError)) as error:
        Files(*arguments)
    assert text in str(error.value) and str(error.value).startswith("Files: ")


def test_names_of_columns_that_are_taken():
    with pytest.raises(ConfigError, match="columns must have different names, got columns"):
        Files(["a"], columns={"paths": [1]})


def test_every_sample_counts_its_path(tmp_path):
    source = Files([str(tmp_path / name) for name in files(tmp_path, 2)])
    assert source.label(every(source)).tolist() == [-1, -1] and source.classes == ()
