"""The index file: what is saved is loaded again, or nothing is."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastfeed.sources.shards.index import Index, Section, ShardScan, is_index, load, save, sections
from fastfeed.storage.reads import Stat

KIND = "tar 1"


def section(uri: str, *labels: int | str | None, notes: tuple[str, ...] = ()) -> Section:
    """A shard of samples named by their labels."""
    found = ShardScan(notes=list(notes))
    for i, label in enumerate(labels):
        found.add(
            (5 << 30) + 1024 * i,
            100 + i,
            label,
            f"{uri}/{label}/ü\udcff".encode("utf-8", "surrogateescape"),
            i,
        )
    return Section.of(uri, Stat(len(labels) * 1024, f"v-{uri}"), found)


PARTS = [
    section("a.tar", 3, None, 2**31 - 1, notes=("cut off at 5: \udcff",)),
    section("empty.tar"),
    section("b.tar", "rose", "daisy", None, 7),
    section("c.tar", "aster"),
]


def content(index: Index) -> list[tuple]:
    """All that an index says, shard by shard."""
    found = []
    for k in range(len(index.uris)):
        part = index.section(k)
        labels = [
            part.texts[n] if part.texts and n >= 0 else n for n in part.columns["labels"].tolist()
        ]
        columns = [part.columns[name].tolist() for name in ("offsets", "lengths", "checks", "ends")]
        found.append((index.kind, part.uri, part.stat, labels, columns, part.names, part.notes))
    return found


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("indexes") / "a.ffindex"
    save(path, KIND, PARTS)
    return path


def test_what_is_saved_is_loaded(saved):
    index = load(saved)
    assert index is not None
    assert content(index) == content(Index.of(KIND, PARTS))
    assert len(index) == 8
    assert index.bounds.tolist() == [0, 3, 3, 7, 8]
    assert [index.find_shard(i) for i in range(8)] == [0, 0, 0, 2, 2, 2, 2, 3]
    names = ("a.tar/3", "b.tar/rose", "b.tar/7", "c.tar/aster")
    assert [index.name(i) for i in (0, 3, 6, 7)] == [f"{name}/ü\udcff" for name in names]
    assert index.labels.tolist() == [3, -1, 2**31 - 1, 3, 2, -1, 0, 1]
    assert index.texts == ("7", "aster", "daisy", "rose")
    assert index.has_texts == [False, False, True, True]
    assert index.offsets[2] == (5 << 30) + 2048
    assert index.notes == [("cut off at 5: \udcff",), (), (), ()]
    assert os.stat(saved).st_mode & 0o777 == 0o644
    assert os.listdir(saved.parent) == ["a.ffindex"]


def test_names_stay_in_the_file_and_survive_its_replacement(tmp_path):
    saved, whole = tmp_path / "a.ffindex", content(Index.of(KIND, PARTS))
    save(saved, KIND, PARTS)
    index = load(saved)
    assert index is not None
    sections = pickle.loads(pickle.dumps(index))
    save(saved, KIND, PARTS[:1])  # another file of that name
    assert content(index) == content(sections) == whole
    index = load(saved)
    assert index is not None
    os.truncate(saved, 20)  # in place: what is gone reads as nothing, and ends no process
    assert index.name(1).strip("\0") == ""
    assert index.offsets[2] == (5 << 30) + 2048


def test_names_of_many_samples_are_those_of_each(saved):
    index = load(saved)
    for ids in (np.arange(len(index)), np.array([6, 0, 7, 0, 3]), np.arange(0)):
        assert index.read_names(ids) == [index.name(i) for i in ids.tolist()]


def test_texts_that_no_sample_has_any_more_are_forgotten(tmp_path):
    """Otherwise there would be classes without samples once a shard is replaced."""
    whole = Index.of(KIND, PARTS)
    assert Index.of(KIND, [whole.section(3), section("d.tar", "rose")]).texts == ("aster", "rose")
    save(tmp_path / "a", KIND, [whole.section(2)])
    again = load(tmp_path / "a")
    assert again is not None
    assert content(again)[0] == content(whole)[2]
    assert Index.of(KIND, [whole.section(0)]).texts == ()


def test_of_another_kind_or_of_other_shards(saved):
    stats = frozenset({("b.tar", Stat(4096, "v-b.tar"))})
    assert load(saved, KIND, stats) is not None
    assert load(saved, "tar 2") is None
    assert load(saved, KIND, frozenset({("b.tar", Stat(4096, "other"))})) is None
    known = sections([saved, saved.parent / "none"], KIND, stats)
    assert [(key, i) for key, (_, i) in known.items()] == [(("b.tar", Stat(4096, "v-b.tar")), 2)]


def test_nothing_is_left_of_one_that_cannot_be_written(saved, monkeypatch):
    before = saved.read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(saved, KIND, PARTS[:1])
    assert os.listdir(saved.parent) == ["a.ffindex"]
    assert saved.read_bytes() == before


SIZE = 1100  # bytes, about: of the index that is damaged below


@given(cut=st.integers(0, SIZE))
@example(cut=0)
def test_cut_off_anywhere(saved, cut):
    damaged = saved.with_suffix(".cut")
    whole = saved.read_bytes()
    damaged.write_bytes(whole[: cut * len(whole) // (SIZE + 1)])
    assert load(damaged) is None
    damaged.write_bytes(whole + bytes(cut + 1))
    assert load(damaged) is None
    damaged.unlink()


@given(
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4
    )
)
def test_damaged_anywhere(saved, changes):
    """Never anything else than was saved: also the numbers are covered by a checksum."""
    damaged, whole = saved.with_suffix(".bad"), saved.read_bytes()
    data = bytearray(whole)
    for place, value in changes:
        data[int(place * len(data))] = value
    damaged.write_bytes(data)
    assert (load(damaged) is None) == (data != whole)
    damaged.unlink()


def test_every_single_byte_counts(saved):
    damaged, whole = saved.with_suffix(".bad"), saved.read_bytes()
    for place in range(len(whole)):
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert load(damaged) is None
    damaged.unlink()


def test_what_is_an_index(saved, tmp_path):
    for data, answer in (
        (b"", True),
        (b"fastfeed index 2\n...", True),
        (b"fastf", True),
        (b"{}", False),
    ):
        (tmp_path / "file").write_bytes(data)
        assert is_index(tmp_path / "file") == answer
    assert is_index(saved) and is_index(tmp_path / "none")
    assert not is_index(tmp_path)


def test_all_arrays_are_of_their_types(saved):
    index = load(saved)
    assert index is not None
    arrays = (index.offsets, index.lengths, index.checks, index.labels)
    assert [array.dtype for array in arrays] == [np.int64, np.uint32, np.uint32, np.int32]
