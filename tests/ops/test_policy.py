"""Policies take the ops they should, as often and as strongly as the papers and torchvision say."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, cast

import numpy as np
import pytest
from helpers.op_examples.policy import EXAMPLES, by_pillow
from helpers.opencv_ops.chain import run
from helpers.photos import picture
from PIL import Image

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops import AutoAugment, RandAugment, Sequential, TrivialAugmentWide
from fastfeed.ops.policies import POLICIES
from fastfeed.ops.policy_space import MIX, NAMES, RAND, WIDE, PolicyDraw
from fastfeed.ops.program.layers import Choices, choose, layers
from fastfeed.sampling.rng import uniform
from fastfeed.spec import Spec

POLICY_OPS = [
    op for kind in (RandAugment, TrivialAugmentWide, AutoAugment) for op in EXAMPLES[kind]
]


def what_happens(op, n, size=(224, 180), seed=0):
    sizes = np.tile(np.array([size], np.int64), (n, 1))
    return choose(op, uniform(seed, 0, np.arange(n), 3, op.draws), sizes)


def names_of(op, found):
    """Per layer the class of what each sample takes."""
    kinds = [[type(one).__name__ for one in layer.ops] + ["nothing"] for layer in layers(op)]
    return [[kind[k] for k in one.choice] for kind, one in zip(kinds, found, strict=True)]


def values_of(op, found, layer, kind):
    """The params of those samples that take this simple op."""
    k = [type(one).__name__ for one in layers(op)[layer].ops].index(kind)
    return {name: value[found[layer].choice == k] for name, value in found[layer].values[k].items()}


def done(parts, found, row, image):
    return run(parts, found, row, image.copy())


@pytest.mark.parametrize("op", [RandAugment(), TrivialAugmentWide()], ids=repr)
def test_fourteen_ops_are_equally_likely(op):
    found = what_happens(op, 14_000)
    for names in names_of(op, found):
        count = Counter(names)
        assert abs(count.pop("Affine") - 5000) < 200  # two shears, two translations, rotation
        assert set(count) == {
            *("nothing", "Brightness", "Saturation", "Contrast", "Sharpness"),
            *("Posterize", "Solarize", "AutoContrast", "Equalize"),
        }
        assert all(abs(times - 1000) < 130 for times in count.values()), count


def test_ops_of_a_sample_are_drawn_apart():
    first, second = names_of(RandAugment(), what_happens(RandAugment(), 14_000))
    both = sum(a == b == "Affine" for a, b in zip(first, second, strict=True))
    assert abs(both - 14_000 * 25 / 196) < 150
    assert [len(layers(RandAugment(n))) for n in (1, 3)] == [1, 3]


def test_rand_augment_has_one_strength_and_two_directions():
    op = RandAugment(magnitude=9)
    found = what_happens(op, 4000)
    for kind in ("Brightness", "Saturation", "Contrast", "Sharpness"):
        factor = values_of(op, found, 1, kind)["factor"]
        np.testing.assert_allclose(np.unique(factor), [0.73, 1.27], atol=1e-6)
        assert 0.35 < (factor > 1).mean() < 0.65
    assert set(values_of(op, found, 0, "Posterize")["bits"].tolist()) == {8 - round(9 / 7.5)}
    np.testing.assert_allclose(
        values_of(op, found, 0, "Solarize")["threshold"], 255 - 255 * 9 / 30, atol=1e-4
    )


def matrices(space, name, level, minus, bins=31, size=(200, 331)):
    """What a move does, by its name."""
    selection = PolicyDraw(np.array([NAMES.index(name)]), np.array([level]), np.array([minus]))
    one = space.choose(NAMES, RandAugment(), selection, bins, np.array([size], np.int64))
    assert one.choice.tolist() == [0]
    return one.values[0]["matrix"][0]


def test_moves_are_those_of_torchvision():
    """Shears hold the top left corner, rotation is counterclockwise about the middle, translations
    are whole pixels.
    """
    shear = matrices(RAND, "ShearX", 9, False)
    np.testing.assert_allclose(shear, [[1, 0.09, 0], [0, 1, 0], [0, 0, 1]], atol=1e-7)
    np.testing.assert_allclose(matrices(RAND, "ShearY", 30, True)[1], [-0.3, 1, 0], atol=1e-7)
    np.testing.assert_allclose(matrices(WIDE, "ShearX", 30, True)[0], [1, -0.99, 0], atol=1e-7)
    assert matrices(RAND, "TranslateX", 9, False)[:2, 2].tolist() == [
        -45,
        0,
    ]  # 150/331 of the side, times 9/30
    assert matrices(RAND, "TranslateY", 9, True)[:2, 2].tolist() == [0, 27]  # of 27.19
    assert matrices(WIDE, "TranslateX", 30, False)[:2, 2].tolist() == [-32, 0]
    assert matrices(MIX, "TranslateX", 9, False, bins=10)[:2, 2].tolist() == [-110, 0]  # of 110.33
    turn, angle = matrices(WIDE, "Rotate", 10, False), np.radians(45)
    np.testing.assert_allclose(
        turn[:2, :2], [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], atol=1e-6
    )
    np.testing.assert_allclose(turn @ [165.5, 100, 1], [165.5, 100, 1])
    image = np.zeros((9, 9, 3), np.uint8)
    image[2, 6] = 255  # top right goes to the top left
    quarter = matrices(WIDE, "Rotate", 20, False, size=(9, 9))
    layer = WIDE.layer(("Rotate",), "nearest", (0, 0, 0))
    turned = done([layer], [Choices(np.zeros(1, np.int64), ({"matrix": quarter[None]},))], 0, image)
    assert np.argwhere(turned[:, :, 0] == 255).tolist() == [[2, 2]]


def test_trivial_augment_draws_its_strength():
    op = TrivialAugmentWide()
    found = what_happens(op, 30_000)
    factor = values_of(op, found, 0, "Contrast")["factor"]
    np.testing.assert_allclose(
        np.unique(factor.round(4)), (1 + 0.033 * np.arange(-30, 31)).round(4), atol=2e-4
    )
    assert set(values_of(op, found, 0, "Posterize")["bits"].tolist()) == {2, 3, 4, 5, 6, 7, 8}
    threshold = values_of(op, found, 0, "Solarize")["threshold"]
    assert threshold.min() == 0 and threshold.max() == 255 and len(np.unique(threshold)) == 31


@pytest.mark.parametrize("policy", list(POLICIES))
def test_auto_augment_takes_its_pairs_as_often_as_it_should(policy):
    op: Any = AutoAugment(policy)
    assert len(POLICIES[policy]) == 25
    first, second = names_of(op, what_happens(op, 20_000))
    real = {
        "Color": "Saturation",
        **dict.fromkeys(("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"), "Affine"),
    }
    want: dict[tuple[str, str], float] = defaultdict(float)
    for (a, p, _), (b, q, _) in POLICIES[policy]:
        a, b = real.get(a, a), real.get(b, b)
        for one, share in ((a, p), ("nothing", 1 - p)):
            for two, part in ((b, q), ("nothing", 1 - q)):
                want[one, two] += share * part * 800
    got = Counter(zip(first, second, strict=True))
    assert set(got) <= {pair for pair, times in want.items() if times > 0}
    for pair, times in want.items():
        assert abs(got[pair] - times) < 5 * np.sqrt(times) + 1, pair


def test_auto_augment_has_the_strengths_of_its_tables():
    op = AutoAugment("imagenet")
    factors = values_of(op, what_happens(op, 20_000), 1, "Contrast")["factor"]
    np.testing.assert_allclose(np.unique(factors), [0.2, 1.8], atol=1e-6)  # level 8 of 9, of 0.9
    bits = values_of(op, what_happens(op, 20_000), 0, "Posterize")["bits"]
    assert set(bits.tolist()) == {8 - round(level / 2.25) for level in (8, 7, 5)}


@pytest.mark.parametrize("op", POLICY_OPS, ids=repr)
def test_pixels_are_those_of_the_ops_in_turn(op):
    """To the bit: running all layers at once changes nothing; and Pillow's ops give the same but
    for a few edges.
    """
    n, image = 24, picture(3)
    found, alike = what_happens(op, n, image.shape[:2]), []
    for row in range(n):
        got, one_by_one = done(layers(op), found, row, image), image
        for layer, one in zip(layers(op), found, strict=True):
            one_by_one = done([layer], [one], row, one_by_one)
        np.testing.assert_array_equal(got, one_by_one)
        want = np.asarray(by_pillow(layers(op), found, row, Image.fromarray(image)), np.int64)
        alike.append((np.abs(got.astype(np.int64) - want) <= 2).mean())
    assert np.median(alike) > 0.999 and np.mean(alike) > 0.97, np.sort(alike)


@pytest.mark.parametrize("op", POLICY_OPS, ids=repr)
def test_a_row_depends_on_its_own_numbers_and_size_only(op):
    u, sizes = uniform(1, 2, np.arange(9), 3, op.draws), np.arange(18).reshape(9, 2) * 17 + 1
    whole = choose(op, u, sizes)
    for row in range(9):
        for one, alone in zip(
            whole, choose(op, u[row : row + 1], sizes[row : row + 1]), strict=True
        ):
            assert one.choice[row] == alone.choice[0]
            for its, own in zip(one.values, alone.values, strict=True):
                for name, value in its.items():
                    np.testing.assert_array_equal(value[row], own[name][0])


def test_they_nest():
    op = Sequential([RandAugment(1), TrivialAugmentWide()])
    assert op.draws == 5 and len(op.layers) == 2
    alone = choose(
        TrivialAugmentWide(), uniform(0, 0, np.arange(5), 3, 5)[:, 2:], np.full((5, 2), 20)
    )
    np.testing.assert_array_equal(what_happens(op, 5, (20, 20))[1].choice, alone[0].choice)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: RandAugment(0),
            "RandAugment num_ops must be an integer in [1, 16], got 0; 2 is usual",
        ),
        (
            lambda: RandAugment(magnitude=31),
            "RandAugment magnitude must be an integer in [0, 30], got 31",
        ),
        (lambda: RandAugment(magnitude=cast("Any", 9.5)), "got 9.5; it is one of bins=31 levels"),
        (lambda: RandAugment(bins=1), "RandAugment bins must be an integer in [2, 1000], got 1"),
        (lambda: TrivialAugmentWide(True), "TrivialAugmentWide bins must be an integer"),
        (
            lambda: TrivialAugmentWide(filter="lanczos"),
            "TrivialAugmentWide filter must be one of bilinear, nearest",
        ),
        (
            lambda: AutoAugment("mnist"),
            "AutoAugment policy must be one of imagenet, cifar10, svhn, got 'mnist'",
        ),
        (
            lambda: AutoAugment(fill=(0, 0, 300)),
            "AutoAugment fill must be three integers in [0, 255]",
        ),
    ],
)
def test_errors_say_what_is_allowed(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert text in str(error.value)


@pytest.mark.parametrize("op", [RandAugment(), TrivialAugmentWide(), AutoAugment()], ids=repr)
def test_they_need_bytes_of_one_size(op):
    with pytest.raises(SpecError, match=f"{type(op).__name__} needs images of one size"):
        op.out(Spec((None, None, 3), "uint8", "HWC"))
