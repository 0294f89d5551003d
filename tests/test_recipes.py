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
    GaussianBlur,
    Grayscale,
    Maybe,
    Normalize,
    OneOf,
    RandAugment,
    RandomFlip,
    RandomGrayscale,
    Resize,
    Solarize,
    ToFloat,
    TrivialAugmentWide,
    ZoomOut,
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
# of the named files of each reference, read on 2026-11-29
CROP = {"ratio": (3 / 4, 4 / 3), "filter": "bicubic"}
REFERENCES: dict[str, dict[str, Any]] = {
    "deit3_train": {
        "RandomResizedCrop": {"scale": (0.08, 1.0), **CROP},
        "RandomFlip": {"p": 0.5},
        "OneOf": {"ops": (Grayscale(), Solarize(128), GaussianBlur(sigma=(0.1, 2.0)))},
        "ColorJitter": {"brightness": 0.3, "contrast": 0.3, "saturation": 0.3, "hue": 0},
    },
    "mae_train": {"RandomResizedCrop": {"scale": (0.2, 1.0), **CROP}, "RandomFlip": {"p": 0.5}},
    "clip_train": {
        "RandomResizedCrop": {"scale": (0.9, 1.0), **CROP},
        "Normalize": {
            "mean": (0.48145466, 0.4578275, 0.40821073),
            "std": (0.26862954, 0.26130258, 0.27577711),
        },
    },
    "mask2former_train": {  # COCO_Instance's LSJ: ResizeScale, FixedSizeCrop, PIXEL_MEAN
        "RandomFlip": {"p": 0.5, "direction": "horizontal"},
        "RandomResize": {"sizes": 1024, "scale": (0.1, 2.0), "filter": "bilinear"},
        "RandomCrop": {"size": 1024, "fill": (128, 128, 128), "pad_if_needed": "corner"},
    },
    "sdxl_train": {
        "Resize": {"size": 1024, "fit": None, "filter": "lanczos"},
        "RandomCrop": {"size": 1024, "padding": 0},
        "Normalize": {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)},
    },
    "face_train": {"Resize": {"size": (112, 112)}, "RandomFlip": {"p": 0.5}},
    "reid_train": {
        "Resize": {"size": (256, 128)},
        "RandomFlip": {"p": 0.5},
        "RandomCrop": {"size": (256, 128), "padding": 10, "fill": (0, 0, 0)},
        "RandomErasing": {"p": 0.5, "scale": (0.02, 0.4), "ratio": (0.3, 1 / 0.3)},
    },
}
FLIP, GRAY = RandomFlip(), RandomGrayscale(0.2)
JITTER = Maybe(ColorJitter(0.4, 0.4, 0.2, 0.1), 0.8)
VIEWS_OF: dict[str, list[Any]] = {  # size, count, scale, ops
    "simclr_train": [
        (
            (224, 2, (0.08, 1.0)),
            (FLIP, Maybe(ColorJitter(0.8, 0.8, 0.8, 0.2), 0.8), GRAY),
            (Maybe(GaussianBlur(23, (0.1, 2.0)), 0.5),),
        )
    ],
    "byol_train": [
        ((224, 1, (0.08, 1.0)), (FLIP, JITTER, GRAY), (GaussianBlur(23, (0.1, 2.0)),)),
        (
            (224, 1, (0.08, 1.0)),
            (FLIP, JITTER, GRAY),
            (Maybe(GaussianBlur(23, (0.1, 2.0)), 0.1), Maybe(Solarize(128), 0.2)),
        ),
    ],
    "dinov2_train": [
        (
            (224, 1, (0.32, 1.0)),
            (FLIP, JITTER, GRAY),
            (Maybe(GaussianBlur(9, (0.1, 2.0)), 0.0),),
        ),
        (
            (224, 1, (0.32, 1.0)),
            (FLIP, JITTER, GRAY),
            (Maybe(GaussianBlur(9, (0.1, 2.0)), 0.9), Maybe(Solarize(128), 0.2)),
        ),
        (
            (96, 8, (0.05, 0.32)),
            (FLIP, JITTER, GRAY),
            (Maybe(GaussianBlur(9, (0.1, 2.0)), 0.5),),
        ),
    ],
}


@pytest.mark.parametrize("ops", LISTS, ids=lambda ops: type(ops[0]).__name__)
def test_prints_as_code(ops):
    assert isinstance(ops, list) and 2 <= len(ops) <= 5
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
    side = 32 if ops[0] == recipes.cifar_train()[0] else 64 if ops == LISTS[4] else 40
    assert [images.shape for images in batches] == [(3, side, side, 3)] * 2
    assert all(images.dtype == np.float32 and np.isfinite(images).all() for images in batches)


@pytest.mark.parametrize("name", REFERENCES)
def test_ops_and_ranges_are_those_of_the_reference(name):
    ops = getattr(recipes, name)()
    expected = REFERENCES[name]
    names = [type(op).__name__ for op in ops]
    assert [each for each in names if each in expected] == list(expected)
    assert {*names} <= {*expected, "Normalize"} and names[-1] == "Normalize"
    for op in ops:
        for field, value in expected.get(type(op).__name__, {}).items():
            assert getattr(op, field) == value, (name, op, field)


@pytest.mark.parametrize("name", VIEWS_OF)
def test_views_are_those_of_the_reference(name):
    views = getattr(recipes, name)()[0].views
    assert [((v.size, v.count, v.scale), v.ops[:3], v.ops[3:]) for v in views] == VIEWS_OF[name]
    assert all((v.ratio, v.filter) == (CROP["ratio"], CROP["filter"]) for v in views)


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


def test_ssd_follows_boxes_in_the_ranges_of_its_reference():
    zoom, crop, flip, _, bright, (first, second), shuffle, values = [
        op.ops if isinstance(op, OneOf) else op for op in recipes.ssd_train()
    ]
    assert zoom == ZoomOut(0.5, (1.0, 4.0), (123, 117, 104))
    overlaps, ratio = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0), (0.5, 2.0)
    assert (crop.min_overlaps, crop.scale, crop.ratio) == (overlaps, (0.3, 1.0), ratio)
    assert flip.p == bright.p == shuffle.p == 0.5
    assert first.ops == (second.ops[2], *second.ops[:2])
    amounts = [(each.p, each.op.bounds()) for each in (bright, *first.ops)]
    assert amounts == [
        (0.5, pair) for pair in [(0.875, 1.125), (0.5, 1.5), (0.5, 1.5), (-0.05, 0.05)]
    ]
    assert values.mean == (0.48235, 0.45882, 0.40784)  # of SSD300_VGG16_Weights
    images = Arrays(np.stack([picture(i, (60, 80)) for i in range(8)]))
    source = fastfeed.Objects(images, boxes=[[[10.0, 10, 60, 50]]] * 8)
    with Feed(source, recipes.ssd_train(40), batch=8) as feed:
        batch = next(iter(feed))
    assert batch.images.shape == (8, 40, 40, 3) and batch["boxes"].max() <= 40


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
