"""Where an index is kept: next to the shards, in the cache folder, where the user says, or
nowhere.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from helpers.shards import samples, shard_folder, tar_of
from helpers.tars import counted, indexes, labels, same, taken

from fastfeed.errors import ConfigError
from fastfeed.sources import TarShards
from fastfeed.sources.shards import build_index

ALL = ["s-000.tar", "s-001.tar", "s-002.tar"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """The user's cache folder."""
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def scans(monkeypatch) -> list[str]:
    return counted(monkeypatch)


@pytest.fixture
def root(tmp_path) -> Path:
    return shard_folder(tmp_path / "data", (2, 3, 1))


# -- where it cannot be written


def unwritable(monkeypatch, *folders: Path) -> None:
    """As chmod would have it, for users other than root."""
    make, open_file = Path.mkdir, build_index.save

    def refuse(path: Path) -> None:
        if any(path.is_relative_to(folder) for folder in folders):
            raise PermissionError(13, "Permission denied", str(path))

    def mkdir(self, *args, **options):
        refuse(self)
        make(self, *args, **options)

    def save(path, *args):
        refuse(path)
        open_file(path, *args)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(build_index, "save", save)


def test_a_read_only_folder(root, scans, cache, monkeypatch):
    """Kept in the cache folder, without a word."""
    unwritable(monkeypatch, root)
    first = TarShards(root)
    assert taken(scans) == ALL
    assert len(indexes(cache / "index")) == 1
    assert not (root / ".fastfeed").exists()
    assert same(TarShards(root), first)
    assert taken(scans) == []


def test_a_folder_that_was_made_read_only(root, scans, monkeypatch, tmp_path, cache):
    """What lies there is used: also at another place, also for a part of the shards."""
    TarShards(root)
    moved = root.rename(tmp_path / "mounted")
    unwritable(monkeypatch, moved)
    taken(scans)
    assert len(TarShards(moved)) == 6
    assert taken(scans) == [] and not cache.exists()
    assert len(TarShards(moved / "s-{000..001}.tar")) == 5
    assert taken(scans) == [] and len(indexes(cache / "index")) == 1


def test_nowhere(root, scans, cache, monkeypatch):
    unwritable(monkeypatch, root, cache)
    for _ in range(2):
        with pytest.warns(RuntimeWarning) as caught:
            source = TarShards(root)
        assert taken(scans) == ALL
        assert len(source) == 6 and labels(source) == [0, 1, 2, 0, 1, 2]
        assert same(pickle.loads(pickle.dumps(source)), source)
        (place,) = {str(w.message).partition(" at ")[2].partition(": ")[0] for w in caught}
        assert place.startswith(f"{root}/.fastfeed/")
        text = (
            f"cannot save the index at {place}: Permission denied; each start will scan the shards"
        )
        assert [(str(w.message), w.filename) for w in caught] == [(f"TarShards: {text}", __file__)]


def test_shards_of_several_folders_and_of_the_same_names(tmp_path, scans, cache):
    """Also of the same size and time: as some tools set all files to one date."""
    for name, ids in (("a", (0, 5)), ("b", (7, 8)), ("c", (9, 10))):
        path = shard_folder(tmp_path / name, (2,)) / "s-000.tar"
        path.write_bytes(
            tar_of([(f"{i:06d}.{kind}", b"%d" % i) for i in ids for kind in ("jpg", "cls")])
        )
        os.utime(path, ns=(1, 1))
    one = TarShards([tmp_path / "a" / "s-000.tar", tmp_path / "b" / "s-000.tar"])
    two = TarShards([tmp_path / "c" / "s-000.tar", tmp_path / "b" / "s-000.tar"])
    assert (labels(one), labels(two)) == ([0, 5, 7, 8], [9, 10, 7, 8])
    assert taken(scans) == ["s-000.tar"] * 3
    assert len(indexes(cache / "index")) == 2


# -- index=


def test_a_place_of_the_users_choice(root, scans, tmp_path):
    place = tmp_path / "mine" / "train.idx"
    first = TarShards(root, index=place)
    taken(scans)
    assert place.is_file() and not (root / ".fastfeed").exists()
    assert same(TarShards(root, index=str(place)), first)
    assert taken(scans) == []
    (root / "s-000.tar").write_bytes(tar_of(samples([9])))
    assert len(TarShards(root, index=place)) == 5
    assert taken(scans) == ["s-000.tar"]


def test_a_place_next_to_the_shards_can_be_moved(root, scans, tmp_path):
    TarShards(root, index=root / "train.ffindex")
    taken(scans)
    moved = root.rename(tmp_path / "elsewhere")
    TarShards(moved, index=moved / "train.ffindex")
    assert taken(scans) == []


def test_a_file_of_another_kind_is_not_overwritten(root, tmp_path):
    for path in (root / "s-000.tar", tmp_path):
        with pytest.raises(ConfigError) as caught:
            TarShards(root, index=path)
        assert (
            str(caught.value)
            == f"TarShards: index={str(path)!r} is not an index; pass a path for a new file"
        )
    assert len(TarShards(root)) == 6


def test_a_place_that_cannot_be_written(root, scans, tmp_path, cache):
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "train.ffindex"
    with pytest.warns(RuntimeWarning, match=r"at .*train.ffindex: .*; it is in the cache folder"):
        first = TarShards(root, index=place)
    taken(scans)
    assert same(TarShards(root, index=place), first)
    assert taken(scans) == []
