"""Table: what is kept of a large one, so that it is opened in no time and takes no memory."""

from __future__ import annotations

import fcntl
import os
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
from helpers.tables import every, image_bytes, labels, write

from fastfeed.errors import SourceError
from fastfeed.sources import Table
from fastfeed.sources import mmap_arrays as mapped
from fastfeed.sources.cache_folder import build_lock
from fastfeed.sources.mmap_arrays import joined, load, save
from fastfeed.sources.tables import open_table as opening
from fastfeed.sources.tables import read_files as reading

ARRAYS = {
    "a": [np.arange(5), np.arange(3)],
    "b": [np.zeros((2, 4), np.float32), np.ones((6, 4), np.float32)],
    "none": [np.empty(0, np.uint8)],
    "text": [np.frombuffer("ä".encode(), np.uint8)],
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tables are kept; all of them are, however small."""
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(opening, "KEEP_BYTES", 1)
    return tmp_path / "cache" / "tables"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files whose rows were read."""
    seen: list[str] = []
    real = opening.read_files

    def counted(files, *more):
        seen.extend(os.path.basename(uri) for uri, _ in files)
        return real(files, *more)

    monkeypatch.setattr(opening, "read_files", counted)
    return seen


def table(folder: Path, count: int = 30) -> Path:
    columns = {
        "path": [f"{i % 25}.jpg" for i in range(count)],
        "kind": [None if i == 7 else f"k{i % 3}" for i in range(count)],
        "weight": [i / 2 for i in range(count)],
        "box": [None if i == 3 else [i, 2, 3, 4.1] for i in range(count)],
        "who": [f"ä{i}" for i in range(count)],
        "v": [[i, 1] for i in range(count)],
    }
    return write(folder / "t.jsonl", columns)


def opened(path: Path, **more: object) -> Table:
    asked = {"label": "kind", "weight": "weight", "box": "box", "columns": ["who", "v"]} | more
    return Table(path, image="path", **asked)


def said(source: Table) -> list[object]:
    ids = every(source)
    carried = {name: array.tolist() for name, array in source.columns(ids).items()}
    boxes = np.nan_to_num(source.boxes(ids)).tolist()
    about = source.classes, source.fingerprint, str(source), [source.uri(i) for i in ids]
    return [*about, labels(source), source.weights(ids).tolist(), boxes, carried]


def test_the_second_time_no_row_is_read(tmp_path, read, cache):
    first = opened(table(tmp_path))
    assert read == ["t.jsonl"]
    again = opened(tmp_path / "t.jsonl")
    assert read == ["t.jsonl"]
    assert said(again) == said(first)
    assert [file.suffix for file in sorted(cache.iterdir())] == [".ffarrays", ".lock"]
    assert not any(isinstance(array.base, type(None)) for array in again._arrays.values()), (
        "all are views of the file"
    )


def test_another_table_or_other_columns_are_read_again(tmp_path, read, cache):
    path = table(tmp_path)
    opened(path)
    opened(path, label=None)
    opened(path, columns=["who"])
    assert read == ["t.jsonl"] * 3
    opened(table(tmp_path, 31))
    assert read == ["t.jsonl"] * 4
    os.utime(path, ns=(1, 1))
    assert len(opened(path)) == 31
    assert read == ["t.jsonl"] * 5
    assert len(list(cache.glob("*.ffarrays"))) == 3, "what was kept of the old one made room"


def test_classes_are_not_part_of_it(tmp_path, read):
    path = table(tmp_path)
    opened(path)
    source = opened(path, classes=["x", "k2", "k1", "k0"])
    assert labels(source)[:4] == [3, 2, 1, 3]
    assert labels(source)[7] == -1
    assert read == ["t.jsonl"]


def test_images_in_parquet(tmp_path, read):
    for i in range(2):
        image_bytes(
            tmp_path / "t" / f"{i}.parquet",
            [b"%d%d" % (i, k) for k in range(5)],
            2,
            kind=["b", "a", "c", "a", "b"],
        )
    first = Table(tmp_path / "t", image="image", label="kind")
    again = Table(tmp_path / "t", image="image", label="kind")
    assert read == ["0.parquet", "1.parquet"]
    assert again.read([9, 0, 4]) == first.read([9, 0, 4]) == [b"14", b"00", b"04"]
    assert (again.bounds.tolist(), again.fingerprint) == ([0, 2, 4, 5, 7, 9, 10], first.fingerprint)


@pytest.mark.parametrize("damage", ["cut off", "empty", "another header", "another kind", "gone"])
def test_a_damaged_file_is_made_again(tmp_path, read, cache, damage):
    first = said(opened(table(tmp_path)))
    (kept,) = cache.glob("*.ffarrays")
    whole = kept.read_bytes()
    if damage == "gone":
        kept.unlink()
    else:
        other = whole.replace(b"JSON", b"CSV!").replace(b"kind", b"KIND")
        damaged = {
            "cut off": whole[:-1],
            "empty": b"",
            "another header": other,
            "another kind": b"x" + whole[1:],
        }
        kept.write_bytes(damaged[damage])
    assert said(opened(tmp_path / "t.jsonl")) == first
    assert read == ["t.jsonl"] * 2
    assert kept.read_bytes() == whole


def test_where_nothing_can_be_kept(tmp_path, read, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path / "file"))
    path = table(tmp_path)
    for _ in range(2):
        with pytest.warns(
            RuntimeWarning,
            match=r"^cannot keep a table at .*; set FASTFEED_CACHE to a folder that can be",
        ):
            source = opened(path)
    assert read == ["t.jsonl"] * 2
    assert said(pickle.loads(pickle.dumps(source))) == said(source)


def test_small_tables_are_not_kept(tmp_path, monkeypatch, cache):
    monkeypatch.setattr(opening, "KEEP_BYTES", 4 << 20)
    source = opened(table(tmp_path))
    assert not cache.exists()
    assert said(pickle.loads(pickle.dumps(source))) == said(source)


def test_pickles_travel_without_the_arrays(tmp_path, read):
    source = opened(table(tmp_path, 3000))
    packed = pickle.dumps(source)
    assert len(packed) < 3000
    assert said(pickle.loads(packed)) == said(source)
    assert read == ["t.jsonl"]


def test_pickles_read_the_table_again_where_nothing_is_kept(tmp_path, read, cache):
    source = opened(table(tmp_path))
    packed, before = pickle.dumps(source), said(source)
    next(cache.glob("*.ffarrays")).unlink()
    assert said(pickle.loads(packed)) == before
    assert read == ["t.jsonl"] * 2
    table(tmp_path, 31)
    assert said(pickle.loads(packed)) == before, "it was kept again"
    next(cache.glob("*.ffarrays")).unlink()
    with pytest.raises(SourceError) as error:
        pickle.loads(packed)
    assert (
        str(error.value)
        == f"{tmp_path}/t.jsonl has changed since this source was created; create it again"
    )


def test_of_many_at_once_one_reads(tmp_path, read):
    path, found, start = table(tmp_path), [], threading.Barrier(4)

    def make() -> None:
        start.wait()
        found.append(said(opened(path)))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(one == found[0] for one in found)
    assert read == ["t.jsonl"]


# -- the file


def test_arrays_come_back(tmp_path):
    save(tmp_path / "sub" / "a", {"x": [1, "ä\udcff"]}, ARRAYS)
    header, found = load(tmp_path / "sub" / "a") or ()
    assert header == {"x": [1, "ä\udcff"]}
    for name, array in joined(ARRAYS).items():
        np.testing.assert_array_equal(found[name], array, strict=True)
        assert found[name].ctypes.data % 8 == 0
        with pytest.raises(ValueError, match="read-only"):
            found[name][...] = 0
    assert (tmp_path / "sub" / "a").stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path / "sub") == ["a"]


def test_wherever_the_file_is_cut_off_it_is_none(tmp_path):
    save(tmp_path / "a", {}, ARRAYS)
    whole = (tmp_path / "a").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "b").write_bytes(whole[:length])
        assert load(tmp_path / "b") is None, length
    (tmp_path / "b").write_bytes(whole + b"x")
    assert load(tmp_path / "b") is None
    assert load(tmp_path / "gone") is None


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mapped.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path / "a", {}, ARRAYS)
    assert os.listdir(tmp_path) == []


def test_one_at_a_time(tmp_path):
    path = tmp_path / "sub" / "a"
    with build_lock(path), open(tmp_path / "sub" / "a.lock") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with build_lock(path):
        pass


def test_a_remote_table_without_version_is_not_taken_from_what_was_kept(
    tmp_path, read, monkeypatch
):
    path = table(tmp_path)
    stat = reading.Stat(path.stat().st_size, "")
    monkeypatch.setattr("fastfeed.sources.table.find_table", lambda *_: ([(str(path), stat)], []))
    opened(path)
    opened(path)
    assert read == ["t.jsonl"] * 2
