"""Ops made of others: how often, which, in what order; they fold where they can, and say what they
cannot hold.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from helpers.opencv_ops.chain import run
from helpers.photos import picture

from fastfeed.errors import ConfigError, SpecError
from fastfeed.feed.feed import Feed
from fastfeed.ops import (
    CenterCrop,
    Decode,
    Maybe,
    Normalize,
    OneOf,
    RandomFlip,
    RandomResizedCrop,
    Resize,
    Sequential,
    ToFloat,
)
from fastfeed.ops.function import Function
from fastfeed.ops.program.compile import fuse
from fastfeed.ops.program.layers import choose, layers
from fastfeed.ops.program.window import Window
from fastfeed.sampling.rng import uniform
from fastfeed.sources import Arrays, ImageFolder
from fastfeed.spec import Spec

IMAGE = Spec((40, 56, 3), "uint8", "HWC")
ANY_SIZE = Spec((None, None, 3), "uint8", "HWC")
MIRROR, UPSIDE_DOWN = RandomFlip(1.0), RandomFlip(1.0, "vertical")


def darker(image, numbers):
    """By up to a half."""
    return (image * (1 - numbers[0] / 2)).astype(np.uint8)


def plus_one(image, numbers):
    return image + np.uint8(1)


def doubled(image, numbers):
    return image * np.uint8(2)


def noted(image, numbers):
    """Its own random number, where a test can find it."""
    image[0, 0, 0] = int(numbers[0] * 256)
    return image


def numbers(op, n, seed=0):
    return uniform(seed, 0, np.arange(n), 3, op.draws)


def what_happens(op, n, size=(4, 4), seed=0):
    sizes = np.tile(np.array([size], np.int64), (n, 1))
    return choose(op, numbers(op, n, seed), sizes)


def after(op, images, seed=0):
    """All images after the op, alone."""
    found = what_happens(op, len(images), images[0].shape[:2], seed)
    return np.stack([run(layers(op), found, row, image.copy()) for row, image in enumerate(images)])


BLACK = np.zeros((4000, 4, 4, 3), np.uint8)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.7, 1.0])
def test_maybe_does_it_to_a_share_of_all(p):
    share = after(Maybe(plus_one, p), BLACK)[:, 0, 0, 0].mean()
    assert abs(share - p) <= 3 * np.sqrt(p * (1 - p) / 4000)


def test_one_of_does_exactly_one_by_its_weight():
    op = OneOf(
        [plus_one, doubled, Function(lambda image, _: image + np.uint8(7), 0)], weights=[3, 0, 1]
    )
    got = after(op, BLACK)[:, 0, 0, 0]
    assert set(got.tolist()) == {1, 7}
    assert abs((got == 1).mean() - 0.75) < 0.025
    assert (
        np.bincount(what_happens(OneOf([MIRROR, plus_one, darker, doubled]), 4000)[0].choice).min()
        > 900
    )


def test_one_of_never_takes_what_weighs_nothing():
    op = OneOf([plus_one, doubled, MIRROR], weights=[0, 0.1, 0])
    u = np.full((2, op.draws), [[0.0], [1 - 2.0**-53]])
    assert choose(op, u, np.full((2, 2), 4))[0].choice.tolist() == [1, 1]


def test_sequential_is_one_after_another():
    image = np.full((1, 4, 4, 3), 5, np.uint8)
    assert after(Sequential([plus_one, doubled]), image)[0, 0, 0, 0] == 12
    assert after(Sequential([doubled, plus_one]), image)[0, 0, 0, 0] == 11


def test_each_child_has_numbers_of_its_own():
    """Two of the same op do not do the same."""
    op = Sequential([Maybe(Function(plus_one, 0)), Maybe(Function(doubled, 0)), noted])
    assert op.draws == 1 + 1 + 8
    first, second, _ = what_happens(op, 4000)
    both = ((first.choice == 0) & (second.choice == 0)).mean()
    assert abs(both - 0.25) < 0.025
    noted_at = what_happens(op, 4000)[2].values[0]["u"]
    assert abs(np.corrcoef(noted_at[:, 0], first.choice)[0, 1]) < 0.05


def test_layers_say_what_may_happen():
    op = OneOf([darker, Sequential([doubled, MIRROR, plus_one]), Maybe(MIRROR)])
    assert [len(layer.ops) for layer in op.layers] == [3, 1, 1]
    assert op.layers[1].ops == (Window(None),)
    found = what_happens(op, 400)
    assert [len(one.values) for one in found] == [3, 1, 1]
    assert set(found[0].choice.tolist()) == {-1, 0, 1, 2}
    np.testing.assert_array_equal(found[1].choice >= 0, found[0].choice == 1)
    np.testing.assert_array_equal(found[1].choice, found[2].choice)
    assert found[1].values[0]["limit"].tolist() == [[0, 0, 4, 4]] * 400


def test_nested_ops_do_what_their_parts_say():
    """Half of all are left; of the others one quarter is mirrored and then brighter, the rest
    doubled.
    """
    op = Maybe(OneOf([Sequential([MIRROR, plus_one]), doubled], weights=(1, 3)), 0.5)
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    got = after(op, np.broadcast_to(image, (2000, 4, 4, 3)))
    shares = [
        (got == one).all(axis=(1, 2, 3)).mean() for one in (image, image[:, ::-1] + 1, image * 2)
    ]
    np.testing.assert_allclose(shares, [0.5, 0.125, 0.375], atol=0.04)
    assert sum(shares) == 1


OPS = [
    Maybe(MIRROR),
    Maybe(darker, 0.3),
    OneOf([MIRROR, UPSIDE_DOWN, Sequential([RandomFlip(0.5), RandomFlip(0.5, "vertical")])]),
    Maybe(OneOf([Sequential([RandomFlip(), darker]), darker, Maybe(plus_one)]), 0.9),
]


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_a_row_depends_on_its_own_numbers_only(op):
    images = np.stack([picture(i)[:40, :48] for i in range(8)])
    whole, u = after(op, images), numbers(op, 8)
    for row in range(8):
        alone = choose(op, u[row : row + 1], np.array([[40, 48]]))
        np.testing.assert_array_equal(run(layers(op), alone, 0, images[row].copy()), whole[row])


@pytest.mark.parametrize(
    "op",
    [
        Maybe(MIRROR),
        OneOf([RandomResizedCrop(24), CenterCrop(24)]),
        Sequential([Resize(32), RandomFlip(), CenterCrop(24)]),
        Maybe(Sequential([MIRROR, OneOf([MIRROR, UPSIDE_DOWN])])),
    ],
    ids=repr,
)
def test_pure_geometry_folds_into_the_window_of_decoding(op):
    program = fuse([op, CenterCrop(24)], ImageFolder.spec)
    assert [step.op for step in program.window] == [op, CenterCrop(24)] and not program.chain


def test_a_sequence_of_geometry_is_the_window_of_its_parts():
    parts = [Resize(32), RandomFlip(), CenterCrop(24), UPSIDE_DOWN]
    sizes = np.array([[40, 56], [90, 33], [24, 24]], np.int64)
    columns = {2: numbers(RandomFlip(), 3)}  # slot 2: the Decode and Resize before it draw nothing
    program = fuse([Decode(), *parts], ImageFolder.spec)
    draws = [
        columns[2] if step.op == RandomFlip() else numbers(step.op, 3) for step in program.window
    ]
    apart = program.windows(draws, sizes)
    op = Sequential(parts)
    together = op.params(np.concatenate([columns[2], numbers(UPSIDE_DOWN, 3)], axis=1), sizes)
    np.testing.assert_array_equal(together["box"], apart.boxes)
    np.testing.assert_array_equal(together["flip"], apart.flips)
    np.testing.assert_array_equal(together["size"], apart.sizes)


def test_geometry_gives_the_same_behind_decoding_and_in_its_window():
    """In the second list a function that does nothing keeps the flip out of the window."""
    images = np.stack([picture(i) for i in range(12)])
    for op in (Maybe(MIRROR), OneOf([MIRROR, UPSIDE_DOWN])):
        lists: Any = (
            [op],
            [Function(lambda image, _: image, 0), op],
            [Sequential([Function(lambda i, _: i, 0), op])],
        )
        first, *others = [
            np.concatenate([b.images for b in Feed(Arrays(images), ops, batch=4)]) for ops in lists
        ]
        assert any((one != image).any() for one, image in zip(first, images, strict=True))
        for other in others:
            np.testing.assert_array_equal(other, first)


def test_geometry_that_takes_nothing_is_not_done():
    assert what_happens(Maybe(MIRROR, 0.0), 3)[0].choice.tolist() == [-1, -1, -1]
    assert what_happens(Sequential([MIRROR, MIRROR]), 2)[0].choice.tolist() == [-1, -1]
    assert what_happens(OneOf([MIRROR, UPSIDE_DOWN]), 2)[0].choice.tolist() == [0, 0]


def test_specs():
    assert Maybe(MIRROR).out(ANY_SIZE) == ANY_SIZE
    assert Maybe(Resize(20)).out(ANY_SIZE) == ANY_SIZE
    assert Maybe(RandomResizedCrop((40, 56))).out(IMAGE) == IMAGE
    assert Sequential([Resize(32), CenterCrop(24)]).out(ANY_SIZE) == IMAGE.with_size(24, 24)
    assert OneOf([RandomResizedCrop(24), CenterCrop(24)]).out(ANY_SIZE) == IMAGE.with_size(24, 24)
    assert Maybe(Sequential([MIRROR, darker])).out(IMAGE) == IMAGE
    assert (
        Sequential([Resize(64, "box"), RandomResizedCrop(24, filter="lanczos")]).filter == "lanczos"
    )
    assert not hasattr(Sequential([MIRROR]), "filter")
    lanczos = OneOf([RandomResizedCrop((40, 56)), RandomResizedCrop((40, 56), filter="lanczos")])
    assert lanczos.out(IMAGE) == IMAGE and lanczos.kind == "change"


def test_they_are_values():
    op = OneOf([darker, MIRROR], weights=[1, np.float64(2)])
    assert op == OneOf((darker, MIRROR), weights=(1.0, 2.0)) and hash(op) == hash(
        OneOf((darker, MIRROR), (1, 2))
    )
    assert (
        repr(op)
        == "OneOf(ops=(Function(darker), RandomFlip(p=1.0, direction='horizontal')), weights=(1.0,"
        " 2.0))"
    )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Maybe(MIRROR, 1.5), "Maybe p must be in [0, 1], got 1.5"),
        (
            lambda: Maybe(RandomFlip),
            "Maybe op must be an op such as RandomFlip() or a function, got the class RandomFlip",
        ),
        (lambda: Maybe("flip"), "got 'flip'"),
        (
            lambda: Maybe(Normalize.imagenet()),
            "Maybe op must be an op that moves or changes pixels",
        ),
        (
            lambda: Sequential([MIRROR, Decode()]),
            "Sequential ops[1] must be an op that moves or changes pixels",
        ),
        (
            lambda: OneOf([ToFloat()]),
            "put it directly into the list of ops, where all samples take it",
        ),
        (
            lambda: OneOf([]),
            "OneOf ops must be a list of one op or more, such as [RandomFlip()], got ()",
        ),
        (
            lambda: Sequential(cast("Any", MIRROR)),
            "Sequential ops must be a list of one op or more",
        ),
        (
            lambda: OneOf([MIRROR, darker], [1]),
            "OneOf weights must be 2 numbers >= 0, one per op and not all 0, got (1,)",
        ),
        (lambda: OneOf([MIRROR], [-1]), "got (-1,)"),
        (lambda: OneOf([MIRROR], [0]), "got (0,)"),
        (lambda: OneOf([MIRROR], [float("nan")]), "got (nan,)"),
        (lambda: OneOf([MIRROR], cast("Any", "ab")), "got 'ab'"),
    ],
)
def test_what_they_cannot_hold_is_said_at_once(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("op", "spec", "text"),
    [
        (Maybe(darker), ANY_SIZE, "Maybe needs images of one size, got HWC uint8[?, ?, 3]"),
        (Maybe(CenterCrop(24)), IMAGE, "put it directly into the list of ops, before Maybe"),
        (
            Sequential([darker, CenterCrop(24)]),
            IMAGE,
            "Sequential needs ops that keep the size, but CenterCrop(size=24) makes",
        ),
        (OneOf([darker, Resize(24)]), IMAGE, "OneOf needs ops that keep the size, but Resize"),
        (
            OneOf([CenterCrop(24), CenterCrop(25)]),
            ANY_SIZE,
            "OneOf needs ops that lead to one size, but CenterCrop(size=24)",
        ),
        (
            OneOf([Resize(24), Resize(24, "box")]),
            ANY_SIZE,
            "OneOf needs ops with one filter where images are of many sizes",
        ),
        (Maybe(MIRROR), ImageFolder.spec, "RandomFlip needs HWC pixels"),
        (Maybe(darker), Spec((40, 56, 3), "float32", "HWC"), "Maybe works on bytes"),
    ],
)
def test_what_cannot_follow_is_said_by_name(op, spec, text):
    with pytest.raises(SpecError) as error:
        op.out(spec)
    assert text in str(error.value)
