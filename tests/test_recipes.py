"""Recipes are plain lists: they print as code, can be edited, and make batches of photographs of
any size.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from helpers.photos import folder, picture

import fastfeed
from fastfeed import recipes
from fastfeed.errors import ConfigError
from fastfeed.feed.feed import Feed
from fastfeed.ops import (
    AutoAugment,
    CenterCrop,
    ColorJitter,
    RandAugment,
    RandomFlip,
    Resize,
    TrivialAugmentWide,
)
from fastfeed.sources import Arrays, ImageFolder

LISTS: list[Any] = [
    recipes.imagenet_train(40),
    recipes.imagenet_train(40, policy=TrivialAugmentWide(), erase=0.5),
    recipes.imagenet_eval(40),
    recipes.cifar_train(policy=AutoAugment("cifar10")),
    recipes.stock_photo_train(64),
]


@pytest.mark.parametrize("ops", LISTS, ids=lambda ops: type(ops[0]).__name__)
def test_prints_as_code(ops):
    assert isinstance(ops, list) and 3 <= len(ops) <= 5
    assert (
        eval(
            repr(ops),
            {name: getattr(fastfeed, name) for name in fastfeed.__all__ if name[0].isupper()},
        )
        == ops
    )


@pytest.mark.parametrize("ops", LISTS, ids=lambda ops: type(ops[0]).__name__)
def test_makes_batches_of_photographs(ops, tmp_path):
    source = ImageFolder(folder(tmp_path, {"a": 3, "b": 3}))
    with Feed(source, ops, batch=3, threads=2, seed=1) as feed:
        batches = [batch.images for batch in feed]
        assert not feed.stats().bad
    side = 32 if ops[0] == recipes.cifar_train()[0] else 64 if ops == LISTS[-1] else 40
    assert [images.shape for images in batches] == [(3, side, side, 3)] * 2
    assert all(images.dtype == np.float32 and np.isfinite(images).all() for images in batches)


def test_is_reached_by_name_and_edited():
    ops = fastfeed.recipes.imagenet_train(224)
    assert ops[0].size == 224 and fastfeed.recipes is recipes
    ops.insert(2, ColorJitter(0.4, 0.4, 0.4))
    ops.insert(3, RandAugment())
    images = np.stack([picture(i) for i in range(4)])
    with Feed(Arrays(images), ops, batch=4) as feed:
        assert next(iter(feed)).images.shape == (4, 224, 224, 3)
    assert len(recipes.imagenet_train(224)) == 3  # a new list every time


def test_eval_keeps_the_usual_margin():
    assert recipes.imagenet_eval()[:2] == [Resize(256), CenterCrop(224)]
    assert recipes.imagenet_eval(299)[:2] == [Resize(342), CenterCrop(299)]


def test_landmarks_stay_upright_and_normalize_to_one():
    ops = recipes.stock_photo_train()
    assert [op for op in ops if isinstance(op, RandomFlip)] == [RandomFlip(0.5, "horizontal")]
    with Feed(Arrays(np.full((2, 40, 40, 3), 255, np.uint8)), [ops[-1]], batch=2) as feed:
        np.testing.assert_allclose(next(iter(feed)).images, 1)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: recipes.imagenet_train(0),
            "imagenet_train size must be in [1, 65535] pixels, got 0",
        ),
        (
            lambda: recipes.imagenet_eval(cast("Any", (224, 224))),
            "imagenet_eval size must be an int, the side of a square",
        ),
        (
            lambda: recipes.imagenet_train(cast("Any", "224")),
            "must be an int, the side of a square in pixels, got ",
        ),
        (
            lambda: recipes.cifar_train(policy=[RandAugment()]),
            "write several as one: Sequential([...])",
        ),
        (lambda: recipes.imagenet_train(erase=2), "imagenet_train erase must be in [0, 1], got 2"),
        (
            lambda: recipes.cifar_train(policy=RandAugment),
            "got the class RandAugment; write RandAugment()",
        ),
        (
            lambda: recipes.stock_photo_train(policy=Resize(20)),
            "must be an op that changes pixels, such as RandAugment()",
        ),
    ],
)
def test_errors_say_what_is_allowed(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert text in str(error.value)
