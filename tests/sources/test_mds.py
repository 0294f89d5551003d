"""MDSShards: shards of MosaicML's streaming, whole, damaged and hostile."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.mosaic import ENCODINGS, mds_folder, mds_index, mds_shard
from helpers.photos import jpeg

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.sources import MDSShards


def sample(i: int, **more: Any) -> dict[str, Any]:
    return {"image": jpeg(i), "label": i % 3, "id": f"{i:04d}"} | more


def test_samples_labels_and_names(tmp_path: Path) -> None:
    source = MDSShards(mds_folder(tmp_path, (3, 0, 2)))
    assert (len(source), source.bounds.tolist()) == (5, [0, 3, 3, 5])
    assert source.read([4, 0]) == [jpeg(4, (52, 64)), jpeg(0, (48, 64))]
    assert source.label(np.arange(5)).tolist() == [0, 1, 2, 0, 1]
    assert source.uri(3).startswith(f"{tmp_path}/shard.00002.mds#")
    assert source.uri(3).endswith(":0003")
    assert source.sizes(np.array([4])).tolist() == [len(jpeg(4, (52, 64)))]
    assert str(source) == f"MDSShards({tmp_path}/shard.00000.mds and 2 more): 5 images"


@pytest.mark.parametrize("how", ["index.json", "*.mds", "shard.{00000..00001}.mds"])
def test_other_ways_to_name_them(tmp_path: Path, how: str) -> None:
    mds_folder(tmp_path, (2, 1))
    assert len(MDSShards(str(tmp_path / how))) == 3
    (tmp_path / "index.json").unlink()
    assert len(MDSShards(tmp_path)) == 3


def test_the_index_says_which_and_in_which_order(tmp_path: Path) -> None:
    mds_folder(tmp_path, (2, 1))
    (tmp_path / "index.json").write_text(mds_index(["shard.00001.mds"]))
    assert MDSShards(tmp_path).read([0]) == [jpeg(2, (50, 64))]
    (tmp_path / "index.json").write_text(mds_index(["shard.00001.mds", "shard.00000.mds"]))
    assert MDSShards(tmp_path).label(np.arange(3)).tolist() == [2, 0, 1]


def test_text_labels_and_none(tmp_path: Path) -> None:
    kinds = ENCODINGS | {"label": "str"}
    samples = [sample(i, label=text) for i, text in enumerate(["rose", "daisy", "", "rose"])]
    (tmp_path / "a.mds").write_bytes(mds_shard(kinds, samples))
    source = MDSShards(tmp_path)
    assert (source.classes, source.label(np.arange(4)).tolist()) == (("daisy", "rose"), [1, 0, -1, 1])
    (missing,) = source.read([2])
    assert missing.reason == "label_missing"
    assert MDSShards(tmp_path, label=None).read([2]) == [jpeg(2)]
    assert MDSShards(tmp_path, classes=("rose", "tulip", "daisy")).label(np.arange(2)).tolist() == [0, 2]


def test_values_of_every_encoding(tmp_path: Path) -> None:
    values = {
        "bytes": (b"raw", "raw"), "str": ("ä", "ä"), "int": (-7, -7), "int32": (5, 5), "uint8": (200, 200),
        "float32": (0.5, 0.5), "float64": (0.1, 0.1), "json": ({"a": [1]}, {"a": [1]}), "str_int": (10**30, 10**30),
        "str_float": (0.25, 0.25),
    }  # fmt: skip
    kinds = ENCODINGS | {f"a {kind}": kind for kind in values}
    (tmp_path / "a.mds").write_bytes(
        mds_shard(kinds, [sample(0, **{f"a {kind}": given for kind, (given, _) in values.items()})])
    )
    source = MDSShards(tmp_path, columns=[f"a {kind}" for kind in values])
    assert source.extra_columns([0]) == [{f"a {kind}": meant for kind, (_, meant) in values.items()}]


def test_shards_may_differ_in_what_is_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.mds").write_bytes(mds_shard(ENCODINGS, [sample(0)]))
    (tmp_path / "b.mds").write_bytes(mds_shard(ENCODINGS | {"image": "png", "more": "int"}, [sample(1, more=1)]))
    assert MDSShards(tmp_path).read([1]) == [jpeg(1)]
    (tmp_path / "b.mds").write_bytes(mds_shard(ENCODINGS | {"label": "str"}, [sample(1)]))
    with pytest.raises(SourceError, match=r"column 'label' is str in .*b.mds, int in the first shard"):
        MDSShards(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": "photo"}, r"no column 'photo' in .*; it has id, image, label, pickled"),
        ({"label": "class"}, r"no column 'class'"),
        (
            {"image": "id"},
            r"the image column must hold .*bytes, jpeg, png.*, got 'id' with 'str'; pass image='its name'",
        ),
        ({"columns": ["pickled"]}, r"columns must hold str, .*, got 'pickled' with 'pkl'; leave it out of columns"),
        ({"columns": "id"}, r"columns must be a list of names, got 'id'"),
        ({"image": ""}, r"image must be the name of a column"),
    ],
)
def test_wrong_names(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    (tmp_path / "a.mds").write_bytes(mds_shard(ENCODINGS | {"pickled": "pkl"}, [sample(0, pickled=b"cos\nsystem\n")]))
    with pytest.raises(ConfigError, match=message):
        MDSShards(tmp_path, **options)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (mds_index(["a.mds"], compression="zstd", zip_data={"basename": "a.mds.zstd"}), "compressed with zstd"),
        (mds_index(["../a.mds"]), "may not name '../a.mds': outside of .*pass allow_path="),
        (mds_index(["/etc/passwd"]), "may not name '/etc/passwd': outside of "),
        (mds_index(["s3://b/a.mds"]), "may not name 's3://b/a.mds': s3 is not an allowed scheme"),
        (mds_index(["{.,..}/a.mds"]), "is a pattern, and an index names files"),
        (mds_index(["a.mds"], format="json"), "a shard of format 'json'"),
        ('{"version": 3, "shards": []}', "version 3, 2 can be read"),
        ('{"version": 2}', "KeyError 'shards'"),
        ("[]", "is not an index of MDS shards"),
        ("[" * 100_000, "is not an index of MDS shards"),
        (mds_index(["none.mds"]), "none.mds"),
    ],
)
def test_bad_indexes(tmp_path: Path, index: str, message: str) -> None:
    (tmp_path / "a.mds").write_bytes(mds_shard(ENCODINGS, [sample(0)]))
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(SourceError, match=message):
        MDSShards(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut off at 0"),
        (
            b"\x28\xb5\x2f\xfd" + bytes(100),
            "must be an uncompressed MDS shard of version 2: .*; decompress it, or copy it again",
        ),
        (struct.pack("<I", 1 << 31) + bytes(100), "2147483648 samples in 104 bytes"),
        (
            struct.pack("<III", 1, 1 << 30, 1 << 30) + b"{}",
            "sample offsets must not decrease, and begin at most .* bytes after 12, got 1073741824, 1073741824; ",
        ),
        (struct.pack("<II", 0, 10) + b"{}", "'format'"),
        (struct.pack("<II", 0, 10) + b"[]", "must be an uncompressed MDS shard"),
    ],
)
def test_no_shard_at_all(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.mds").write_bytes(content)
    with pytest.raises(SourceError, match=message):
        MDSShards(tmp_path)


def test_a_damaged_sample_is_a_bad_one(tmp_path: Path) -> None:
    content = bytearray(mds_shard(ENCODINGS, [sample(i) for i in range(3)]))
    (start,) = struct.unpack_from("<I", content, 8)  # of sample 1: the size of its id
    struct.pack_into("<I", content, start, 5)
    (tmp_path / "a.mds").write_bytes(content)
    source = MDSShards(tmp_path, columns=["id"])
    good, bad, other = source.read(range(3))
    assert (good, other) == (jpeg(0), jpeg(2))
    assert isinstance(bad, Failure)
    assert (bad.reason, bad.detail) == ("corrupt", "the sizes in the sample are invalid")
    assert source.extra_columns(range(3)) == [{"id": "0000"}, {"id": None}, {"id": "0002"}]
    assert source.notes[0].startswith(f"{tmp_path}/a.mds: sample 1 at {start} is damaged: its columns end at")


def test_a_shard_that_is_cut_off(tmp_path: Path) -> None:
    content = mds_shard(ENCODINGS, [sample(i) for i in range(3)])
    (tmp_path / "a.mds").write_bytes(content[:-1])
    source = MDSShards(tmp_path, label=None)
    assert source.read([0, 1]) == [jpeg(0), jpeg(1)]
    assert source.read([2])[0].reason == "corrupt"


def test_any_damage_is_an_error_of_ours_or_a_bad_sample(tmp_path: Path) -> None:
    whole, rng = mds_shard(ENCODINGS, [sample(i) for i in range(4)]), random.Random(1)
    path = tmp_path / "a.mds"
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(300)] = rng.randrange(256)
        path.write_bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged))])])
        try:
            source = MDSShards(path, columns=["id"], index=tmp_path / "i.ffindex")
        except (SourceError, ConfigError):
            continue
        for found in (*source.read(range(len(source))), *source.extra_columns(range(len(source)))):
            assert isinstance(found, (bytes, dict, Failure))
