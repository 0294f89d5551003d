"""A choice of resampling filters: each image draws one, whichever way it becomes pixels."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.photos import folder, picture

import fastfeed as ff
from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.base import FILTERS
from fastfeed.ops.program.compile import fuse
from fastfeed.spec import ENCODED

N = 40
BOTH = ("bilinear", "bicubic")
NAMES = ", ".join(FILTERS)


def images(source, ops):
    return next(iter(ff.Feed(source, ops, batch=N, seed=5, shuffle=False))).images


def sources(tmp_path):
    pictures = np.stack([picture(i, (50, 70)) for i in range(N)])
    return {"array": ff.Arrays(pictures), "file": ff.ImageFolder(folder(tmp_path, {"a": N}))}


@pytest.mark.parametrize("kind", ["array", "file"])
def test_each_image_is_that_of_one_filter(kind, tmp_path):
    source = sources(tmp_path)[kind]
    for make in (
        lambda filter: [ff.RandomResizedCrop(24, filter=filter)],
        lambda filter: [ff.RandomFlip(), ff.Resize((24, 30), filter, "pad")],
        lambda filter: [ff.CenterCrop(40), ff.Invert(), ff.Resize((24, 30), filter)],
    ):
        drawn = images(source, make(BOTH))
        single = np.stack([images(source, make(filter)) for filter in BOTH])
        equal = (single == drawn).all(axis=(2, 3, 4))
        assert equal.any(axis=0).all() and not equal.all(axis=1).any()
        assert 10 <= (equal[1] & ~equal[0]).sum() <= 30  # of 40 draws with p = 0.5: 3 sigma


def test_the_crop_is_that_of_one_filter():
    op, single = ff.RandomResizedCrop(24, filter=BOTH), ff.RandomResizedCrop(24)
    u, sizes = np.random.default_rng(0).random((5, 23)), np.full((5, 2), (50, 70))
    assert (op.draws, single.draws, ff.Resize(8, BOTH).draws) == (23, 22, 1)
    assert np.array_equal(op.params(u, sizes)["box"], single.params(u[:, :22], sizes)["box"])


def test_evaluation_takes_the_first():
    assert ff.evaluation([ff.RandomResizedCrop(224, filter=BOTH)])[0] == ff.Resize(256)
    assert ff.evaluation([ff.Resize((8, 8), ["box", *BOTH])]) == [ff.Resize((8, 8), "box")]


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (
            lambda: ff.Resize(8, ("bilinear",)),
            ConfigError,
            f"Resize filter must be one of {NAMES}, or a tuple of these, got ('bilinear',)",
        ),
        (
            lambda: ff.RandomResizedCrop(8, filter=("bilinear", "cubic")),
            ConfigError,
            f"RandomResizedCrop filter must be one of {NAMES}, got 'cubic'",
        ),
        (
            lambda: ff.Maybe(ff.Resize((8, 8), BOTH)),
            ConfigError,
            "Maybe op must be an op with one filter, got Resize(size=(8, 8), filter=('bilinear',"
            " 'bicubic')); put it directly into the list of ops, where each image draws its filter",
        ),
        (
            lambda: fuse([ff.Resize((50, 50), BOTH), ff.FiveCrop(8)], ENCODED),
            SpecError,
            "views of an image need one filter, got ('bilinear', 'bicubic') before"
            " FiveCrop(size=8); write one of them",
        ),
        (
            lambda: fuse([ff.Resize((9, 9), BOTH)], ENCODED).refuse_per_image('backend="dali"'),
            ConfigError,
            'backend="dali" cannot run a random choice of bilinear or bicubic; use backend="cpu"',
        ),
    ],
)
def test_refusals(make, kind, text):
    with pytest.raises(kind) as error:
        make()
    assert str(error.value) == text
