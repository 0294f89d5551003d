"""Warps that bend: statistics, targets that follow, refusals. Their meaning is a law."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.opencv_ops.distort import elastic_places
from helpers.photos import picture

import fastfeed as ff
from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.distort import ElasticTransform, GridDistortion
from fastfeed.ops.program.compile import fuse, with_transforms
from fastfeed.sampling.rng import uniform
from fastfeed.spec import Spec

SIZE = Spec((48, 64, 3), "uint8", "HWC")
BENDING = [ff.ElasticTransform(60.0, 3.0, "nearest"), ff.GridDistortion(4, 0.6, "nearest")]


def params(op, n, size):
    return op.params(uniform(7, 0, np.arange(n), 1, op.draws), np.tile([size], (n, 1)))


@pytest.mark.parametrize("op", [ElasticTransform(), ElasticTransform(80.0, 2.0)])
def test_displacements_are_as_large_as_torchvisions(op):
    """alpha / 2 x uniform noise in [-1, 1] after a blur: a deviation of 1 / sqrt(4 pi sigma^2)."""
    size, n = (60, 80), 12
    values = params(op, n, size)
    still = [256 * np.arange(size[1]), 256 * np.arange(size[0])[:, None]]
    moves = np.array(
        [
            [at - own for at, own in zip(elastic_places(op, values, row, size), still, strict=True)]
            for row in range(n)
        ]
    )
    blurred = 1 / (2 * np.sqrt(np.pi) * op.sigma)
    assert moves.std() / 256 == pytest.approx(op.alpha / 2 / np.sqrt(3) * blurred, rel=0.1)
    assert abs(np.corrcoef(moves[:, 0].ravel(), moves[:, 1].ravel())[0, 1]) < 0.2


def test_alpha_is_uniform_in_its_range():
    strengths = params(ElasticTransform((20, 80)), 2000, (9, 9))["alpha"]
    low, middle, high = np.quantile(strengths, [0, 0.5, 1])
    assert 20 <= low < 21 and 47 < middle < 53 and 79 < high < 80


def test_lines_of_a_grid_keep_their_order_and_the_edges():
    lines = params(GridDistortion(6, 0.95), 500, (30, 50))["lines"]
    assert (np.diff(lines, axis=2) > 0).all() and not lines[:, :, 0].any()
    np.testing.assert_allclose(lines[:, :, -1], np.tile([[50, 30]], (500, 1)))
    widths = np.diff(lines, axis=2) / lines[:, :, -1:]
    assert widths.mean() == pytest.approx(1 / 6) and widths.max() > 0.3 and widths.min() < 0.02


@pytest.mark.parametrize("op", BENDING)
def test_a_second_image_follows(op):
    images = np.stack([picture(k, (40, 56)) for k in range(4)])
    pairs = ff.Together({"image": ff.Arrays(images), "mask": ff.Arrays(255 - images)})
    batch = next(iter(ff.Feed(pairs, [op], batch=4)))
    assert not np.array_equal(batch["image"], images)
    inside = (batch["image"] != 0).any(axis=-1) & (batch["mask"] != 0).any(axis=-1)
    assert inside.mean() > 0.8
    assert (batch["mask"][inside] == 255 - batch["image"][inside]).all()


@pytest.mark.parametrize("op", BENDING)
def test_boxes_and_transforms_cannot_follow(op):
    boxes = [np.array([[1.0, 2, 20, 30]])] * 2
    source = ff.Objects(ff.Arrays(np.zeros((2, 48, 64, 3), np.uint8)), boxes=boxes)
    for ops in ([op], [ff.Maybe(ff.OneOf([op, ff.Invert()]))]):
        with pytest.raises(SpecError) as error:
            ff.Feed(source, ops, batch=2)
        assert str(error.value) == (
            f"{op!r} moves every pixel by its own amount, and boxes cannot follow; leave it out, or"
            " give a mask as a second image of Together"
        )
        with pytest.raises(SpecError, match="moves every pixel by its own amount; leave one of"):
            with_transforms(fuse(ops, SIZE), True)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: ElasticTransform(-1),
            "ElasticTransform alpha must be a number in [0, 10000] or a pair (low, high) of such"
            " numbers, got -1; write ElasticTransform(50.0)",
        ),
        (
            lambda: ElasticTransform(sigma=0.2),
            "ElasticTransform sigma must be a number in [0.5, 100] or a pair (low, high) of such"
            " numbers, got (0.2, 0.2); write sigma=5.0",
        ),
        (
            lambda: ElasticTransform(filter="bicubic"),
            "ElasticTransform filter must be one of bilinear, nearest, got 'bicubic'",
        ),
        (
            lambda: GridDistortion(1),
            "GridDistortion steps must be an integer in [2, 64], got 1; write GridDistortion(5)",
        ),
        (
            lambda: GridDistortion(5, (-1.0, 0.5)),
            "GridDistortion limit must be a number in [-0.95, 0.95] or a pair (low, high) of such"
            " numbers, got (-1.0, 0.5); write GridDistortion(5, 0.3)",
        ),
    ],
)
def test_refuses(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == text
