"""WebDataset shards, read by Python's tarfile, by webdataset, and by TarShards with and without
DALI's index.
"""

from __future__ import annotations

import gc
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.preprocess.packing import encoded, entries, files, pixels, write

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.recipe import Packing
from fastfeed.preprocess.writers.tar import header
from fastfeed.sources import TarShards
from fastfeed.sources.tar import source as tar_source

TAR = Packing("webdataset")


def test_tarfile_reads_it(tmp_path: Path) -> None:
    found = entries(7)
    offsets = write(tmp_path, TAR, found)
    with tarfile.open(tmp_path / "shard-000000.tar", "r:") as archive:
        members = archive.getmembers()
        content = {member.name: archive.extractfile(member).read() for member in members}  # pyright: ignore[reportOptionalMemberAccess]
    expected: dict[str, bytes] = {}
    for one in found:
        expected[f"{one.key}.jpg"] = one.image
        if one.label is not None:
            expected[f"{one.key}.cls"] = str(one.label).encode()
        if one.text is not None:
            expected[f"{one.key}.txt"] = one.text.replace("\udcff", "\ufffd").encode()
        expected[f"{one.key}.json"] = content[f"{one.key}.json"]
        assert json.loads(content[f"{one.key}.json"]) == one.meta
        assert os.fsencode(json.loads(content[f"{one.key}.json"])["uri"]) == os.fsencode(
            one.meta["uri"]
        )
    assert list(content.items()) == list(expected.items())
    assert [member.offset for member in members if member.name.endswith(".jpg")] == offsets
    about = {
        (m.mode, m.uid, m.gid, m.uname, m.gname, m.mtime, m.type, len(m.pax_headers))
        for m in members
    }
    assert about == {(0o644, 0, 0, "", "", 0, tarfile.REGTYPE, 0)}
    assert (tmp_path / "shard-000000.tar").stat().st_size % tarfile.RECORDSIZE == 0


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 8**11 - 1])
def test_headers_are_those_of_tarfile(size: int) -> None:
    info = tarfile.TarInfo("000000012.jpg")
    info.size = size
    ours, theirs = (
        # frombuf has checked it
        dict(tarfile.TarInfo.frombuf(head, "ascii", "strict").get_info(), chksum=0)
        for head in (header(info.name, size), info.tobuf(tarfile.USTAR_FORMAT))
    )
    assert ours == theirs


def test_a_member_too_large_for_a_header_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"100 bytes and 8589934591 bytes of data, got a.npy, 8589934592"
    ):
        header("a.npy", 8**11)


@pytest.mark.parametrize("blocks", range(15, 21))
def test_the_end_is_whole_wherever_it_falls(blocks: int, tmp_path: Path) -> None:
    """Two blocks of zeros, then up to a multiple of 20 blocks."""
    one = entries(1)[0]
    fixed = 512 * (blocks - 4)  # with two headers, JSON of one block, and the text
    write(tmp_path, TAR, [replace(one, image=bytes(fixed), text=None, label=None)])
    content = (tmp_path / "shard-000000.tar").read_bytes()
    size = len(content.rstrip(b"\0"))
    assert len(content) % 10240 == 0
    assert 1024 <= len(content) - size < 1024 + 512 + 10240
    with tarfile.open(tmp_path / "shard-000000.tar") as archive:
        assert len(archive.getnames()) == 2


def by_webdataset(*shards: Path, images: str | None = None) -> list[dict[str, Any]]:
    wds = pytest.importorskip("webdataset", reason="no webdataset; pip install webdataset")
    data = wds.WebDataset([str(path) for path in shards], shardshuffle=False)
    found = list(data.decode(images) if images else data.decode())
    del data
    gc.collect()  # it leaves its files open
    return found


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
def test_webdataset_reads_it(tmp_path: Path) -> None:
    found = entries(7)
    shards = [tmp_path / f"shard-00000{k}.tar" for k in range(3)]
    for path, part in zip(shards, (found[:4], [], found[4:]), strict=True):
        write(tmp_path, TAR, part, path.stem)
    read = by_webdataset(*shards, images="rgb8")
    assert [sample["__key__"] for sample in read] == [one.key for one in found]
    for sample, one in zip(read, found, strict=True):
        assert sample["jpg"].shape == (one.height, one.width, 3)
        assert sample["json"] == one.meta
        assert sample.get("cls") == one.label
        assert sample.get("txt") == (one.text and one.text.replace("\udcff", "\ufffd"))


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
def test_webdataset_reads_arrays(tmp_path: Path) -> None:
    write(tmp_path, TAR, entries(2, "raw"))
    np.testing.assert_array_equal(by_webdataset(tmp_path / "shard-000000.tar")[1]["npy"], pixels(1))


def test_the_index_is_that_of_wds2idx(tmp_path: Path) -> None:
    """As nvidia.dali's tools/wds2idx.py makes it of what `tar --list --block-number` says."""
    write(tmp_path, TAR, entries(7))
    samples: dict[str, list[str]] = {}
    with tarfile.open(tmp_path / "shard-000000.tar") as archive:
        for member in archive:
            base, _, extension = member.name.partition(".")
            samples.setdefault(base, []).append(
                f"{extension} {member.offset_data} {member.size} {member.name}"
            )
    expected = "\n".join([f"v1.2 {len(samples)}", *map(" ".join, samples.values())]) + "\n"
    assert (tmp_path / "shard-000000.idx").read_text() == expected


@pytest.mark.parametrize("index", [True, False])
def test_fastfeed_reads_it(index: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = entries(7)
    write(tmp_path, TAR, found[:5], "shard-000000")
    write(tmp_path, TAR, [], "shard-000001")
    write(tmp_path, TAR, found[5:], "shard-000002")
    looked: list[str] = []

    def members(peek: Any, notes: list[str]) -> Any:
        looked.append(peek.uri)
        return original(peek, notes)

    original = tar_source.members
    monkeypatch.setattr(tar_source, "members", members)
    if not index:
        for path in tmp_path.glob("*.idx"):
            path.unlink()
    source = TarShards(tmp_path, classes=["none", "a", "b"])
    assert [
        data if one.label else data.reason
        for data, one in zip(source.read(range(7)), found, strict=True)
    ] == [one.image if one.label else "label_missing" for one in found]
    assert source.label(np.arange(7)).tolist() == [
        -1 if one.label is None else one.label for one in found
    ]
    assert [source.uri(i).rpartition(":")[2] for i in range(7)] == [
        f"{one.key}.jpg" for one in found
    ]
    assert len(looked) == (1 if index else 3)  # the empty shard has no index


def test_names_of_other_images(tmp_path: Path) -> None:
    one = replace(entries(1)[0], image=encoded(0, "webp"), extension="webp")
    write(tmp_path, TAR, [one])
    assert files(tmp_path)["shard-000000.idx"].startswith(
        b"v1.2 1\nwebp 512 %d 000000000.webp txt " % len(one.image)
    )
    assert TarShards(tmp_path, label=None).read([0]) == [one.image]
