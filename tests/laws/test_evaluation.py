"""Lists for evaluation: no op draws, images have the spec of training, recipes agree."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.op_examples import ALL, basic
from helpers.photos import picture

import fastfeed as ff
from fastfeed import recipes
from fastfeed.errors import ConfigError
from fastfeed.feed.feed import Feed
from fastfeed.ops.program.compile import fuse
from fastfeed.sources import Arrays, ImageFolder

SIDES = [1, 31, 32, 96, 224, 299, 384, 57_000]
KNOWN = [
    op
    for op in ALL
    if not isinstance(op, (ff.Function, ff.MultiCrop, ff.RandomResize))
    and not (op.kind == "map" and op.draws)
    and not getattr(op, "expand", False)
]
FLIP = ff.RandomFlip()


@pytest.mark.parametrize("op", KNOWN, ids=repr)
def test_draws_nothing_and_keeps_the_spec(op):
    ops = [op, ff.Resize((24, 24))] if isinstance(op, ff.Decode) else [ff.Resize(40), op]
    if op.kind in ("change", "mix"):
        ops.insert(1, ff.RandomResizedCrop((40, 56)))
    after = ff.evaluation(ops)
    trained, evaluated = [
        fuse(each, ImageFolder.spec, classes=3, fixed=False) for each in (ops, after)
    ]
    assert not any(step.op.draws for step in evaluated.steps) and evaluated.mix is None
    assert (evaluated.spec, evaluated.views) == (trained.spec, trained.views)
    assert ff.evaluation(after) == after


@pytest.mark.parametrize("side", SIDES)
def test_recipes_agree(side):
    assert ff.evaluation(recipes.imagenet_train(side)) == [
        ff.Resize(round(side * 256 / 224)),
        ff.CenterCrop(side),
        ff.Normalize.imagenet(),
    ]
    assert ff.evaluation(recipes.imagenet_train(side)) == recipes.imagenet_eval(side)


def test_what_recipes_become():
    policy = ff.Sequential([ff.RandAugment(), ff.Maybe(basic.darker)])
    assert ff.evaluation(recipes.imagenet_train(policy=policy, erase=0.5)) == (
        recipes.imagenet_eval()
    )
    assert ff.evaluation(recipes.cifar_train(policy=ff.AutoAugment()))[:-1] == [ff.CenterCrop(32)]
    assert ff.evaluation(recipes.stock_photo_train(299))[:2] == [
        ff.Resize(342),
        ff.CenterCrop(299),
    ]


@pytest.mark.parametrize(
    ("op", "after"),
    [
        (
            ff.RandomResizedCrop((48, 96), filter="box"),
            [ff.Resize(55, "box"), ff.CenterCrop((48, 96))],
        ),
        (
            ff.RandomResizedCrop(ff.RandomSizes([64, (56, 112), 72])),
            [ff.Resize(64), ff.CenterCrop((56, 112))],
        ),
        (ff.Resize(ff.BySchedule({0: 80, 2: 64}), fit="exact"), [ff.Resize(64, fit="exact")]),
        (
            ff.Maybe(ff.Sequential([ff.CenterCrop(ff.BySchedule({0: 8, 2: 6}))]), p=1.0),
            [ff.Sequential([ff.CenterCrop(6)])],
        ),
        (ff.RandomCrop(24, padding=4, fill=(1, 2, 3)), [ff.CenterCrop(24)]),
        (
            ff.RandomCrop(24, 4, "edge", pad_if_needed=True),
            [ff.CenterCrop(24, "edge", pad_if_needed=True)],
        ),
        (
            ff.RandomCrop(24, fill=(1, 2, 3), pad_if_needed="corner"),
            [ff.CenterCrop(24, fill=(1, 2, 3), pad_if_needed="corner")],
        ),
        (ff.Brightness((1.5, 1.5)), [ff.Brightness((1.5, 1.5))]),
        (ff.Rotate((90, 90)), [ff.Rotate((90, 90))]),
        (ff.FiveCrop(24), [ff.FiveCrop(24)]),
        (ff.OneHot(3), [ff.OneHot(3)]),
        (
            ff.Sequential([FLIP, ff.Equalize(), ff.Hue(0.1), ff.Invert()]),
            [ff.Equalize(), ff.Invert()],
        ),
        (ff.Maybe(ff.Invert(), p=1.0), [ff.Invert()]),
        (ff.Maybe(ff.Invert(), p=0.9), []),
        (ff.OneOf([ff.Invert(), basic.darker]), []),
        (ff.OneOf([FLIP, ff.RandomFlip(direction="both")]), []),
        (
            ff.OneOf([ff.RandomResizedCrop(56), ff.RandomResizedCrop(56, scale=(0.5, 1.0))]),
            [ff.Resize(64), ff.CenterCrop(56)],
        ),
        (ff.Function(basic.darker, draws=0), [ff.Function(basic.darker, draws=0)]),
    ],
    ids=repr,
)
def test_rules(op, after):
    assert ff.evaluation([op]) == after


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (basic.darker, r"Function\(darker\) takes random numbers.*leave it out.*draws=0"),
        (ff.Map(basic.shares, out="noise", draws=2), r"Map\(shares.* takes random numbers"),
        (ff.Maybe(basic.darker, p=1.0), "takes random numbers"),
        (ff.Sequential([basic.darker]), "takes random numbers"),
        (ff.MultiCrop((ff.View(8, 2), ff.View(4, 6))), "MultiCrop makes 8 random crops.*by hand"),
        (ff.Rotate(30, expand=True), "Rotate.*size of images.*by hand"),
        (ff.RandomResize((30, 60)), "RandomResize.*size of images.*by hand"),
        (ff.OneOf([ff.RandomCrop(24), ff.RandomResizedCrop(24)]), "OneOf.*size of images.*by hand"),
        (ff.Resize(ff.BucketSize()), r"BucketSize\(\) depends on the batches.*write a size in"),
        (ff.Resize(ff.LargestSize(), fit="corner"), r"LargestSize\(multiple=1\) depends on the"),
        (ff.Resize, "ops must be ops such as"),
        (3, "ops must be ops such as"),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_what_cannot_be_known_is_refused_by_name(op, text):
    with pytest.raises(ConfigError, match=text):
        ff.evaluation([op])


def test_is_a_list():
    with pytest.raises(ConfigError, match="ops must be a list"):
        ff.evaluation("Resize(4)")


def test_the_middle_of_an_image_of_the_usual_shape_is_shown():
    """Seven eighths of a landscape image of the crop's shape, as of a square."""
    images = np.stack([picture(0, (64, 128))])
    ops = ff.evaluation([ff.RandomResizedCrop((56, 112))])
    with Feed(Arrays(images), ops, batch=1) as feed:
        shown = next(iter(feed)).images[0]
    np.testing.assert_array_equal(shown, images[0, 4:60, 8:120])
