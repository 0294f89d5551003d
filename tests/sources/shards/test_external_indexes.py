"""Lists of shards that wids uses, and indexes of shards that DALI's wds2idx writes."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import fsspec
import pytest
from conftest import environment
from helpers.shards import samples, shard_folder, tar_of
from helpers.tars import END, entry, header, labels, opened, pax, served
from hypothesis import example, given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.sources import TarShards
from fastfeed.sources.tar import source as tar


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> None:
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path_factory.mktemp("cache")))


# -- wids


def wids(path: Path, *shards: tuple[str, object], **more: object) -> Path:
    listed = [{"url": url, "nsamples": count} for url, count in shards]
    path.write_text(
        json.dumps(
            {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": listed} | more
        )
    )
    return path


def test_an_index_of_wids(tmp_path, monkeypatch):
    """Addresses are relative to it, in its order."""
    shard_folder(tmp_path / "data", (2, 3, 1))
    whole = tmp_path / "data" / "s-001.tar"
    index = wids(
        tmp_path / "index.json",
        ("data/s-002.tar", 1),
        (str(whole), 3),
        (f"file://{tmp_path}/data/s-000.tar", 2),
    )
    source = TarShards(index)
    assert [source.shard(k) for k in range(3)] == [
        f"{tmp_path}/data/s-{k:03d}.tar" for k in (2, 1, 0)
    ]
    assert (source.bounds.tolist(), source.notes) == ([0, 1, 4, 6], [])
    monkeypatch.chdir(tmp_path)
    assert TarShards("index.json").read(range(6)) == source.read(range(6))
    assert len(TarShards(["index.json"])) == 6


def test_another_number_of_samples_is_noted(tmp_path):
    shard_folder(tmp_path, (2, 3))
    source = TarShards(wids(tmp_path / "index.json", ("s-000.tar", 5), ("s-001.tar", "many")))
    assert source.notes == [f"{tmp_path}/s-000.tar: 2 samples, but its wids index says 5"]
    assert repr(source).endswith("5 images; 1 note, see .notes")


def test_indexes_of_several_parts(tmp_path):
    shard_folder(tmp_path / "a", (2,))
    shard_folder(tmp_path / "b", (3,))
    shard_folder(tmp_path / "c" / "d", (1,))
    wids(tmp_path / "c" / "index.json", ("s-000.tar", 1), base="d")
    parts = [
        {"base": "b/", "shardlist": [{"url": "s-000.tar", "nsamples": 3}]},
        {"source_url": "c/index.json"},
    ]
    source = TarShards(wids(tmp_path / "index.json", ("a/s-000.tar", 2), datasets=parts))
    assert [os.path.relpath(source.shard(k), tmp_path) for k in range(3)] == [
        f"{x}/s-000.tar" for x in ("a", "b", "c/d")
    ]
    assert source.notes == []


def test_a_remote_index(tmp_path):
    memory = fsspec.filesystem("memory")
    memory.pipe("/wids/data/a.tar", tar_of(samples(range(2))))
    memory.pipe("/wids/index.json", wids(tmp_path / "index.json", ("data/a.tar", 2)).read_bytes())
    source = TarShards("memory://wids/index.json")
    assert (source.uri(0), labels(source)) == ("memory://wids/data/a.tar#512:000000.jpg", [0, 1])
    with pytest.raises(SourceError, match=r"TarShards: cannot read memory://wids/none.json: "):
        TarShards("memory://wids/none.json")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"__kind__": "other"}',
        '{"wids_version": 2}',
        '{"shardlist": [{"nsamples": 1}]}',
        '{"shardlist": 5}',
        '{"shardlist": [{"url": 5}]}',
        '{"shardlist": ["a"]}',
        '{"datasets": [5]}',
        "[" * 99999,
    ],
)
def test_what_is_no_index_of_wids(tmp_path, text):
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(SourceError, match=r"TarShards: .*/index.json is not a wids index: \w+"):
        TarShards(tmp_path / "index.json")


def test_lists_that_name_what_is_not_there(tmp_path):
    with pytest.raises(SourceError, match=r"TarShards: cannot read .*/none.json: no file there"):
        TarShards(tmp_path / "none.json")
    with pytest.raises(SourceError, match=r"TarShards: cannot open .*/gone.tar: No such file"):
        TarShards(wids(tmp_path / "index.json", ("gone.tar", 1)))
    with pytest.raises(ConfigError, match=r"TarShards needs a path, a pattern such as .*; got "):
        TarShards(wids(tmp_path / "index.json"))


# -- DALI


def by_dali(shard: Path, locale: str = "C.UTF-8") -> Path:
    """The `.idx` that DALI's program writes by default."""
    pytest.importorskip(
        "wds2idx", reason="no wds2idx, which comes with NVIDIA DALI: make test brings it"
    )
    command = [sys.executable, "-m", "wds2idx", str(shard)]
    subprocess.run(command, check=True, env=environment(LC_ALL=locale), stdout=subprocess.DEVNULL)
    return shard.with_suffix(".idx")


@pytest.fixture
def looks(monkeypatch) -> list[str]:
    """Shards whose headers are looked through."""
    seen: list[str] = []
    look = tar.members

    def members(peek, notes):
        seen.append(peek.uri)
        return look(peek, notes)

    monkeypatch.setattr(tar, "members", members)
    return seen


MEMBERS = [
    *[
        ("d/1.jpg", b"1" * 700),
        ("d/1.cls", b"2"),
        ("d/1.json", b"{}"),
        ("d/2.cls", b"1"),
        ("d/2.jpg", b"2" * 512),
    ],
    *[("d/4.cls", b"1"), ("d/5.jpg", b""), ("d/5.cls", b"1")],
]
LONG = [(f"{'n' * 120}.{kind}", data) for kind, data in (("jpg", b"3" * 600), ("cls", b"0"))]


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("label", ["cls", None])
def test_the_index_of_dali_gives_the_same(tmp_path, looks, format, label):
    """As looking through the shard does, which is then not done."""
    shard = tmp_path / "a.tar"
    looked = opened(shard, tar_of(MEMBERS, format), label=label)
    assert looks == [str(shard)]
    by_dali(shard)
    looks.clear()
    listed = TarShards(shard, label=label, index=tmp_path / "again")
    assert looks == []
    assert served(listed) == served(looked)
    assert (labels(listed), listed.notes, listed.fingerprint) == (
        labels(looked),
        looked.notes,
        looked.fingerprint,
    )


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("label", ["cls", None])
@pytest.mark.parametrize("place", [0, 3, 8])
def test_long_names(tmp_path, looks, format, label, place):
    """In GNU's format, it lists the offset of the header that holds the name: so it is not used."""
    shard = tmp_path / "a.tar"
    shard.write_bytes(tar_of(MEMBERS[:place] + LONG + MEMBERS[place:], format))
    by_dali(shard)
    source = TarShards(shard, label=label)
    assert served(source)[LONG[0][0]] == b"3" * 600
    assert looks == ([str(shard)] if format == tarfile.GNU_FORMAT else [])
    assert [note.partition(" not used: ")[0] for note in source.notes[: len(looks)]] == [
        f"{shard}: a.idx is"
    ] * len(looks)


def test_links_and_folders_are_not_in_it(tmp_path, looks):
    data = (
        header("d/", kind=b"5")
        + entry("d/1.jpg", b"1")
        + header("d/2.jpg", kind=b"2")
        + entry("d/1.cls", b"7")
    )
    (tmp_path / "a.tar").write_bytes(data + END)
    by_dali(tmp_path / "a.tar")
    source = TarShards(tmp_path / "a.tar")
    assert (looks, served(source), labels(source)) == ([], {"d/1.jpg": b"1"}, [7])


def test_names_that_lead_elsewhere_are_refused_all_the_same(tmp_path, looks):
    (tmp_path / "a.tar").write_bytes(
        entry("/1.jpg", b"1") + entry("../2.jpg", b"2") + entry("3.jpg", b"3") + END
    )
    by_dali(tmp_path / "a.tar")
    assert served(TarShards(tmp_path / "a.tar", label=None)) == {"3.jpg": b"3"}
    assert looks == []


WHOLE = tar_of(samples(range(3)))


def idx_of(data: bytes) -> str:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        entries = [(m.name.rpartition(".")[2], m.offset_data, m.size, m.name) for m in archive]
    lines = [
        " ".join(" ".join(map(str, e)) for e in entries[i : i + 2])
        for i in range(0, len(entries), 2)
    ]
    return f"v1.2 {len(lines)}\n" + "".join(line + "\n" for line in lines)


def changed(old: str, new: str):
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change


UNFIT = {  # what is wrong with an index -> how it came to be, why it is not used
    "older version": (changed("v1.2", "v1.1"), "v1.1 lists no names, wds2idx of today does"),
    "newer version": (changed("v1.2", "v9.9"), "must be a complete index of version v1.2, got "),
    "empty": (lambda text: "", "must be a complete index of version v1.2, got "),
    "half of it": (
        lambda text: text[: len(text) // 2],
        "must be a complete index of version v1.2, got ",
    ),
    "a line is missing": (
        lambda text: "v1.2 2\n" + "".join(text.splitlines(True)[1:3]),
        "it lists nothing after ",
    ),
    "no numbers": (changed(" 512 ", " x "), "'jpg x "),
    "a sign": (changed(" 512 ", " +512 "), "'jpg +512 "),
    "a space in a name": (changed("000000.jpg", "0 .jpg"), "'jpg 512 "),
    "a name in other words": (
        changed("000000.jpg", r"\303\274.jpg"),
        r"\303\274.jpg is an escaped name",
    ),
    "no multiple of 512": (changed(" 512 ", " 513 "), "000000.jpg has an invalid offset, 513"),
    "over another": (changed("cls 2560 ", "cls 1024 "), "000000.cls has an invalid offset, 1024"),
    "behind the end": (
        changed(" 512 ", " 51200000 "),
        "000000.jpg has an invalid offset, 51200000",
    ),
    "another name": (changed("000000.jpg", "00000.jpg"), "00000.jpg does not lie at 512"),
    "another label": (changed("000001.cls", "00001.cls"), "00001.cls does not lie at "),
}


@pytest.mark.parametrize("what", UNFIT)
def test_what_does_not_fit_is_not_used(tmp_path, looks, what):
    change, why = UNFIT[what]
    (tmp_path / "a.tar").write_bytes(WHOLE)
    (tmp_path / "a.idx").write_text(change(idx_of(WHOLE)))
    source = TarShards(tmp_path / "a.tar")
    assert looks == [str(tmp_path / "a.tar")]
    assert (labels(source), len(source.notes)) == ([0, 1, 2], 1)
    assert source.notes[0].startswith(f"{tmp_path}/a.tar: a.idx is not used: {why}")
    assert source.read([0, 1, 2]) == [
        data for name, data in samples(range(3)) if name.endswith("jpg")
    ]


def test_an_index_larger_than_its_shard_is_not_read(tmp_path, looks):
    (tmp_path / "a.tar").write_bytes(WHOLE)
    (tmp_path / "a.idx").write_text(idx_of(WHOLE))
    with open(tmp_path / "a.idx", "r+b") as file:
        file.truncate(1 << 40)  # a hole, which takes no room on the disk
    source = TarShards(tmp_path / "a.tar")
    assert source.notes == [f"{tmp_path}/a.tar: a.idx is not used: larger than the shard"]
    assert labels(source) == [0, 1, 2]


def test_images_are_compared_with_it_when_they_are_read(tmp_path, looks):
    (tmp_path / "a.tar").write_bytes(WHOLE)
    (tmp_path / "a.idx").write_text(idx_of(WHOLE).replace("000001.jpg", "00000x.jpg"))
    source = TarShards(tmp_path / "a.tar", label=None)
    assert looks == []
    assert list(served(source).values()) == [
        samples([0])[0][1],
        ("changed", 3584),
        samples([2])[0][1],
    ]


def test_one_that_is_older_than_its_shard(tmp_path, looks):
    (tmp_path / "a.tar").write_bytes(WHOLE)
    (tmp_path / "a.idx").write_text(idx_of(WHOLE))
    os.utime(tmp_path / "a.idx", ns=(1, 1))
    assert TarShards(tmp_path / "a.tar").notes == [
        f"{tmp_path}/a.tar: a.idx is not used: older than the shard"
    ]


@pytest.mark.parametrize("cut", [600, 3000, 9216, 9217, 9728])
def test_one_of_a_shard_that_is_cut_off(tmp_path, looks, cut):
    (tmp_path / "a.tar").write_bytes(WHOLE[:cut])
    (tmp_path / "a.idx").write_text(idx_of(WHOLE))
    try:
        notes = "\n".join(TarShards(tmp_path / "a.tar").notes)
    except SourceError as error:
        notes = str(error)
    assert "a.idx is not used: " in notes and f"cut off at {cut}" in notes


def test_names_that_gnu_tar_writes_in_its_own_way(tmp_path, looks):
    """Without a UTF-8 locale, it shows bytes as octal numbers."""
    shard = tmp_path / "a.tar"
    shard.write_bytes(pax({"path": "ü.jpg"}) + entry("x", b"1") + END)
    assert "\\303" in by_dali(shard, locale="C").read_text()
    assert served(TarShards(shard, label=None)) == {"ü.jpg": b"1"}
    assert looks == [str(shard)]


@example([(0.8125, ord("0"))])
@given(
    st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(32, 126)), min_size=1, max_size=5
    )
)
def test_damage_to_it_gives_no_wrong_sample(tmp_path_factory, changes):
    """Whatever it says: the right bytes with the right label, or a failure."""
    folder = tmp_path_factory.mktemp("damaged")
    text = bytearray(idx_of(WHOLE).encode())
    for place, value in changes:
        text[int(place * len(text))] = value
    (folder / "a.tar").write_bytes(WHOLE)
    (folder / "a.idx").write_bytes(text)
    whole = {
        data: i % 3
        for i, (name, data) in enumerate(itertools.islice(samples(range(3)), 0, None, 2))
    }
    source = TarShards(folder / "a.tar")
    for blob, label in zip(source.read(range(len(source))), labels(source), strict=True):
        if isinstance(blob, Failure):
            assert blob.reason in ("changed", "label_missing", "empty")
        else:
            assert whole[blob] == label
