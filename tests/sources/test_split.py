"""Splits and folds: sizes, sides that stay, groups that stay together, the files that Keras takes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.feeds import NUMBERS
from helpers.photos import folder
from helpers.remotes import uploaded
from helpers.shards import shard_folder
from helpers.tables import write

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.sources.splitting import (
    hashed_fractions,
    sides_by_class,
    sides_by_group,
    sides_by_hash,
)

HALVES = {"train": 0.5, "val": 0.5}
PEOPLE = ["ann"] * 20 + ["bob"] * 15 + ["cy"] * 10 + ["di"] * 5


def arrays(labels: Any = None) -> ff.Arrays:
    return ff.Arrays(NUMBERS, np.arange(50) % 5 if labels is None else np.asarray(labels))


def images(source: Any) -> list[int]:
    """The numbers of its images."""
    return [int(image[0, 0, 0]) for image in source.read(range(len(source)))]


def table(root: Path, **columns: Any) -> ff.Table:
    """A table of 50 rows; images are not read."""
    values = {"path": [f"{i}.jpg" for i in range(50)], **columns}
    return ff.Table(write(root / "t.jsonl", values), image="path", columns=list(columns))


def names(source: Any) -> set[str]:
    return set(source.sample_names(np.arange(len(source))))


def test_every_sample_is_on_one_side():
    for by in ("hash", "random", "stratified"):
        sides = ff.split(arrays(), {"a": 0.5, "b": 0.3, "c": 0.2}, by=by, seed=3)
        assert list(sides) == ["a", "b", "c"]
        assert sorted(image for side in sides.values() for image in images(side)) == list(range(50))


def test_hashed_sides_stay_when_data_is_added_and_moved(tmp_path: Path):
    root = folder(tmp_path / "one", {"a": 12, "b": 12}, (8, 8))
    before = ff.split(ff.ImageFolder(root), HALVES)
    shutil.copytree(root, tmp_path / "moved")
    for name in ("a/0000x.jpg", "b/zz.jpg", "a/00.jpg"):
        shutil.copy(root / "a" / "0000.jpg", tmp_path / "moved" / name)
    for moved in (tmp_path / "moved", uploaded(tmp_path / "moved")):
        after = ff.split(ff.ImageFolder(moved), HALVES)
        assert all(names(before[side]) <= names(after[side]) for side in HALVES)
        assert len(after["train"]) + len(after["val"]) == 27


def test_hashed_sides_of_shards_stay_when_shards_are_added(tmp_path: Path):
    before = ff.split(ff.TarShards(shard_folder(tmp_path / "one", (6, 6))), HALVES)
    after = ff.split(ff.TarShards(shard_folder(tmp_path / "two", (6, 6, 6))), HALVES)
    assert all(names(before[side]) <= names(after[side]) for side in HALVES)
    assert min(names(before["train"])).startswith("s-000.tar:00000")


def test_a_side_that_grows_keeps_its_samples():
    fractions = hashed_fractions(map(str, range(5000)), seed=1)
    small, large = (sides_by_hash(fractions, (share, 1 - share)) == 0 for share in (0.7, 0.8))
    assert np.all(large[small])
    assert abs(small.sum() - 3500) < 4 * np.sqrt(5000 * 0.21)
    other = sides_by_hash(hashed_fractions(map(str, range(5000)), seed=2), (0.7, 0.3)) == 0
    assert 0.5 < np.mean(other == small) < 0.65


def test_sides_of_a_seed_are_fixed():
    assert hashed_fractions(["a/0.jpg", "ä.jpg"], 0) == pytest.approx(
        [0.704875, 0.673002], abs=1e-6
    )


def test_stratified_is_exact_to_one_sample_per_class():
    rng = np.random.default_rng(0)
    for shares in [(0.8, 0.2), (0.7, 0.2, 0.1), (1 / 3, 1 / 3, 1 / 3), (0.29, 0.71)]:
        classes = rng.integers(0, 40, 1000) ** 2
        sides = sides_by_class(classes, rng.random(1000), shares)
        for value in np.unique(classes):
            counts = np.bincount(sides[classes == value], minlength=len(shares))
            assert np.all(np.abs(counts - np.array(shares) * counts.sum()) < 1)
        assert np.all(np.abs(np.bincount(sides) - np.array(shares) * 1000) < 2)


def test_stratified_keeps_the_shares_of_sets_of_classes():
    labels = [[[], ["a"], ["b"], ["a", "b"], ["b", "c"]][i % 5] for i in range(50)]
    source = ff.Files([f"{i}.jpg" for i in range(50)], labels, label_kind="multi")
    for side in ff.split(source, HALVES, by="stratified").values():
        sets = side.label(np.arange(25)) @ [1, 2, 4]
        assert np.bincount(sets.astype(int), minlength=8).tolist() == [5, 5, 5, 5, 0, 0, 5, 0]


def test_rare_classes_share_the_small_side():
    sides = sides_by_class(
        np.repeat(np.arange(100), 3), np.random.default_rng(0).random(300), (0.9, 0.1)
    )
    assert np.count_nonzero(sides) == 30


def test_exact_shares_have_no_error_of_floats():
    sides = ff.split(arrays(), {"train": 0.58, "val": 0.42}, by="random")
    assert len(sides["train"]) == 29
    counts = sides_by_class(np.repeat([0, 1, 2], 100), np.linspace(0, 0.9, 300), (0.29, 0.71))
    assert [np.count_nonzero(part == 0) for part in np.split(counts, 3)] == [29, 29, 29]


def test_groups_stay_together(tmp_path: Path):
    source = table(tmp_path, photographer=np.random.default_rng(0).permutation(PEOPLE).tolist())
    sides = ff.split(source, {"train": 0.7, "val": 0.3}, by="group:photographer")
    people = {
        name: set(side.columns(np.arange(len(side)))["photographer"])
        for name, side in sides.items()
    }
    assert not people["train"] & people["val"]
    assert (len(sides["train"]), len(sides["val"])) == (35, 15)


def test_groups_are_numbers_too(tmp_path: Path):
    sides = ff.split(
        table(tmp_path, year=[1990 + i % 10 for i in range(50)]), HALVES, by="group:year"
    )
    assert len(sides["val"]) == 25


def test_groups_are_within_the_largest_group_of_their_share():
    rng = np.random.default_rng(0)
    for _ in range(20):
        groups = np.unique(rng.zipf(1.6, 400).clip(max=60), return_inverse=True)[1]
        sizes = np.bincount(groups)
        sides = sides_by_group(groups, sizes, (0.6, 0.4), rng.random(len(sizes)))
        assert abs(np.count_nonzero(sides[groups] == 0) - 240) <= sizes.max()


def test_folds_validate_each_sample_once():
    source = arrays()
    for by in ("hash", "random", "stratified"):
        folds = ff.folds(source, 5, by=by, seed=1)
        assert sorted(image for _, val in folds for image in images(val)) == list(range(50))
        for train, val in folds:
            assert sorted(images(train) + images(val)) == list(range(50))
    _, val = ff.folds(source, 5, by="stratified")[2]
    assert np.bincount(val.label(np.arange(10))).tolist() == [2] * 5
    assert str(val).startswith("10 images (fold 3 of 5, stratified) of Arrays: 50 images")


def test_folds_in_order_are_those_of_scikit_learn_without_shuffling():
    """Sizes n // k, the first n % k of them one larger, as its documentation defines them."""
    for source in (arrays(), ff.take(arrays(), 47), ff.take(arrays(), 7)):
        parts = np.array_split(np.arange(len(source)), 7)
        folds = ff.folds(source, 7, by="order", seed=3)
        assert [images(val) for _, val in folds] == [part.tolist() for part in parts]
        same = source.folds(7, shuffle=False)
        assert [images(val) for _, val in same] == [part.tolist() for part in parts]
    train = ff.split(arrays(), {"train": 0.8, "val": 0.2}, by="order")["train"]
    assert images(train) == list(range(40))
    assert str(train).startswith("40 images (train, in order) of Arrays: 50 images")


def keras_folder(root: Path) -> Path:
    folder(root, {"b": 9, "a": 7, "c-d": 5, "c": 6}, (8, 8))
    for name in ("a/x/1.jpg", "a/x-y.jpg", "a/x y/2.jpg", "c/UPPER.JPG", "b/é.jpg"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / "a" / "0000.jpg", root / name)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 123, None])
@pytest.mark.parametrize("classes", [None, ["c", "a", "c-d", "b"]])
def test_the_files_that_keras_takes(tmp_path: Path, seed: int | None, classes: list[str] | None):
    keras = pytest.importorskip("keras")
    pytest.importorskip("tensorflow")
    root = keras_folder(tmp_path)
    sides = ff.split(ff.ImageFolder(root, classes=classes), keras_split=0.3, seed=seed)
    for name, side in sides.items():
        data = keras.utils.image_dataset_from_directory(
            str(root),
            validation_split=0.3,
            subset=name,
            seed=seed,
            shuffle=seed is not None,
            class_names=classes,
            image_size=(8, 8),
            verbose=False,
        )
        assert sorted(data.file_paths) == sorted(side.uris(range(len(side))))
        assert data.class_names == list(side.classes)


@pytest.mark.slow
def test_the_files_that_keras_takes_without_labels(tmp_path: Path):
    keras = pytest.importorskip("keras")
    pytest.importorskip("tensorflow")
    root = keras_folder(tmp_path)
    for name in ("loose.jpg", "a/b/deep/1.jpg"):
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copy(root / "a" / "0000.jpg", root / name)
    source = ff.ImageFolder(root, labeled=False)
    data = keras.utils.image_dataset_from_directory(
        str(root), label_mode=None, image_size=(8, 8), verbose=False
    )
    assert sorted(data.file_paths) == sorted(source.uris(range(len(source))))
    with ff.Feed(source, [ff.Resize((8, 8))], batch=4) as feed:
        item = next(iter(feed.to_tfdata(yields="image")))
    assert item.shape[1:] == data.element_spec.shape[1:]


def test_the_files_that_keras_took(tmp_path: Path):
    """Noted from Keras 3.15.1, and the same in 2.6, 2.15 and 3.0."""
    sides = ff.split(ff.ImageFolder(keras_folder(tmp_path)), keras_split=0.2, seed=123)
    assert names(sides["validation"]) == {
        *("a/0002.jpg", "a/0006.jpg", "b/0003.jpg"),
        *("c-d/0001.jpg", "c-d/0002.jpg", "c-d/0003.jpg"),
    }
    last = ff.split(ff.ImageFolder(tmp_path), keras_split=0.1, seed=None)["validation"]
    assert names(last) == {"c-d/0002.jpg", "c-d/0003.jpg", "c-d/0004.jpg"}


def pngs(root: Path) -> ff.ImageFolder:
    folder(root, {"a": 3}, (8, 8))
    (root / "a" / "0001.jpg").rename(root / "a" / "1.webp")
    return ff.ImageFolder(root)


REFUSED = [
    (lambda p: ff.split(arrays(), {"a": 0.5, "b": 0.4}), "shares must sum to 1, got 0.9; change"),
    (lambda p: ff.split(arrays(), {"a": 1.0}), "two or more names with numbers in (0, 1), got"),
    (
        lambda p: ff.split(arrays(), {"a": 0.0, "b": 1.0}),
        "two or more names with numbers in (0, 1)",
    ),
    (lambda p: ff.split(arrays(), 0.2), 'in (0, 1), got 0.2; pass such as {"train": 0.8, "val"'),
    (lambda p: ff.split(arrays()), "pass either shares"),
    (lambda p: ff.split(arrays(), HALVES, keras_split=0.2), "keras_split, got both"),
    (
        lambda p: ff.split(arrays(), HALVES, by="class"),
        "got 'class'; pass by=\"group:class\" if 'class' is a column",
    ),
    (lambda p: ff.split(arrays(), HALVES, seed=None), "seed must be an integer, got None"),
    (
        lambda p: ff.split(ff.Arrays(NUMBERS[:1]), HALVES),
        "1 sample cannot be on 2 sides of at least one; add data",
    ),
    (
        lambda p: ff.split(ff.Arrays(NUMBERS[:3]), {"a": 0.99, "b": 0.01}),
        "each side needs samples, got a 3, b 0 of 3 by 'hash'; pass by=\"random\"",
    ),
    (
        lambda p: ff.split(ff.Arrays(NUMBERS), HALVES, by="stratified"),
        'by="stratified" needs labels, got a source without; pass by="random"',
    ),
    (
        lambda p: ff.split(
            table(p, who=["ann"] * 45 + ["bob"] * 5), {"a": 0.6, "b": 0.4}, by="group:who"
        ),
        "who ann has 45 of 50 samples, more than the share of 'a' (0.6), and a group is on one",
    ),
    (
        lambda p: ff.split(table(p, who=PEOPLE), HALVES, by="group:photographer"),
        "no column 'photographer'; the source has label, who; pass columns=['photographer'] to a"
        " source that can carry it, such as Table",
    ),
    (
        lambda p: ff.split(table(p, at=[[i, 2] for i in range(50)]), HALVES, by="group:at"),
        "a group must be a number or a text, got",
    ),
    (lambda p: ff.folds(arrays(), 1), "count must be at least 2, got 1; use split"),
    (lambda p: ff.folds(ff.Arrays(NUMBERS[:3]), 4), "folds: 3 samples cannot be on 4 sides"),
    (lambda p: ff.folds(arrays(), 3, by="class"), "folds: by must be "),
    (lambda p: ff.folds(arrays(), 3, by="hash", shuffle=False), "got it with by='hash'; leave"),
    (
        lambda p: ff.folds(ff.Arrays(NUMBERS), 3, by="stratified"),
        'folds: by="stratified" needs labels, got a source without',
    ),
    (lambda p: ff.folds(ff.Arrays(NUMBERS[:3]), 3, seed=4), "folds: each side needs samples, got"),
    (lambda p: ff.split(arrays(), keras_split=0.2), "keras_split needs an ImageFolder, got Arrays"),
    (lambda p: ff.split(arrays(), keras_split=1.5), "keras_split must be in (0, 1)"),
    (lambda p: ff.split(pngs(p), keras_split=0.4), "alone, got a/1.webp; pass extensions="),
]


@pytest.mark.parametrize(("make", "text"), REFUSED, ids=[text[:40] for _, text in REFUSED])
def test_refuses(make: Any, text: str, tmp_path: Path):
    with pytest.raises(ConfigError) as error:
        make(tmp_path)
    assert text in str(error.value)


def test_labels_that_are_no_classes_are_refused():
    values = ff.Arrays(NUMBERS, np.linspace(0, 1, 50), label_kind="value")
    with pytest.raises(ConfigError, match="needs class numbers as labels, got float32; pass by"):
        ff.split(values, HALVES, by="stratified")
    assert len(ff.where(values, lambda columns: columns["label"] > 0.5)) == 25
