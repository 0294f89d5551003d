"""Folders of TensorFlow Datasets: splits, parts, features and classes.

Compared with tensorflow_datasets 4.9.10 by hand: the same samples of each split, in its order.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import jpeg
from helpers.records import tfds_folder
from helpers.remotes import uploaded

import fastfeed as ff
from fastfeed.errors import ConfigError, SourceError

SPLITS = {"train": (8, 7, 8), "test": (4,)}


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tfds_folder(tmp_path_factory.mktemp("tfds") / "pets" / "1.0.0", SPLITS)


def numbers(source: Any) -> list[int]:
    """Photographs of a source in their order."""
    columns = source.columns(np.arange(len(source)))
    return (columns["meta/id"] // 10).tolist()


PARTS = {  # as tfds.load reads them
    "train": range(23),
    "test": range(23, 27),
    "train[:80%]": range(18),
    "train[80%:]": range(18, 23),
    "train[10%:33.3%]": range(2, 8),
    "train[3:-2]": range(3, 21),
    "train[-10%:]": range(21, 23),
    "test[:50%] + train": [23, 24, *range(23)],
    "all": range(27),
}


@pytest.mark.parametrize("split", PARTS)
def test_parts_of_splits_are_those_of_tfds(pets: Path, split: str):
    source = ff.TFRecords.from_tfds(pets, split, columns=["caption", "meta/id"])
    expected = list(PARTS[split])
    assert numbers(source) == expected
    assert source.label(np.arange(len(source))).tolist() == [i % 2 for i in expected]
    assert source.read([1]) == [jpeg(expected[1], (24, 32))]
    assert source.classes == ("cat", "dog")
    assert source.columns(np.array([0]))["caption"].tolist() == [f"no {expected[0]}"]


def test_another_label_and_none(pets: Path, tmp_path: Path):
    ids = np.arange(4)
    source = ff.TFRecords.from_tfds(pets, "test", label="meta/id", label_kind="value")
    assert source.label(ids).ravel().tolist() == [230, 240, 250, 260]
    assert ff.TFRecords.from_tfds(pets, "test", label=None).classes == ()
    plain = tfds_folder(tmp_path / "plain", {"train": (2,)}, {"image": "Image"})
    assert ff.TFRecords.from_tfds(plain).label(ids[:2]).tolist() == [-1, -1]
    unnamed = tfds_folder(tmp_path / "unnamed", {"train": (3,)}, names=())
    assert ff.TFRecords.from_tfds(unnamed).classes == ("0", "1")


def test_of_several_features_the_supervised_one_is_taken(tmp_path: Path):
    features = {"image": "Image", "label": "ClassLabel", "meta/id": "ClassLabel"}
    keys = {"tuple": {"items": [{"featureKey": "image"}, {"featureKey": "label"}]}}
    chosen = tfds_folder(tmp_path / "a", {"train": (3,)}, features, info={"supervisedKeys": keys})
    assert ff.TFRecords.from_tfds(chosen).classes == ("cat", "dog")
    several = tfds_folder(tmp_path / "b", {"train": (3,)}, features)
    with pytest.raises(ConfigError, match="has several labels; it has label, meta/id"):
        ff.TFRecords.from_tfds(several)
    assert len(ff.TFRecords.from_tfds(several, label="label")) == 3


def test_features_in_the_form_of_old_versions(tmp_path: Path):
    root = tfds_folder(tmp_path / "old", {"train": (3,)})
    kinds = {"image": "image_feature.Image", "label": "class_label_feature.ClassLabel"}
    content = {name: {"type": f"tfds.{kind}", "content": "{}"} for name, kind in kinds.items()}
    features = {"type": "tfds.features_dict.FeaturesDict", "content": content}
    (root / "features.json").write_text(json.dumps(features))
    assert ff.TFRecords.from_tfds(root).classes == ("cat", "dog")


def test_a_remote_folder(pets: Path):
    source = ff.TFRecords.from_tfds(uploaded(pets), "test", columns=["meta/id"])
    assert numbers(source) == [23, 24, 25, 26] and source.classes == ("cat", "dog")


def test_a_feed_reads_a_part(pets: Path):
    source = ff.TFRecords.from_tfds(pets, "train[:10]")
    feed = ff.Feed(source, [ff.Resize((8, 8))], batch=5, seed=1)
    assert sorted(i for batch in feed for i in batch.ids.tolist()) == list(range(10))


WRONG = [
    ("val", 'split must be one of train, test, parts such as "train.:80%."'),
    ("train[1shard:]", r"joined by .*, got 'train\[1shard:\]'"),
    ("train[:24]", r"split must be within its 23 samples, got 'train\[:24\]'"),
    ("train[2.7:]", r"split must be samples, or shares like .2.5%., got .train\[2.7:\]"),
    ("train[9:9]", "split must be a part of 23 with samples"),
    ("train+train[:3]", "ids must be different"),
]


@pytest.mark.parametrize(("split", "text"), WRONG)
def test_wrong_splits_say_what_there_is(pets: Path, split: str, text: str):
    with pytest.raises(ConfigError, match=text):
        ff.TFRecords.from_tfds(pets, split)


DAMAGED = [
    (
        {"fileFormat": "array_record"},
        'has files of array_record; prepare .* file_format="tfrecord"',
    ),
    ({"splits": [{"name": "train"}]}, "other JSON files than TensorFlow Datasets writes: KeyError"),
    (
        {"splits": [{"name": "t", "shardLengths": ["1"], "filepathTemplate": "../{SPLIT}"}]},
        "ValueError ../t is in another folder",
    ),
    (
        {"splits": [{"name": "train", "shardLengths": ["5"]}]},
        "have 3 samples, 5 in dataset_info.json",
    ),
]


@pytest.mark.parametrize(("info", "text"), DAMAGED, ids=str)
def test_what_is_damaged_is_named(tmp_path: Path, info: dict[str, Any], text: str):
    root = tfds_folder(tmp_path / "pets", {"train": (3,)}, info=info)
    with pytest.raises(SourceError, match=text):
        ff.TFRecords.from_tfds(root, "train[:2]")


def test_other_folders_are_refused_with_what_to_pass(pets: Path, tmp_path: Path):
    with pytest.raises(SourceError, match="pass the folder of a version, as data_dir"):
        ff.TFRecords.from_tfds(pets.parent)
    (tmp_path / "dataset_info.json").write_text("[")
    with pytest.raises(SourceError, match=r"dataset_info\.json is damaged"):
        ff.TFRecords.from_tfds(tmp_path)
    captions = tfds_folder(tmp_path / "captions", {"train": (1,)}, {"caption": "Text"})
    with pytest.raises(ConfigError, match="has no images; it has caption"):
        ff.TFRecords.from_tfds(captions)
