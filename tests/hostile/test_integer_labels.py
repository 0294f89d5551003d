"""Labels that are integers: ids from a database, indices of classes, and columns that are
neither.
"""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from helpers.photos import jpeg
from helpers.records import example, frame
from helpers.shards import tar_of
from helpers.tables import FORMATS, write

import fastfeed as ff
from fastfeed.errors import ConfigError, SourceError

IDS = [55, 7, 1000007, 7]


def _table(folder, format, labels, name="t"):
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(len(labels)):
        (folder / f"{i}.jpg").write_bytes(jpeg(i, (16, 16)))
    return write(
        folder / f"{name}.{format}",
        {"path": [f"{i}.jpg" for i in range(len(labels))], "landmark_id": labels},
    )


def _labels(source):
    return source.label(np.arange(len(source))).tolist()


@pytest.mark.parametrize("format", FORMATS)
def test_ids_of_landmarks_become_classes(tmp_path, format):
    train = ff.Table(_table(tmp_path, format, IDS), image="path", label="landmark_id")
    assert train.classes == ("7", "55", "1000007")
    assert _labels(train) == [1, 0, 2, 0]
    with ff.Feed(train, [ff.Resize((8, 8))], batch=4, shuffle=False, threads=1) as feed:
        assert next(iter(feed)).labels.tolist() == [1, 0, 2, 0]

    table = _table(tmp_path / "val", format, [1000007])
    val = ff.Table(table, image="path", label="landmark_id", classes=train.classes)
    assert (_labels(val), val.classes) == ([2], train.classes)
    numbers = ff.Table(table, image="path", label="landmark_id", classes=[7, np.int64(1000007)])
    assert (_labels(numbers), numbers.classes) == ([1], ("7", "1000007"))


@pytest.mark.parametrize("format", FORMATS)
def test_an_index_above_all_classes_is_refused(tmp_path, format):
    options = {"image": "path", "label": "landmark_id"}
    table = _table(tmp_path, format, [1, 1 << 24])
    with pytest.raises(SourceError, match=r"class numbers below 16,777,216, got 16777216; pass"):
        ff.Table(table, label_kind="index", **options)
    assert ff.Table(table, **options).classes == ("1", "16777216")


@pytest.mark.parametrize("format", FORMATS)
def test_indices_are_checked_against_the_classes(tmp_path, format):
    options = {"image": "path", "label": "landmark_id", "label_kind": "index"}
    table = _table(tmp_path, format, [2, 0, -1, 2])
    plain = ff.Table(table, **options)
    assert (_labels(plain), plain.classes) == ([2, 0, -1, 2], ())
    named = ff.Table(table, classes=["ant", "bee", "cat"], **options)
    assert (_labels(named), named.classes) == ([2, 0, -1, 2], ("ant", "bee", "cat"))
    with pytest.raises(SourceError, match=r"row 0: label 2, but there are 2 classes"):
        ff.Table(table, classes=["ant", "bee"], **options)
    with pytest.raises(
        SourceError, match=r"row 1: column 'landmark_id' must hold whole numbers >= 0"
    ):
        ff.Table(_table(tmp_path / "low", format, [0, -2]), **options)


@pytest.mark.parametrize("format", FORMATS)
def test_names_for_integers_are_refused_with_what_to_pass(tmp_path, format):
    table = _table(tmp_path, format, [0, 1])
    with pytest.raises(SourceError) as error:
        ff.Table(table, image="path", label="landmark_id", classes=["cat", "dog"])
    assert (
        str(error.value)
        == "Table: labels that are not in classes: 0, 1; labels are integers and classes are"
        " names: "
        "pass label_kind='index' if the integers count the classes from 0"
    )


@pytest.mark.parametrize("classes", ["owl", 3, [1.5], [None], ["a", "a"], [True]])
def test_classes_of_the_wrong_kind(tmp_path, classes):
    with pytest.raises(
        ConfigError, match=r"^Table: classes must be a list of names, each once, got "
    ):
        ff.Table(
            _table(tmp_path, "csv", [0, 1]), image="path", label="landmark_id", classes=classes
        )


def test_a_kind_that_does_not_exist(tmp_path):
    with pytest.raises(ConfigError) as error:
        ff.Table(
            _table(tmp_path, "csv", [0, 1]), image="path", label="landmark_id", label_kind="ids"
        )
    assert (
        str(error.value)
        == "Table: label_kind must be one of 'name' (integers are names of classes), 'index' (they"
        " count the classes from 0), 'value' (numbers), 'multi' (several classes of one sample),"
        " 'text' (texts), 'none' (no labels), got 'ids'"
    )


@pytest.mark.parametrize("format", FORMATS)
def test_not_a_number_is_an_error_with_its_row(tmp_path, format):
    values = [1.0, 2.0, math.nan] if format != "parquet" else pa.array([1.0, 2.0, math.nan])
    with pytest.raises(
        SourceError, match=r"row 2: column 'landmark_id' must hold whole numbers .*, got '?nan"
    ):
        ff.Table(_table(tmp_path, format, values), image="path", label="landmark_id")


@pytest.mark.parametrize("format", FORMATS)
def test_whole_floats_are_integers_and_null_is_no_label(tmp_path, format):
    source = ff.Table(
        _table(tmp_path, format, [7.0, None, 55.0]), image="path", label="landmark_id"
    )
    assert (_labels(source), source.classes) == ([0, -1, 1], ("7", "55"))


def _tar(path, *labels, extension="json"):
    members = []
    for i, label in enumerate(labels):
        text = (
            json.dumps({"landmark_id": label, "label": label})
            if extension == "json"
            else str(label)
        )
        members += [(f"{i}.jpg", jpeg(i, (16, 16))), (f"{i}.{extension}", text.encode())]
    path.write_bytes(tar_of(members))
    return path


def test_a_field_of_json_in_tar_shards(tmp_path):
    train = ff.TarShards(_tar(tmp_path / "a.tar", *IDS), label="json:landmark_id")
    assert (_labels(train), train.classes) == ([1, 0, 2, 0], ("7", "55", "1000007"))
    val = ff.TarShards(
        _tar(tmp_path / "v.tar", 1000007), label="json:landmark_id", classes=train.classes
    )
    assert (_labels(val), val.classes) == ([2], train.classes)
    raw = ff.TarShards(tmp_path / "a.tar", label="json:landmark_id", label_kind="index")
    assert (_labels(raw), raw.classes) == (IDS, ())
    with pytest.raises(SourceError, match=r"not in classes: 7, 55, 1000007; .* label_kind='index'"):
        ff.TarShards(tmp_path / "a.tar", label="json:landmark_id", classes=["ant", "bee"])


def test_whole_floats_in_json(tmp_path):
    source = ff.TarShards(_tar(tmp_path / "a.tar", 55.0, 7, math.nan), label="json:landmark_id")
    assert (_labels(source), source.classes) == ([1, 0, -1], ("7", "55"))
    assert "got nan" in source.notes[0]


def test_cls_members_stay_indices(tmp_path):
    shard = _tar(tmp_path / "a.tar", 5, 2, 9, extension="cls")
    assert (_labels(ff.TarShards(shard)), ff.TarShards(shard).classes) == ([5, 2, 9], ())
    named = ff.TarShards(shard, label_kind="name")
    assert (_labels(named), named.classes) == ([1, 0, 2], ("2", "5", "9"))
    _tar(tmp_path / "j.tar", 5, 2, 9)
    assert _labels(ff.TarShards(tmp_path / "j.tar", label="json:label")) == [5, 2, 9]


def test_features_of_tfrecords(tmp_path):
    path = tmp_path / "a.tfrecord"
    features = [
        {"image/encoded": jpeg(0, (16, 16)), "image/class/label": i, "landmark": i} for i in IDS
    ]
    path.write_bytes(b"".join(frame(example(f)) for f in features))
    index = ff.TFRecords(path)
    assert (_labels(index), index.classes) == (IDS, ())
    named = ff.TFRecords(path, label="landmark")
    assert (_labels(named), named.classes) == ([1, 0, 2, 0], ("7", "55", "1000007"))
    assert _labels(ff.TFRecords(path, label="landmark", label_kind="index")) == IDS


def test_training_on_ids_has_a_loss_that_is_a_number(tmp_path):
    source = ff.Table(_table(tmp_path, "csv", IDS), image="path", label="landmark_id")
    with ff.Feed(
        source, [ff.Resize((8, 8)), ff.OneHot()], batch=4, shuffle=False, threads=1
    ) as feed:
        labels = next(iter(feed)).labels
    assert labels.shape == (4, 3)
    assert labels.argmax(1).tolist() == [1, 0, 2, 0]
    assert io.StringIO(str(source)).read().endswith("4 images of 3 classes")
