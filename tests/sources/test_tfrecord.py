"""TFRecords: what is found in files of TensorFlow's and of others, under which names."""

from __future__ import annotations

import gzip
import os
import zlib

import fsspec
import google_crc32c
import numpy as np
import pytest
from helpers.photos import jpeg
from helpers.records import (
    checksum,
    entry,
    example,
    field,
    frame,
    record_folder,
    sample,
    varint,
    write,
)

from fastfeed.errors import ConfigError, SourceError
from fastfeed.faults import Failure
from fastfeed.sources.tfrecord.source import TFRecords


def records(tmp_path, *values, packed=True, **options) -> TFRecords:
    """A source of one file with these Examples."""
    return TFRecords(
        write(tmp_path / "a.tfrecord", (example(v, packed) for v in values)), **options
    )


def labels(source) -> list[int]:
    return source.label(np.arange(len(source))).tolist()


def test_reads_what_tensorflow_writes(tmp_path):
    train = pytest.importorskip(
        "tensorflow", reason="needs TensorFlow: pip install 'fastfeed[tf]'"
    ).train
    tf = pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'fastfeed[tf]'")
    images, paths = [jpeg(i, (40 + i, 60)) for i in range(12)], []
    for k in range(3):
        paths.append(str(tmp_path / f"train-{k:05d}-of-00003"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            for i in range(4 * k, 4 * k + 4):
                features = {
                    "image/encoded": train.Feature(bytes_list=train.BytesList(value=[images[i]])),
                    "image/class/label": train.Feature(int64_list=train.Int64List(value=[i * 77])),
                    "image/class/text": train.Feature(
                        bytes_list=train.BytesList(value=[f"class {i % 5}".encode()])
                    ),
                    "image/filename": train.Feature(
                        bytes_list=train.BytesList(value=[f"{i}.JPEG".encode()])
                    ),
                    "image/object/bbox/xmin": train.Feature(
                        float_list=train.FloatList(value=[0.5, 0.25])
                    ),
                }
                writer.write(
                    train.Example(features=train.Features(feature=features)).SerializeToString()
                )
    source = TFRecords(str(tmp_path / "train-*"))
    assert source.read(range(12)) == images
    assert labels(source) == [i * 77 for i in range(12)]
    assert source.bounds.tolist() == [0, 4, 8, 12]
    assert source.notes == []
    sizes = [len(record.numpy()) + 16 for record in tf.data.TFRecordDataset(paths)]
    assert source.sizes(np.arange(12)).tolist() == sizes
    assert [source.uri(i) for i in (0, 1, 4)] == [
        f"{paths[0]}#0:0.JPEG",
        f"{paths[0]}#{sizes[0]}:1.JPEG",
        f"{paths[1]}#0:4.JPEG",
    ]
    texts = TFRecords(str(tmp_path / "train-{00000..00002}-of-00003"), label="image/class/text")
    assert texts.classes == tuple(f"class {k}" for k in range(5))
    assert labels(texts) == [i % 5 for i in range(12)]
    assert texts.fingerprint != source.fingerprint


@pytest.mark.parametrize(
    "first", ["image/class/label", "image/encoded", "image/filename", "image/bbox"]
)
@pytest.mark.parametrize("packed", [True, False])
def test_features_in_any_order(tmp_path, first, packed):
    values = [{first: sample(i)[first]} | sample(i) for i in range(5)]
    source = records(tmp_path, *values, packed=packed)
    assert source.read(range(5)) == [sample(i)["image/encoded"] for i in range(5)]
    assert labels(source) == [0, 1, 2, 0, 1]
    assert [source.uri(i).rpartition(":")[2] for i in range(5)] == [
        f"{i:04d}.jpg" for i in range(5)
    ]
    assert str(source) == f"TFRecords({tmp_path / 'a.tfrecord'}): 5 images"


def test_other_names_and_no_labels(tmp_path):
    source = records(
        tmp_path,
        {"image_raw": b"abc", "y": b"cat"},
        {"image_raw": b"de", "y": b"ant"},
        image="image_raw",
        label="y",
    )
    assert source.read([1, 0]) == [b"de", b"abc"]
    assert (source.classes, labels(source)) == (("ant", "cat"), [1, 0])
    assert [source.uri(i).rpartition(":")[2] for i in (0, 1)] == ["000000", "000001"]
    given = TFRecords(
        tmp_path / "a.tfrecord", image="image_raw", label="y", classes=("dog", "cat", "ant")
    )
    assert labels(given) == [1, 2]
    without = TFRecords(tmp_path / "a.tfrecord", image="image_raw", label=None)
    assert (without.classes, labels(without), without.read([0])) == ((), [-1, -1], [b"abc"])
    with pytest.raises(SourceError, match="labels that are not in classes: ant"):
        TFRecords(tmp_path / "a.tfrecord", image="image_raw", label="y", classes=("cat",))


def test_a_name_that_is_none_gives_way_to_the_number(tmp_path):
    names = [b"x" * 256, [b"a", b"b"], 5, [], b""]
    source = records(
        tmp_path, *({"image/encoded": b"i", "image/filename": name} for name in names), label=None
    )
    assert [source.uri(i).rpartition(":")[2] for i in range(5)] == [f"{i:06d}" for i in range(5)]
    assert source.notes == []


def test_folders_and_lists(tmp_path):
    record_folder(tmp_path, (2, 3))
    write(tmp_path / "train-00000-of-00001", [example(sample(9))])
    assert len(TFRecords(tmp_path)) == 5
    both = TFRecords([tmp_path / "train-00000-of-00001", tmp_path / "s-001.tfrecord"])
    assert both.read([0, 3]) == [sample(9)["image/encoded"], sample(4)["image/encoded"]]


def test_a_missing_image_is_a_bad_sample(tmp_path):
    bad = {"image/class/label": 1, "image/format": b"JPEG"}
    several = {"image/encoded": [b"1", b"2"], "image/class/label": 1}
    source = records(tmp_path, sample(0), bad, several, sample(1) | {"image/encoded": b""})
    good, *failed = source.read(range(4))
    assert good == sample(0)["image/encoded"]
    at = [int(source.uri(i).rpartition("#")[2].partition(":")[0]) for i in range(4)]
    assert [(f.reason, f.detail, f.offset, f.stage) for f in failed] == [
        ("corrupt", "no image/encoded, only image/class/label, image/format", at[1], "read"),
        ("corrupt", "image/encoded: holds more than one value", at[2], "read"),
        ("empty", "", at[3], "read"),
    ]
    assert [note.rpartition("a.tfrecord: ")[2] for note in source.notes] == [
        f"no image at {at[1]}: no image/encoded, only image/class/label, image/format",
        f"no image at {at[2]}: image/encoded: holds more than one value",
    ]


def test_no_image_at_all_is_a_wrong_name(tmp_path):
    write(tmp_path / "a.tfrecord", [example({"jpg": b"x", "label": 1})] * 2)
    write(tmp_path / "b.tfrecord", [example({"jpg": b"y", "label": 1})])
    expected = (
        "TFRecords: no record has an image: no image/encoded, only jpg, label; pass image='the"
        " feature that holds it'"
    )
    for _ in range(2):  # the second time from the index
        with pytest.raises(SourceError) as caught:
            TFRecords(tmp_path, label="label")
        assert str(caught.value) == expected
    write(tmp_path / "c.tfrecord", [example({"image/encoded": b"z", "label": 1})])
    assert [
        isinstance(blob, Failure) for blob in TFRecords(tmp_path, label="label").read(range(4))
    ] == [True] * 3 + [False]


def test_no_label_at_all_is_a_wrong_name(tmp_path):
    with pytest.raises(SourceError) as caught:
        records(tmp_path, {"image/encoded": b"x", "cls": 3})
    assert (
        str(caught.value)
        == f"TFRecords: no sample has a label\n  {tmp_path / 'a.tfrecord'}: no label at 0: no"
        " image/class/label, only cls, image/encoded; pass label='the feature that holds it',"
        " or label=None for images without"
    )


def test_a_missing_label_is_a_bad_sample(tmp_path):
    values = [sample(0), {"image/encoded": b"x"}, sample(1) | {"image/class/label": [1, 2]}]
    source = records(tmp_path, *values, sample(2) | {"image/class/label": -5})
    assert labels(source) == [0, -1, -1, -1]
    assert [blob.reason for blob in source.read([1, 2, 3])] == ["label_missing"] * 3
    assert [note.rpartition(": ")[2] for note in source.notes] == [
        "no image/class/label, only image/encoded",
        "holds more than one value",
        "got -5, must be a number from 0 to 2**31 - 1 or a string",
    ]
    assert source.read([0]) == [sample(0)["image/encoded"]]


def test_notes_are_counted_when_they_are_many(tmp_path):
    source = records(tmp_path, sample(0), *[{"image/encoded": b"x"}] * 70)
    assert len(source.notes) == 51
    assert source.notes[-2].endswith("and 20 more")
    assert source.notes[-1].endswith("only image/encoded"), "how far the shard could be read"


def test_records_that_are_no_examples(tmp_path):
    path = tmp_path / "a.tfrecord"
    write(path, [example(sample(0)), b"\xff\xd8 an image, bare", example(sample(1))])
    source = TFRecords(path)
    assert source.read([0, 2]) == [sample(i)["image/encoded"] for i in (0, 1)]
    [failure] = source.read([1])
    assert (failure.reason, failure.detail) == ("corrupt", "wire type 7 at 0")
    assert len(source.notes) == 1 and "no tf.train.Example at" in source.notes[0]
    write(path, [b"\xff\xd8 an image, bare"])
    with pytest.raises(
        SourceError, match=r"no sample has a label\n.* no record has an image: wire type 7"
    ):
        TFRecords(path)
    with pytest.raises(SourceError, match="no record has an image: wire type 7"):
        TFRecords(path, label=None)


@pytest.mark.parametrize(("packing", "name"), [(gzip.compress, "gzip"), (zlib.compress, "zlib")])
def test_compressed_files_are_refused(tmp_path, packing, name):
    path = write(tmp_path / "a.tfrecord", [example(sample(0))])
    path.write_bytes(packing(path.read_bytes()))
    with pytest.raises(SourceError) as caught:
        TFRecords(path)
    assert (
        str(caught.value)
        == f"{path} is compressed with {name}: records in it cannot be found without unpacking all"
        " before them; write it without compression once (images do not shrink any further)"
    )


def test_a_record_that_begins_like_a_compressed_file_is_read(tmp_path):
    length = 0x9C78 - len(example({"image/encoded": bytes(0x9C00)})) + 0x9C00
    source = records(tmp_path, {"image/encoded": bytes(length)}, label=None)
    assert (tmp_path / "a.tfrecord").read_bytes()[:2] == b"\x78\x9c"
    assert source.read([0]) == [bytes(length)]


def test_files_that_are_none(tmp_path):
    path = tmp_path / "a.tfrecord"
    for content, why in (
        (b"", "empty: no records"),
        (b"<html>404</html>", "no TFRecord file: wrong checksum at 0"),
        (b"abc", "cut off at 3: the record at 0 is incomplete"),
    ):
        path.write_bytes(content)
        with pytest.raises(
            SourceError, match=f"no images in 1 shards, the first is .*\n  .*: {why}"
        ):
            TFRecords(path)
    record_folder(tmp_path, (2,))
    assert len(TFRecords(tmp_path)) == 2


def test_a_length_that_no_file_has_takes_no_memory(tmp_path):
    good = frame(example(sample(0)))
    for length in (2**60, 2**64 - 1, 2**31, 2**31 - 17, 1000):
        path, size = tmp_path / f"{length}.tfrecord", length.to_bytes(8, "little")
        path.write_bytes(good + size + checksum(size) + bytes(100))
        source = TFRecords(path)
        cut = length + 16 < 2**31
        assert len(source) == 1 + cut
        assert source.notes[-1].endswith(
            f"cut off at {path.stat().st_size}: the record at {len(good)} is incomplete"
        )
        assert [blob.reason for blob in source.read(range(1, len(source)))] == ["truncated"] * cut


def test_images_are_skipped_while_indexing(tmp_path, monkeypatch):
    big = os.urandom(4 << 20)
    path = write(tmp_path / "a.tfrecord", (example(sample(i, big)) for i in range(6)))
    read, pread = [], os.pread
    monkeypatch.setattr(
        os, "pread", lambda fd, count, at: read.append(count) or pread(fd, count, at)
    )
    source = TFRecords(path)
    assert (
        sum(read) < path.stat().st_size * 0.6
    )  # of each label that was not there before, the record is checked
    assert source.read([5]) == [big]


def test_remote_files_and_one_that_was_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTFEED_CACHE", str(tmp_path))
    memory = fsspec.filesystem("memory")
    data = b"".join(frame(example(sample(i))) for i in range(4))
    memory.pipe("/bucket/train-00000-of-00001", data)
    source = TFRecords("memory://bucket/train-00000-of-00001")
    assert source.remote
    assert source.read([3, 0]) == [sample(i)["image/encoded"] for i in (3, 0)]
    other = sample(1)["image/encoded"][:-2] + b"?!"
    memory.pipe(
        "/bucket/train-00000-of-00001",
        data.replace(frame(example(sample(1))), frame(example(sample(1, other)))),
    )
    [failure] = source.read([1])
    assert (failure.reason, failure.detail) == (
        "changed",
        "the record has changed since it was indexed",
    )
    memory.pipe("/bucket/train-00000-of-00001", data[:40] + b"!" + data[41:])
    assert [blob.reason if isinstance(blob, Failure) else "" for blob in source.read(range(4))] == [
        "corrupt",
        "",
        "",
        "",
    ]


@pytest.mark.parametrize(
    "options", [{"image": ""}, {"image": None}, {"image": "x" * 1001}, {"label": ""}]
)
def test_names_are_checked(tmp_path, options):
    with pytest.raises(
        ConfigError, match=r"^TFRecords: (image|label) must be the name of a feature, got "
    ):
        TFRecords(tmp_path, **options)


def test_slow_checksums_are_said(tmp_path, monkeypatch):
    record_folder(tmp_path, (2,))
    monkeypatch.setattr(google_crc32c, "implementation", "python")
    with pytest.warns(RuntimeWarning, match="pip install --force-reinstall google-crc32c"):
        TFRecords(tmp_path)


def test_entries_that_are_odd_are_read_like_the_others(tmp_path):
    late = field(1, field(2, field(1, field(1, b"late"))) + field(1, b"image/encoded"))
    label = entry("image/class/label", 2)
    path = write(
        tmp_path / "a.tfrecord",
        [field(1, label + late), field(1, late) + field(1, label) + varint(72) + b"\0"],
    )
    source = TFRecords(path)
    assert source.read([0, 1]) == [b"late", b"late"]
    assert labels(source) == [2, 2]
