"""Recipes are plain lists: they print as code, can be edited, and make batches of photographs of
any size.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
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
    MultiCrop,
    Normalize,
    RandAugment,
    RandomFlip,
    Resize,
    ToFloat,
    TrivialAugmentWide,
)
from fastfeed.sources import Arrays, ImageFolder

LISTS: list[Any] = [
    recipes.imagenet_train(40),
    recipes.imagenet_train(40, policy=TrivialAugmentWide(), erase=0.5),
    recipes.imagenet_eval(40),
    recipes.cifar_train(policy=AutoAugment("cifar10")),
    recipes.stock_photo_train(64),
    recipes.deit3_train(40),
    recipes.deit3_train(40, jitter=0.0, whole=True),
    recipes.mae_train(40),
    recipes.clip_train(40),
    recipes.mask2former_train(40),
    recipes.sdxl_train(40, flip=True),
    recipes.face_train(40),
    recipes.reid_train((40, 40)),
]
VIEWS = [recipes.simclr_train(40), recipes.byol_train(40), recipes.dinov2_train(40, local_size=20)]
PAGE = (Path(__file__).parents[1] / "docs" / "augmentations.md").read_text()
# rows of the table of references: a call, links to what was read, the list, what differs
ROWS = re.findall(
    r"^\| `recipes\.(\w+)`(?:, `(.+?)`)? \| .*?/blob/[\w.]+/.*? \| (.+?) \| .*?\|$",
    PAGE,
    re.MULTILINE,
)
NAMES = {name: getattr(fastfeed, name) for name in fastfeed.__all__ if name[0].isupper()}
WITHOUT_ROW = {"imagenet_train", "imagenet_eval", "cifar_train", "stock_photo_train"}


@pytest.mark.parametrize("ops", LISTS, ids=lambda ops: type(ops[0]).__name__)
def test_prints_as_code(ops):
    assert isinstance(ops, list) and 2 <= len(ops) <= 5
    assert eval(repr(ops), NAMES) == ops


@pytest.mark.parametrize("ops", LISTS, ids=lambda ops: type(ops[0]).__name__)
def test_makes_batches_of_photographs(ops, tmp_path):
    source = ImageFolder(folder(tmp_path, {"a": 3, "b": 3}))
    with Feed(source, ops, batch=3, threads=2, seed=1) as feed:
        batches = [batch.images for batch in feed]
        assert not feed.stats().bad
    side = 32 if ops[0] == recipes.cifar_train()[0] else 64 if ops == LISTS[4] else 40
    assert [images.shape for images in batches] == [(3, side, side, 3)] * 2
    assert all(images.dtype == np.float32 and np.isfinite(images).all() for images in batches)


@pytest.mark.parametrize(("name", "arguments", "listed"), ROWS)
def test_ops_and_ranges_are_those_of_the_reference(name, arguments, listed):
    ops = eval(f"recipes.{name}({arguments})", {"recipes": recipes})
    if isinstance(ops[0], MultiCrop):  # a view, then its ops
        views = [[replace(view, ops=()), *view.ops] for view in ops[0].views]
        ops = [*itertools.chain(*views), *ops[1:]]
    assert [eval(code, NAMES) for code in re.findall(r"`([^`]+)`", listed)] == ops


def test_every_recipe_has_a_reference():
    assert {name for name, *_ in ROWS} == {*recipes.__all__} - WITHOUT_ROW


@pytest.mark.parametrize("ops", VIEWS, ids=lambda ops: len(ops[0].views))
def test_makes_views(ops):
    images = np.stack([picture(i) for i in range(2)])
    with Feed(Arrays(images), ops, batch=2) as feed:
        views = next(iter(feed)).views
    shapes = [(2, v.count, v.size, v.size, 3) for v in ops[0].views]
    assert [view.shape for view in views] == shapes
    assert all(view.dtype == np.float32 for view in views)


def test_hidden_parts_of_persons_have_the_color_of_the_reference():
    """It fills normalized images with the mean itself, instead of 0."""
    *_, hide, normalize = recipes.reid_train()
    table = Normalize.imagenet()
    assert normalize == table
    filled = (np.array(hide.fill) / 255 - table.mean) / table.std
    np.testing.assert_allclose(filled, table.mean, atol=0.01)


def test_ssd_follows_boxes():
    images = Arrays(np.stack([picture(i, (60, 80)) for i in range(8)]))
    source = fastfeed.Objects(images, boxes=[[[10.0, 10, 60, 50]]] * 8)
    with Feed(source, recipes.ssd_train(40), batch=8) as feed:
        batch = next(iter(feed))
    assert batch.images.shape == (8, 40, 40, 3) and batch["boxes"].max() <= 40


def test_yolo_follows_boxes_until_mosaics_end():
    images = Arrays(np.stack([picture(i, (60, 80)) for i in range(8)]))
    source = fastfeed.Objects(images, boxes=[[[10.0, 10, 60, 50]]] * 8)
    with Feed(source, recipes.yolo_train(48, off_epoch=1), batch=8) as feed:
        mixed, alone = feed.batches(epochs=2)
    assert mixed.images.shape == (8, 48, 48, 3) and mixed.images.dtype == np.float32
    assert mixed.images.min() >= 0 and mixed.images.max() <= 1
    assert mixed["box_counts"].max() > 1 and (alone["box_counts"] == 1).all()
    sides = alone["boxes"][:, 0, 2:] - alone["boxes"][:, 0, :2]
    np.testing.assert_allclose(sides, [[30, 24]] * 8, atol=1e-3)  # 0.6 of 50 and 40


def test_mask2former_moves_all_annotations_alike():
    """The mask of an object, its pixels, its box and the class map agree at every scale."""
    pixels = np.zeros((64, 40, 60, 3), np.uint8)
    pixels[:, 10:30, 20:50] = 255
    mask = pixels[0, ..., 0] // 255
    source = fastfeed.Objects(
        Arrays(pixels),
        boxes=[[[20.0, 10, 50, 30]]] * 64,
        instance_masks=[[mask]] * 64,
        masks=[mask] * 64,
    )
    with Feed(source, [*recipes.mask2former_train(48)[:-1], ToFloat()], batch=64) as feed:
        batch = next(iter(feed))
    images = np.asarray(batch.images)[..., 0]
    low, whole = 0, 0
    for i in range(64):
        classes = batch["masks"][i]
        rows, columns = np.nonzero(classes != 255)
        assert (rows.min(), columns.min()) == (0, 0)  # an image smaller than the crop stays there
        np.testing.assert_allclose(images[i][classes == 255], 128 / 255)
        low += (classes == 255).any()
        if not batch["box_counts"][i]:
            continue
        own = batch["instance_masks"][i, 0]
        assert (own == (classes == 1)).mean() > 0.99
        left, top, right, bottom = batch["boxes"][i, 0]
        ys, xs = np.nonzero(own)
        if len(ys):
            found = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
            np.testing.assert_allclose(found, [left, top, right, bottom], atol=1)
            whole += 1
    assert low > 20 and whole > 30


def test_dinov2_takes_three_probabilities():
    with pytest.raises(ConfigError, match="dinov2_train blur must be three probabilities"):
        recipes.dinov2_train(blur=(1.0, 0.1))


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
