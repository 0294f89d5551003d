"""TFRecord shards, read by TensorFlow and by TFRecords."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.preprocess.libraries import tensorflow
from helpers.preprocess.packing import entries, files, write

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.recipe import Packing
from fastfeed.preprocess.writers import tfrecord
from fastfeed.sources import TFRecords

RECORDS = Packing("tfrecord")
FEATURES = [
    "image/caption",
    "image/class/label",
    "image/class/text",
    "image/encoded",
    "image/filename",
    "image/format",
    "image/height",
    "image/key",
    "image/meta",
    "image/source",
    "image/width",
]

BY_TENSORFLOW = """
data = tf.data.TFRecordDataset(sys.argv[1:])
found, same = [], []
for record in data:
    example = tf.train.Example.FromString(record.numpy())
    same.append(example.SerializeToString(deterministic=True) == record.numpy())
    own = {}
    for name, feature in sorted(example.features.feature.items()):
        (value,) = feature.bytes_list.value or feature.int64_list.value
        own[name] = value.hex() if isinstance(value, bytes) else value
    found.append(own)
described = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64, -1),
    "image/caption": tf.io.FixedLenFeature([], tf.string, ""),
}
shapes, labels, captions = [], [], []
for record in data:
    parsed = tf.io.parse_single_example(record, described)
    shapes.append(tf.io.decode_jpeg(parsed["image/encoded"]).shape.as_list())
    labels.append(int(parsed["image/class/label"]))
    captions.append(parsed["image/caption"].numpy().decode())
json.dump({"found": found, "same": same, "shapes": shapes, "labels": labels, "captions": captions}, sys.stdout)
"""


def test_tensorflow_reads_it(tmp_path: Path) -> None:
    found = entries(7)
    found[4] = replace(found[4], label=(1 << 62) + 5)
    found[5] = replace(found[5], label=-5, image=found[5].image + bytes(300_000))
    shards = [tmp_path / f"shard-00000{k}.tfrecord" for k in range(3)]
    for path, part in zip(shards, (found[:4], [], found[4:]), strict=True):
        write(tmp_path, RECORDS, part, path.stem)
    read = json.loads(tensorflow(BY_TENSORFLOW, *shards))
    assert read["same"] == [True] * 7  # as protobuf's deterministic serialization has them
    assert read["shapes"] == [[8, 10, 3]] * 7
    assert read["labels"] == [-1 if one.label is None else one.label for one in found]
    assert read["captions"] == [(one.text or "").replace("\udcff", "\ufffd") for one in found]
    for features, one in zip(read["found"], found, strict=True):
        lacking = {
            "image/class/label": one.label,
            "image/class/text": one.meta.get("class"),
            "image/caption": one.text,
        }
        assert list(features) == [name for name in FEATURES if lacking.get(name, 0) is not None]
        assert bytes.fromhex(features["image/encoded"]) == one.image
        assert bytes.fromhex(features["image/format"]) == b"JPEG"
        assert bytes.fromhex(features["image/key"]).decode() == one.key
        assert bytes.fromhex(features["image/source"]).decode() == one.meta["uri"].replace(
            "\udce9", "\ufffd"
        )
        assert json.loads(bytes.fromhex(features["image/meta"])) == one.meta
        assert (features["image/height"], features["image/width"]) == (8, 10)
        if "class" in one.meta:
            assert bytes.fromhex(features["image/class/text"]).decode() == one.meta["class"]


def test_fastfeed_reads_it(tmp_path: Path) -> None:
    found = [one for one in entries(9) if one.label]
    found[1] = replace(found[1], image=found[1].image + bytes(3_000_000))  # lengths of four bytes
    write(tmp_path, RECORDS, found[:4], "shard-000000")
    write(tmp_path, RECORDS, [], "shard-000001")
    write(tmp_path, RECORDS, found[4:], "shard-000002")
    source = TFRecords(tmp_path, classes=["none", "a", "b"])
    assert source.read(range(6)) == [one.image for one in found]
    assert source.label(np.arange(6)).tolist() == [one.label for one in found]
    assert [source.uri(i).rpartition(":")[2] for i in range(6)] == [
        f"{one.key}.jpg" for one in found
    ]


def test_texts_of_classes_are_labels_too(tmp_path: Path) -> None:
    found = [one for one in entries(9) if one.label]
    write(tmp_path, RECORDS, found)
    source = TFRecords(tmp_path, label="image/class/text")
    assert source.classes == ("classé 1", "classé 2")


def test_the_index_is_that_of_tfrecord2idx(tmp_path: Path) -> None:
    """As nvidia.dali's tools/tfrecord2idx makes it: it walks along the lengths."""
    offsets = write(tmp_path, RECORDS, entries(5))
    content = (tmp_path / "shard-000000.tfrecord").read_bytes()
    lines, at = [], 0
    while at < len(content):
        length = 8 + 4 + int.from_bytes(content[at : at + 8], "little") + 4
        lines.append(f"{at} {length}\n")
        at += length
    assert files(tmp_path)["shard-000000.idx"].decode() == "".join(lines)
    assert offsets == [int(line.split()[0]) for line in lines]


def test_the_index_finds_records_behind_a_damaged_length(tmp_path: Path) -> None:
    found = [one for one in entries(9) if one.label]
    offsets = write(tmp_path, RECORDS, found)
    path, index = tmp_path / "shard-000000.tfrecord", tmp_path / "shard-000000.idx"
    content = bytearray(path.read_bytes())
    content[offsets[1] + 2] ^= 1
    path.write_bytes(content)
    os.utime(index, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1))
    assert TFRecords(path).read([len(found) - 1]) == [found[-1].image]


def test_an_example_beyond_two_gigabytes_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tfrecord, "_MAX_BYTES", 1000)
    with pytest.raises(
        ConfigError, match=r"an Example may have 1000 bytes, got .*: use smaller images"
    ):
        write(tmp_path, RECORDS, entries(1))
