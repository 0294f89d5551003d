"""What several sources that make samples together have to have in common."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
from helpers.feeds import NUMBERS

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.sources.derived import Derived

IMAGES = ff.Arrays(NUMBERS)
LABELED = ff.Arrays(NUMBERS, np.arange(50))


class Timed(ff.Arrays):
    def columns(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        return {"right": np.asarray(ids)}


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        ({"left": IMAGES}, "2 to 15 sources by name"),
        ([IMAGES, IMAGES], "Together needs 2 to 15 sources by name"),
        ({"left": IMAGES, "right": ff.Arrays(NUMBERS[:9])}, "got {'left': 50, 'right': 9}"),
        ({"left": IMAGES, "the right": IMAGES}, "words such as 'left'"),
        ({"left": IMAGES, "image": IMAGES}, "got 'image'; 'image' may be the first one"),
        ({"label": IMAGES, "right": IMAGES}, "that no other field of a batch has, got 'label'"),
        ({"left": IMAGES, "right": NUMBERS}, "Together: source 'right' must be a source"),
        (
            {"left": ff.Together({"a": IMAGES, "b": IMAGES}), "right": IMAGES},
            "Together: source 'left' must have one image per sample",
        ),
        (
            {"left": IMAGES, "right": ff.Objects(IMAGES, [[]] * 50)},
            "only the first source may have boxes or masks, got some of 'right'",
        ),
        ({"left": Timed(NUMBERS), "right": IMAGES}, "'right' is an image and a column of 'left'"),
    ],
)
def test_refused(sources: Any, text: str):
    with pytest.raises(ConfigError, match=re.escape(text)):
        ff.Together(sources)


def test_geometry_is_one_of_two():
    with pytest.raises(ConfigError, match=r'geometry must be "same" or "own", got'):
        ff.Together({"left": IMAGES, "right": IMAGES}, geometry="other")


def test_labels_are_of_the_first_source_that_has_any():
    together = ff.Together({"left": IMAGES, "right": LABELED})
    np.testing.assert_array_equal(together.label(np.arange(3)), [0, 1, 2])


def test_labels_that_are_read_with_items_are_not_read_before():
    class Items(list):
        read = 0

        def __getitem__(self, i: Any) -> Any:
            self.read += 1
            return super().__getitem__(i)

    items = Items((image, i % 3) for i, image in enumerate(NUMBERS))
    source = ff.Mapped(items)
    before = items.read
    together = ff.Together({"left": IMAGES, "right": source})
    assert items.read == before and together.label_reads
    np.testing.assert_array_equal(together.label(np.arange(4)), [0, 1, 2, 0])


def test_own_geometry_is_in_the_fingerprint():
    sources = {"left": IMAGES, "right": LABELED}
    same, own = ff.Together(sources), ff.Together(sources, geometry="own")
    assert same.fingerprint != own.fingerprint
    assert pickle.loads(pickle.dumps(own)).fingerprint == own.fingerprint


def test_some_of_the_samples_are_still_pairs():
    shifted = ff.Arrays(np.ascontiguousarray(NUMBERS + np.uint8(100)))
    some = Derived(ff.Together({"left": IMAGES, "right": shifted}), np.array([7, 3, 9, 40]))
    batch = next(iter(ff.Feed(some, [], batch=4, shuffle=False)))
    assert batch["left"][:, 0, 0, 0].tolist() == [7, 3, 9, 40]
    assert batch["right"][:, 0, 0, 0].tolist() == [107, 103, 109, 140]


def test_the_order_of_a_mixture_is_that_of_the_first_source():
    few, many = ff.Arrays(NUMBERS[:10]), ff.Arrays(NUMBERS[10:])
    mixture = ff.Mixture([few, many], weights=[0.5, 0.5])
    with ff.Feed(ff.Together({"left": mixture, "right": IMAGES}), [], batch=10) as feed:
        batch = next(iter(feed))
    np.testing.assert_array_equal(batch["left"], batch["right"])
    assert np.count_nonzero(batch.ids < 10) == 5


class Named(ff.Arrays):
    """Image i is all i, and has a name."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(np.ascontiguousarray(NUMBERS[: len(names)]))
        self.names = names

    def sample_names(self, ids: np.ndarray) -> list[str]:
        return [self.names[i] for i in ids]


def test_pairs_by_name():
    left, right = Named(["a/2.jpg", "a/1.jpg"]), Named(["a/1.png", "b/1.png", "a/2.png"])
    pairs = ff.Together({"left": left, "right": right}, by="name")
    batch = next(iter(ff.Feed(pairs, [], batch=2, shuffle=False)))
    assert batch["left"][:, 0, 0, 0].tolist() == [0, 1]
    assert batch["right"][:, 0, 0, 0].tolist() == [2, 0]
    assert pairs.notes == ["right: 1 images have no partner"]
    words = "1 of 3 images of 'right' have no partner in 'left', such as b/1"
    with pytest.raises(ConfigError, match=words):
        ff.Together({"right": right, "left": left}, by="name")
    twice = Named(["a/1.jpg", "a/1.png"])
    with pytest.raises(ConfigError, match=r"'left' has several images of the name a/1.jpg"):
        ff.Together({"left": twice, "right": right}, by="name")
    with pytest.raises(ConfigError, match='by must be "order" or "name"'):
        ff.Together({"left": left, "right": right}, by="size")


def test_pairs_are_split_and_filtered_as_pairs():
    shifted = ff.Arrays(np.ascontiguousarray(NUMBERS + np.uint8(100)), np.arange(50) % 5)
    pairs = ff.Together({"left": IMAGES, "right": shifted})
    sides = ff.split(pairs, {"train": 0.8, "val": 0.2}, by="stratified", seed=1)
    few = pairs.take([7, 3]).where(min_side=4)
    for side, count in ((sides["train"], 40), (sides["val"], 10), (few, 2)):
        with ff.Feed(side, [ff.RandomFlip()], batch=count) as feed:
            batch = next(iter(feed))
        assert np.unique(batch["left"][:, 0, 0, 0]).size == count
        np.testing.assert_array_equal(batch["left"] + np.uint8(100), batch["right"])
        np.testing.assert_array_equal(batch.labels, batch["left"][:, 0, 0, 0] % 5)


@pytest.mark.parametrize(
    ("left", "right", "root"),
    [
        ("/data/a", "/data/b/c", "/data"),
        ("s3://photos/a/", "s3://photos/b", "s3://photos"),
        ("s3://photos", "s3://depths", None),
        ("s3://photos/a", "gs://photos/a", None),
        ("/data", "/photos", None),
    ],
)
def test_the_folder_that_holds_all_images(left: str, right: str, root: str | None):
    sources = {"left": Named(["1.jpg"]), "right": Named(["1.jpg"])}
    for source, folder in zip(sources.values(), (left, right), strict=True):
        vars(source)["root"] = folder
    assert ff.Together(sources).root == root
