"""Labels that are no class numbers, in every source that reads labels from data."""

import pickle

import numpy as np
import pytest
from helpers.records import example
from helpers.records import write as write_records
from helpers.targets import (
    CAPTIONS,
    COUNT,
    FLAGS,
    FOLDERS,
    IMAGES,
    LABELS,
    MATRICES,
    TAGS,
    WANTED,
    npy,
    record_folder,
    tar_folder,
)

import fastfeed as ff
from fastfeed.errors import ConfigError, SourceError
from fastfeed.sources.shards.index import load
from fastfeed.storage.shard_files import LazyBytes

CASES = [(name, target) for name, targets in LABELS.items() for target in targets]


def opened(name, root, target, **more):
    label, kind = LABELS[name][target]
    made = root / name
    folder = made if made.exists() else FOLDERS[name](made)
    return getattr(ff, name)(folder, label=label, label_kind=kind, **more)


def reasons(source):
    """The detail of each sample that is bad, by id."""
    entries = enumerate(source.read(range(len(source))))
    return {i: entry.reason for i, entry in entries if isinstance(entry, ff.Failure)}


@pytest.mark.parametrize(("name", "target"), CASES)
def test_labels_are_what_the_data_hold(tmp_path, name, target):
    for _ in range(2):  # scanned, then from the saved index
        source = opened(name, tmp_path, target)
        found = source.label(np.arange(COUNT))
        np.testing.assert_array_equal(found, WANTED[target])
        assert found.dtype == WANTED[target].dtype and not source.notes and not reasons(source)
        assert source.label_spec.shape == found.shape[1:]
        ids = np.array([7, 0, 7])
        np.testing.assert_array_equal(source.label(ids), WANTED[target][ids])
        assert source.label(np.empty(0, np.int64)).shape == (0, *found.shape[1:])
    names = {"names": ("cat", "dog", "éléphant"), "flags": FLAGS}.get(target, ())
    assert source.classes == names
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(again.label(np.arange(COUNT)), found)
    assert again.fingerprint == source.fingerprint


def test_a_list_of_floats_is_a_vector(tmp_path):
    source = ff.TFRecords(record_folder(tmp_path), label="vector", label_kind="value")
    flat = np.array(MATRICES, np.float32).reshape(COUNT, 6)
    np.testing.assert_array_equal(source.label(np.arange(COUNT)), flat)


def test_one_name_in_a_list_keeps_its_column(tmp_path):
    source = ff.TFRecords(record_folder(tmp_path), label=["price"], label_kind="value")
    np.testing.assert_array_equal(source.label(np.arange(COUNT))[:, 0], WANTED["number"])


def test_classes_order_the_columns_of_a_multi_hot_label(tmp_path):
    names = ("dog", "wolf", "éléphant", "cat")
    source = opened("TarShards", tmp_path, "names", classes=names)
    wanted = np.array([[name in tags for name in names] for tags in TAGS], np.float32)
    np.testing.assert_array_equal(source.label(np.arange(COUNT)), wanted)
    with pytest.raises(SourceError, match="labels that are not in classes: éléphant"):
        opened("TarShards", tmp_path, "names", classes=("cat", "dog"))


BAD = [
    ("price", "value", "price", b"nan", "must be finite as float32"),
    ("price", "value", "price", b"1e39", "must be finite as float32"),
    ("price", "value", "price", b"dear", "could not convert string to float"),
    ("price", "value", "price", None, "no .price for 0003.jpg"),
    ("json:price", "value", "json", b'{"price": null}', "must be a number"),
    ("json:price", "value", "json", b'{"price": [1, [2]]}', "must be a number"),
    ("json:price", "value", "json", b'{"cost": 3}', "no field 'price'"),
    ("npy", "value", "npy", npy(np.ones(6)), "1 labels have another shape than [2, 3], the first"),
    ("npy", "value", "npy", npy(np.array(["a"])), "must be a number"),
    ("npy", "value", "npy", b"\x93NUMPY", "reading magic string"),
    ("json:tags", "multi", "json", b'{"tags": "cat"}', "must be a list of names"),
    ("json:tags", "multi", "json", b'{"tags": ["cat", null]}', "must be a list of names"),
    ("json:tags", "multi", "json", b'{"tags": ["cat\\u0000"]}', "must be a list of names"),
    (["json:cat", "json:dog"], "multi", "json", b'{"cat": 1, "dog": 2}', "must be 0 or 1"),
    (["json:cat", "json:dog"], "multi", "json", b'{"cat": 1}', "no field 'dog'"),
    ("txt", "text", "txt", b"caf\xe9", "can't decode byte 0xe9"),
    ("txt", "text", "txt", b"", "must be a text"),
]


@pytest.mark.parametrize(("label", "kind", "member", "data", "note"), BAD)
def test_a_label_that_does_not_fit_is_a_bad_sample(tmp_path, label, kind, member, data, note):
    folder = tar_folder(tmp_path, {3: {member: data}})
    source = ff.TarShards(folder, label=label, label_kind=kind)
    assert reasons(source) == {3: "label_missing"}
    assert len(source.notes) == 1 and note in source.notes[0], source.notes
    whole = ff.TarShards(tar_folder(tmp_path / "whole"), label=label, label_kind=kind)
    good = np.delete(np.arange(COUNT), 3)
    np.testing.assert_array_equal(source.label(good), whole.label(good))


def test_records_without_a_label_are_bad_samples(tmp_path):
    changes = {2: {"price": None}, 4: {"price": [1.0, 2.0]}, 5: {"price": b"7"}}
    folder = record_folder(tmp_path, changes)
    source = ff.TFRecords(folder, label="price", label_kind="value")
    assert reasons(source) == dict.fromkeys((2, 4, 5), "label_missing")
    assert any("4" in note and "another shape than []" in note for note in source.notes)


def test_a_damaged_record_makes_no_class(tmp_path):
    data = bytearray(record_folder(tmp_path).joinpath("s-1.tfrecord").read_bytes())
    at = data.index("éléphant".encode())
    data[at] ^= 1
    write_records(
        tmp_path / "s-0.tfrecord", [example({"image/encoded": IMAGES[0], "tags": [b"a"]})]
    )
    (tmp_path / "s-1.tfrecord").write_bytes(data)
    (tmp_path / "s-2.tfrecord").unlink()
    source = ff.TFRecords(tmp_path, label="tags", label_kind="multi")
    assert source.classes == ("a",)
    assert reasons(source) == {1: "corrupt"}


def test_none_has_no_labels(tmp_path):
    source = ff.TarShards(tar_folder(tmp_path), label_kind="none")
    assert source.label(np.arange(3)).tolist() == [-1] * 3 and not source.classes
    assert source.label_spec == ((), "int64") and not reasons(source)


def test_texts_stay_in_the_file_of_the_index(tmp_path):
    source = opened("TarShards", tmp_path, "text")
    index = load(source.index_file)
    assert isinstance(index.values, LazyBytes) and len(index.values) == len(
        "".join(CAPTIONS).encode()
    )
    other = opened("TarShards", tmp_path, "names")
    assert other.index_file != source.index_file


def test_an_index_whose_labels_do_not_fit_is_built_again(tmp_path):
    source = opened("TarShards", tmp_path, "text")
    path = source.index_file
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert load(path) is None
    np.testing.assert_array_equal(
        opened("TarShards", tmp_path, "text").label(np.arange(COUNT)), WANTED["text"]
    )
    assert path.read_bytes() == whole


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize(
    ("label", "kind", "text"),
    [
        ("price", "values", "label_kind must be one of 'name'"),
        (["price", "age"], None, "pass label_kind='value', or 'multi' for columns of 0 and 1"),
        (["price", "age"], "text", "several labels are numbers or classes of a sample"),
        (["price", "price"], "value", "label must be a name, several names, each once, or None"),
        ([], "value", "label must be a name, several names, each once, or None, got \\[\\]"),
        (5, None, "label must be a name, several names, each once, or None, got 5"),
    ],
)
def test_labels_that_cannot_be_meant(tmp_path, name, label, kind, text):
    with pytest.raises(ConfigError, match=f"^{name}: .*{text}"):
        getattr(ff, name)(tmp_path, label=label, label_kind=kind)
