"""MDSShards: shards of MosaicML's streaming, whole, damaged and hostile."""

from __future__ import annotations

import io
import random
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.mosaic import ENCODINGS, mds_folder, mds_index, mds_shard
from helpers.photos import jpeg
from PIL import Image

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
    assert (source.classes, source.label(np.arange(4)).tolist()) == (
        ("daisy", "rose"),
        [1, 0, -1, 1],
    )
    (missing,) = source.read([2])
    assert missing.reason == "label_missing"
    assert MDSShards(tmp_path, label=None).read([2]) == [jpeg(2)]
    assert MDSShards(tmp_path, classes=("rose", "tulip", "daisy")).label(np.arange(2)).tolist() == [
        0,
        2,
    ]


def test_values_of_every_encoding(tmp_path: Path) -> None:
    values = {
        "bytes": (b"raw", "raw"),
        "str": ("ä", "ä"),
        "int": (-7, -7),
        "int32": (5, 5),
        "uint8": (200, 200),
        "float32": (0.5, 0.5),
        "float64": (0.1, 0.1),
        "json": ({"a": [1]}, {"a": [1]}),
        "str_int": (10**30, 10**30),
        "str_float": (0.25, 0.25),
    }
    kinds = ENCODINGS | {f"a {kind}": kind for kind in values}
    (tmp_path / "a.mds").write_bytes(
        mds_shard(kinds, [sample(0, **{f"a {kind}": given for kind, (given, _) in values.items()})])
    )
    source = MDSShards(tmp_path, columns=[f"a {kind}" for kind in values])
    assert source.extra_columns([0]) == [
        {f"a {kind}": meant for kind, (_, meant) in values.items()}
    ]


def test_bytes_stay_bytes(tmp_path: Path) -> None:
    kinds = ENCODINGS | {"raw": "bytes", "mask": "png"}
    (tmp_path / "a.mds").write_bytes(
        mds_shard(
            kinds,
            [
                sample(i, raw=raw, mask=b"\x89PNG")
                for i, raw in enumerate([b"abc", b"\xff\xfe\x00\x80"])
            ],
        )
    )
    columns = MDSShards(tmp_path, columns=["raw", "mask"]).columns(np.arange(2))
    assert columns["raw"].tolist() == [b"abc", b"\xff\xfe\x00\x80"]
    assert columns["mask"].tolist() == [b"\x89PNG"] * 2
    text, other = MDSShards(tmp_path, columns=["raw"]).extra_columns(range(2))
    assert text == {"raw": "abc"}
    assert other == {"raw": b"\xff\xfe\x00\x80"}  # columns of a job hold it if declared as bytes


def test_numbers_are_typed(tmp_path: Path) -> None:
    kinds = ENCODINGS | {"score": "float32"}
    (tmp_path / "a.mds").write_bytes(mds_shard(kinds, [sample(i, score=i / 2) for i in range(3)]))
    columns = MDSShards(tmp_path, columns=["score", "label"]).columns(np.arange(3))
    np.testing.assert_array_equal(columns["score"], np.array([0, 0.5, 1], np.float32), strict=True)
    np.testing.assert_array_equal(columns["label"], np.arange(3), strict=True)


# as mosaicml-streaming 0.13 writes np.arange(6, dtype=np.float32).reshape(2, 3)
_DATA = np.arange(6, dtype="<f4").tobytes()


@pytest.mark.parametrize(
    ("encoding", "head"),
    [
        ("ndarray", b"\x22\x08\x02\x03"),
        ("ndarray:float32", b"\x08\x02\x03"),
        ("ndarray:float32:2,3", b""),
        ("ndarray:float32", b"\x09\x02\x00\x03\x00"),
    ],
)
def test_arrays_with_and_without_a_shape(encoding: str, head: bytes, tmp_path: Path) -> None:
    kinds = ENCODINGS | {"a": encoding}
    (tmp_path / "a.mds").write_bytes(
        mds_shard(
            kinds, [sample(0, a=head + _DATA), sample(1, a=(head + _DATA)[:-1]), sample(2, a=b"")]
        )
    )
    good, cut, empty = MDSShards(tmp_path, columns=["a"]).column_values(range(3)) or []
    np.testing.assert_array_equal(
        good["a"], np.arange(6, dtype=np.float32).reshape(2, 3), strict=True
    )
    for bad in (cut["a"], empty["a"]):
        assert isinstance(bad, Failure)
        assert bad.reason == "corrupt"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGB", "RGBA"])
def test_images_of_pillow(mode: str, tmp_path: Path) -> None:
    images = [Image.open(io.BytesIO(jpeg(i))).convert(mode).resize((13, 7)) for i in range(2)]
    raw = [
        struct.pack("<III", 13, 7, len(mode)) + mode.encode() + image.tobytes() for image in images
    ]
    kinds = {"x": "pil", "y": "int"}
    content = [
        {"x": data, "y": i}
        for i, data in enumerate([*raw, raw[0][:-1], raw[0].replace(mode.encode(), b"F", 1)])
    ]
    (tmp_path / "a.mds").write_bytes(mds_shard(kinds, content))
    source = MDSShards(tmp_path, image="x", label="y")
    first, second, cut, other = source.read(range(4))
    for image, data in zip(images, (first, second), strict=True):
        decoded = Image.open(io.BytesIO(data))
        assert (decoded.mode, decoded.tobytes()) == (mode, image.tobytes())
    assert [(bad.reason, bad.detail[:2]) for bad in (cut, other)] == [("corrupt", "x:")] * 2
    assert source.addresses(np.arange(2)) is None


@pytest.mark.parametrize(
    "encoding", ["pkl", "jpeg_array", "jpegarray", "list[jpeg]", "ndarray:float128", "of tomorrow"]
)
@pytest.mark.parametrize("option", ["image", "label", "columns"])
def test_what_is_not_read_is_refused_by_name(encoding: str, option: str, tmp_path: Path) -> None:
    (tmp_path / "a.mds").write_bytes(
        mds_shard(ENCODINGS | {"odd": encoding}, [sample(0, odd=b"cos\nsystem\n")])
    )
    with pytest.raises(
        ConfigError, match=rf"must hold .*, got 'odd' with '{re.escape(encoding)}'; "
    ):
        MDSShards(tmp_path, **{option: ["odd"] if option == "columns" else "odd"})


def test_qualities_belong_to_no_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.mds").write_bytes(mds_shard(ENCODINGS | {"image": "jpeg:90"}, [sample(0)]))
    assert MDSShards(tmp_path).read([0]) == [jpeg(0)]


def test_shards_may_differ_in_what_is_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.mds").write_bytes(mds_shard(ENCODINGS, [sample(0)]))
    (tmp_path / "b.mds").write_bytes(
        mds_shard(ENCODINGS | {"image": "png", "more": "int"}, [sample(1, more=1)])
    )
    assert MDSShards(tmp_path).read([1]) == [jpeg(1)]
    (tmp_path / "b.mds").write_bytes(mds_shard(ENCODINGS | {"label": "str"}, [sample(1)]))
    with pytest.raises(
        SourceError, match=r"column 'label' is str in .*b.mds, int in the first shard"
    ):
        MDSShards(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image": "photo"}, r"no column 'photo' in .*; it has id, image, label, pickled"),
        ({"label": "class"}, r"no column 'class'"),
        (
            {"image": "id"},
            (
                r"the image column must hold .*bytes, jpeg, png.*, got 'id' with 'str'; pass"
                r" image='its name'"
            ),
        ),
        (
            {"columns": ["pickled"]},
            r"columns must hold str, .*, got 'pickled' with 'pkl'; leave it out of columns",
        ),
        ({"columns": "id"}, r"columns must be a list of names, got 'id'"),
        ({"image": ""}, r"image must be the name of a column"),
    ],
)
def test_wrong_names(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    (tmp_path / "a.mds").write_bytes(
        mds_shard(ENCODINGS | {"pickled": "pkl"}, [sample(0, pickled=b"cos\nsystem\n")])
    )
    with pytest.raises(ConfigError, match=message):
        MDSShards(tmp_path, **options)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (
            mds_index(["a.mds"], compression="zstd", zip_data={"basename": "a.mds.zstd"}),
            "compressed with zstd",
        ),
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
            (
                "sample offsets must not decrease, and begin at most .* bytes after 12, got"
                " 1073741824, 1073741824; "
            ),
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
    assert source.notes[0].startswith(
        f"{tmp_path}/a.mds: sample 1 at {start} is damaged: its columns end at"
    )


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
