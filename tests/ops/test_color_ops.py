"""Color ops: what they refuse, how their numbers are spread, and that every way to compute one
gives the same.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from helpers.op_examples.color import EXAMPLES, turned
from helpers.opencv_ops.chain import run
from helpers.opencv_ops.kernels import KERNELS
from helpers.photos import picture
from PIL import Image

import fastfeed as ff
from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.program.layers import layers, simple
from fastfeed.sampling.rng import uniform
from fastfeed.spec import Spec

MANY = 4_000
RNG = np.random.default_rng(5)
NOISE = RNG.integers(0, 256, (31, 43, 3), dtype=np.uint8)
FEW_TONES = RNG.integers(100, 111, (31, 43, 3), dtype=np.uint8)
ONE_TONE = np.full((5, 4, 3), (7, 200, 93), np.uint8)
EVERY = [picture(3), NOISE, FEW_TONES, ONE_TONE, NOISE[:1, :1].copy(), NOISE[:, :1].copy()]
EVERY += [np.ascontiguousarray(image[:, :, :1]) for image in EVERY]
ON_BYTES = [op for kind in EXAMPLES for op in EXAMPLES[kind] if simple(op)]


def values_of(op, n=MANY):
    sizes = np.tile(np.array([[8, 8]]), (n, 1))
    return op.params(uniform(1, 0, np.arange(n), 2, op.draws), sizes)


@pytest.mark.parametrize(
    ("op", "low", "high"),
    [
        (ff.Brightness(0.4), 0.6, 1.4),
        (ff.Brightness(1.5), 0.0, 2.5),
        (ff.Contrast((0.5, 3)), 0.5, 3.0),
        (ff.Saturation(0.25), 0.75, 1.25),
        (ff.Hue(0.1), -0.1, 0.1),
        (ff.Hue((0.2, 0.3)), 0.2, 0.3),
        (ff.Gamma((0.5, 2)), 0.5, 2.0),
        (ff.Solarize((10, 250)), 10.0, 250.0),
    ],
    ids=repr,
)
def test_numbers_are_uniform_in_their_range(op, low, high):
    (found,) = values_of(op).values()
    assert found.dtype == np.float64 and low <= found.min() and found.max() < high
    shares = np.histogram(found, 10, (low, high))[0] / MANY
    assert np.abs(shares - 0.1).max() < 0.02


def test_bits_are_uniform_with_both_ends():
    bits = values_of(ff.Posterize((3, 6)))["bits"]
    assert bits.dtype == np.int64
    shares = np.bincount(bits, minlength=9) / MANY
    np.testing.assert_allclose(shares, [0, 0, 0, 0.25, 0.25, 0.25, 0.25, 0, 0], atol=0.03)


@pytest.mark.parametrize(
    ("op", "name", "value"),
    [
        (ff.Gamma(2), "gamma", 2.0),
        (ff.Solarize(100), "threshold", 100.0),
        (ff.Posterize(3), "bits", 3),
        (ff.SolarizeAdd(9), "amount", 9),
        (ff.Hue((0.25, 0.25)), "shift", 0.25),
        (ff.Brightness(0), "factor", 1.0),
    ],
    ids=repr,
)
def test_a_fixed_number_takes_no_draw(op, name, value):
    assert op.draws == 0
    assert values_of(op, 3)[name].tolist() == [value] * 3


COLORFUL = [
    ff.Saturation((0, 2)),
    ff.Hue(0.5),
    ff.Grayscale(),
    ff.ToBGR(),
    ff.ChannelShuffle(),
    ff.ChannelDropout((1, 2), (7, 8, 9)),
]


@pytest.mark.parametrize("op", COLORFUL, ids=repr)
def test_one_channel_has_no_color(op):
    image = NOISE[:, :, :1].copy()
    values = values_of(op, 5)
    for row in range(5):
        np.testing.assert_array_equal(KERNELS[type(op)](op, values, row, image.copy()), image)


@pytest.mark.parametrize("factor", [0.0, 0.37, 1.0, 1.9, 3.0])
def test_grays_stay_grays_whatever_the_saturation(factor):
    gray = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None], 3, axis=2)
    done = KERNELS[ff.Saturation](ff.Saturation(0), {"factor": np.array([factor])}, 0, gray.copy())
    np.testing.assert_array_equal(done, gray)


@pytest.mark.parametrize(
    "shift",
    [
        *(-0.5, -0.2, 1e-3, 1 / 3),
        *(
            pytest.param(shift, marks=pytest.mark.slow)
            for shift in (-0.43, -1 / 3, -1e-3, 0.0, 1 / 6, 0.17, 0.49, 0.5)
        ),
    ],
)
def test_hue_of_all_colors(shift):
    """Every fourth level of each channel, in more than one block."""
    levels = np.r_[0:256:4, 255].astype(np.uint8)
    colors = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(65 * 5, -1, 3)
    values = {"shift": np.array([shift])}
    done = KERNELS[ff.Hue](ff.Hue(0.5), values, 0, colors.copy())
    assert np.abs(done.astype(int) - turned(ff.Hue(0.5), values, 0, colors)).max() <= 1


def jitter(op, n, seed=0):
    sizes = np.tile(np.array([[31, 43]]), (n, 1))
    return op.choose(uniform(seed, 0, np.arange(n), 0, op.draws), sizes)


def test_jitter_has_all_24_orders_equally_often():
    orders = np.stack(
        [one.choice for one in jitter(ff.ColorJitter(0.4, 0.4, 0.4, 0.1), 12_000)], axis=1
    )
    assert (np.sort(orders, axis=1) == np.arange(4)).all()
    counts = Counter(map(tuple, orders.tolist()))
    assert len(counts) == 24
    assert max(abs(count - 500) for count in counts.values()) < 100


def test_jitter_is_its_ops_one_by_one():
    op = ff.ColorJitter(0.4, (0.5, 2.0), 0.4, 0.1)
    took = jitter(op, 40)
    for row in range(40):
        got = run(op.layers, took, row, NOISE.copy())
        want = NOISE.copy()
        for one in took:
            k = int(one.choice[row])
            want = run(
                layers(op.ops[k]),
                [type(one)(np.zeros(40, int), (one.values[k],))],
                row,
                want,
            )
        np.testing.assert_array_equal(got, want)


def test_jitter_values_are_those_of_its_ops():
    op = ff.ColorJitter(0.4, (0.5, 2.0), 0.0, (-0.2, 0.1))
    values = jitter(op, MANY)[0].values
    assert [next(iter(one)) for one in values] == ["factor", "factor", "shift"]
    for one, (low, high) in zip(values, [(0.6, 1.4), (0.5, 2.0), (-0.2, 0.1)], strict=True):
        (found,) = one.values()
        assert low <= found.min() and found.max() < high
        assert found.mean() == pytest.approx((low + high) / 2, abs=(high - low) / 30)
    apart = np.corrcoef(np.stack([next(iter(one.values())) for one in values]))
    assert np.abs(apart - np.eye(3)).max() < 0.06


def test_jitter_leaves_out_what_changes_nothing():
    assert ff.ColorJitter().layers == () and ff.ColorJitter().draws == 0
    assert ff.ColorJitter(brightness=(1, 1), hue=(0.0, 0.0)).ops == ()
    assert (
        ff.ColorJitter(contrast=0.3).ops == (ff.Contrast(0.3),)
        and ff.ColorJitter(contrast=0.3).draws == 1
    )
    assert ff.ColorJitter(0.1, saturation=(2, 2)).draws == 2
    assert jitter(ff.ColorJitter(), 3) == []


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: ff.Brightness(-1),
            (
                "Brightness amount must be a number in [0, 100] or a pair (low, high) of such"
                " numbers, got -1; write Brightness(0.4) or Brightness((0.6, 1.4)) for factors from"
                " 0.6 to 1.4"
            ),
        ),
        (
            lambda: ff.Contrast((1.2, 0.8)),
            "got (1.2, 0.8); write Contrast(0.4) or Contrast((0.6, 1.4))",
        ),
        (lambda: ff.Saturation("0.4"), "Saturation amount must be a number in [0, 100]"),
        (lambda: ff.Brightness(float("nan")), "got nan; write Brightness(0.4)"),
        (lambda: ff.Brightness(True), "got True"),
        (lambda: ff.Hue(0.6), "Hue amount must be a number in [0, 0.5]"),
        (lambda: ff.Hue((-0.6, 0.1)), "Hue amount must be a number in [-0.5, 0.5]"),
        (lambda: ff.Gamma(0), "Gamma gamma must be a number in [0.01, 100]"),
        (lambda: ff.Solarize(257), "Solarize threshold must be a number in [0, 256]"),
        (
            lambda: ff.Posterize(2.5),
            "Posterize bits must be an integer in [0, 8] or a pair (low, high) of such integers",
        ),
        (lambda: ff.SolarizeAdd(256), "SolarizeAdd amount must be an integer in [0, 255]"),
        (lambda: ff.SolarizeAdd(9, 2.5), "SolarizeAdd threshold must be an integer in [0, 256]"),
        (lambda: ff.RandomGrayscale(2), "RandomGrayscale p must be in [0, 1], got 2"),
        (lambda: ff.ChannelDropout(3), "got 3; write ChannelDropout(1) or ChannelDropout((1, 2))"),
        (lambda: ff.ChannelDropout(fill=(1, 2)), "ChannelDropout fill must be three integers"),
        (lambda: ff.Posterize((4, 9)), "got (4, 9); write Posterize(4) or Posterize((4, 8))"),
        (
            lambda: ff.LUT([1, 2]),
            (
                "LUT table must be 256 integers in [0, 255], or three rows of 256, got (1, 2);"
                " write LUT("
            ),
        ),
        (
            lambda: ff.LUT([[0] * 256] * 2),
            "LUT table must be 256 integers in [0, 255], or three rows of 256, got 2 rows",
        ),
        (lambda: ff.LUT([256] * 256), "got 256 at [0]"),
        (lambda: ff.LUT(np.zeros(256)), "got 0.0 at [0]"),
        (lambda: ff.LUT(7), "got 7"),
        (
            lambda: ff.ColorJitter(brightness=-0.1),
            "ColorJitter brightness must be a number in [0, 100]",
        ),
        (
            lambda: ff.ColorJitter(hue=0.7),
            "got 0.7; write ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4",
        ),
    ],
)
def test_refuses(make, text):
    with pytest.raises(ConfigError) as refused:
        make()
    assert text in str(refused.value)


def test_channels_are_shuffled_into_all_orders_equally_often():
    found, counts = np.unique(
        values_of(ff.ChannelShuffle())["channels"], axis=0, return_counts=True
    )
    assert len(found) == 6 and (np.sort(found, axis=1) == [0, 1, 2]).all()
    assert np.abs(counts / MANY - 1 / 6).max() < 0.02


def test_every_channel_is_dropped_equally_often():
    for count, shares in ((1, [0, 1, 0]), (2, [0, 0, 1]), ((1, 2), [0, 0.5, 0.5])):
        dropped = values_of(ff.ChannelDropout(count))["channels"] < 0
        number = np.bincount(dropped.sum(axis=1), minlength=3) / MANY
        np.testing.assert_allclose(number, shares, atol=0.03)
        np.testing.assert_allclose(dropped.mean(axis=0), dropped.mean(), atol=0.03)


def test_random_grayscale_is_grayscale_of_some():
    images = np.random.default_rng(0).integers(0, 256, (64, 6, 5, 3), np.uint8)
    made = []
    for op in (ff.RandomGrayscale(0.3), ff.Maybe(ff.Grayscale(), 0.3), ff.Grayscale()):
        with ff.Feed(ff.Arrays(images), [op], batch=64, shuffle=False) as feed:
            made.append(next(iter(feed)).images)
    np.testing.assert_array_equal(made[0], made[1])
    gray = (made[0] == made[2]).all(axis=(1, 2, 3))
    assert 8 < gray.sum() < 32
    np.testing.assert_array_equal(made[0][~gray], images[~gray])


def test_refuses_what_comes_before():
    with pytest.raises(SpecError, match="Equalize works on bytes"):
        ff.Equalize().out(Spec((8, 8, 3), "float32", "HWC"))
    with pytest.raises(SpecError, match="ColorJitter needs images of one size"):
        ff.ColorJitter(0.4).out(Spec((None, None, 3), "uint8", "HWC"))
    with pytest.raises(
        SpecError,
        match=r"LUT with three rows needs 3 channels, got .*; write one row of 256 integers",
    ):
        ff.LUT([list(range(256))] * 3).out(Spec((8, 8, 1), "uint8", "HWC"))
    assert ff.AutoContrast().out(Spec((8, 8, 1), "uint8", "HWC")) == Spec((8, 8, 1), "uint8", "HWC")


def test_images_as_keras_preprocesses_them_for_models_of_caffe():
    """BGR, of which the mean of ImageNet is subtracted, without scaling."""
    images = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), np.uint8)
    mean = np.array([103.939, 116.779, 123.68])
    ops = [ff.ToBGR(), ff.Normalize(tuple(mean / 255), (1 / 255,) * 3)]
    with ff.Feed(ff.Arrays(images), ops, batch=4, shuffle=False) as feed:
        batch = next(iter(feed))
    np.testing.assert_allclose(batch.images, images[..., ::-1] - mean, atol=1e-4)


def test_one_channel_of_gray():
    images = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), np.uint8)
    ops = [ff.Grayscale(), ff.Map(lambda image: image[..., :1], "image", out="gray")]
    with ff.Feed(ff.Arrays(images), ops, batch=4, shuffle=False) as feed:
        assert feed.fields["gray"] == ff.Field("gray", (6, 5, 1), "uint8")
        batch = next(iter(feed))
    for pixels, image in zip(batch["gray"], images, strict=True):
        np.testing.assert_array_equal(pixels[..., 0], Image.fromarray(image).convert("L"))
