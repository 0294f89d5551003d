"""Conversion: whatever the list, it is one multiplication and one addition per channel."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fastfeed.errors import ConfigError, MissingExtra, SpecError
from fastfeed.feed.feed import Feed
from fastfeed.ops import Decode, Invert, MixUp, Normalize, OneHot, Standardize, ToFloat, ToLayout
from fastfeed.ops.convert import Convert
from fastfeed.ops.program.compile import fuse
from fastfeed.sources import Arrays
from fastfeed.spec import ENCODED, PIXELS, Spec

GRAY = Spec((28, 28, 1), "uint8", "HWC")
MEAN, STD = (0.5, 0.25, 0.125), (0.5, 0.2, 2.0)
LEVELS = np.arange(256)[:, None] * np.ones(3)


@pytest.mark.parametrize(
    ("ops", "values", "dtype", "layout"),
    [
        ([], LEVELS, "uint8", "HWC"),
        ([ToLayout("CHW")], LEVELS, "uint8", "CHW"),
        ([ToLayout("CHW"), ToLayout("HWC")], LEVELS, "uint8", "HWC"),
        ([ToFloat()], LEVELS / 255, "float32", "HWC"),
        ([ToFloat("float16"), ToLayout("CHW")], LEVELS / 255, "float16", "CHW"),
        ([Normalize(MEAN, STD)], (LEVELS / 255 - MEAN) / STD, "float32", "HWC"),
        ([ToFloat(), Normalize(MEAN, STD)], (LEVELS / 255 - MEAN) / STD, "float32", "HWC"),
        ([ToFloat("float16"), Normalize(MEAN, STD)], (LEVELS / 255 - MEAN) / STD, "float16", "HWC"),
        ([Normalize(MEAN, STD), ToFloat("float16")], (LEVELS / 255 - MEAN) / STD, "float16", "HWC"),
        ([Normalize(MEAN, STD)] * 2, ((LEVELS / 255 - MEAN) / STD - MEAN) / STD, "float32", "HWC"),
    ],
    ids=str,
)
def test_table(ops, values, dtype, layout):
    spec = Spec((4, 5, 3), "uint8", "HWC")
    convert = Convert.of(ops, 3)
    for op in ops:
        spec = op.out(spec)
    assert (convert.dtype, convert.layout) == (dtype, layout) == (spec.dtype, spec.layout)
    assert convert.keeps_bytes == (dtype == "uint8")
    table = convert.table()
    assert (table.shape, table.dtype) == ((256, 3), np.dtype(dtype))
    np.testing.assert_allclose(table, values, rtol=1e-6 if dtype != "float16" else 1e-3, atol=1e-6)


def test_table_is_rounded_once():
    """Scaled in float64, then stored: each of the 256 values is the nearest there is."""
    np.testing.assert_array_equal(
        Convert.of([ToFloat()], 1).table()[:, 0], (np.arange(256) / 255).astype("float32")
    )


def test_bfloat16_is_the_nearest_to_float32_and_even_between_two():
    """bfloat16 is the upper half of float32's bits."""
    ops = [Normalize(MEAN, STD), ToFloat("bfloat16")]
    bits = Convert.of(ops[:1], 3).table().view(np.uint32).astype(np.int64)
    upper = bits + 0x7FFF + (bits >> 16 & 1) >> 16
    table = Convert.of(ops, 3).table()
    assert table.dtype.name == "bfloat16"
    np.testing.assert_array_equal(table.view(np.uint16), upper)


def test_bfloat16_needs_a_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    for make in (lambda: ToFloat("bfloat16"), lambda: Spec((2, 2, 3), "bfloat16", "HWC")):
        with pytest.raises(MissingExtra) as error:
            make()
        text = "dtype \"bfloat16\" needs ml_dtypes: pip install 'fastfeed[bfloat16]'"
        assert str(error.value) == text


def test_imagenet():
    assert Normalize.imagenet() == Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    table = Convert.of([Normalize.imagenet()], 3).table()
    np.testing.assert_allclose(
        table[255], [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("levels", "expected"),
    [  # by tf.image.per_image_standardization of the image in 0..1, TensorFlow 2.21
        ([0, 51, 102, 255], [-0.8, -0.4, 0, 1.2]),
        ([7, 7, 7, 8], [-0.00196079, -0.00196079, -0.00196079, 0.00588235]),  # below the floor
        ([9, 9, 9, 9], [0, 0, 0, 0]),
    ],
)
def test_standardize(levels, expected):
    images = np.array(levels, np.uint8).reshape(1, 2, 2, 1)
    for ops in ([Standardize()], [Invert(), Invert(), ToFloat(), Standardize()]):
        batch = next(iter(Feed(Arrays(images), ops, batch=1)))
        np.testing.assert_allclose(batch.images.ravel(), expected, rtol=1e-5, atol=1e-6)
    pair = Arrays(np.tile(images, (2, 1, 1, 1)), np.array([0, 1]))
    mixed = Feed(pair, [OneHot(2), MixUp(), Standardize()], batch=2)
    np.testing.assert_allclose(next(iter(mixed)).images[1].ravel(), expected, rtol=1e-5, atol=1e-6)


def test_standardize_takes_the_place_of_normalize():
    with pytest.raises(SpecError) as error:
        Convert.of([Normalize((0.5,), (0.5,)), Standardize()], 1)
    assert str(error.value) == (
        "Standardize takes the place of Normalize, got Normalize(mean=(0.5,), std=(0.5,)) and"
        " Standardize(); leave one of them out"
    )
    with pytest.raises(ConfigError) as error:
        fuse([Standardize()], GRAY).refuse_per_image('backend="dali"')
    assert str(error.value) == (
        'backend="dali" cannot run Standardize(), by each image\'s own mean; use backend="cpu"'
    )


@pytest.mark.parametrize(
    ("op", "before", "after"),
    [
        (ToFloat(), GRAY, Spec((28, 28, 1), "float32", "HWC")),
        (ToFloat("float16"), PIXELS, Spec((None, None, 3), "float16", "HWC")),
        (ToLayout("CHW"), GRAY, Spec((1, 28, 28), "uint8", "CHW")),
        (ToLayout("CHW"), Spec((4, None, 3), "uint8", "HWC"), Spec((3, 4, None), "uint8", "CHW")),
        (ToLayout("HWC"), Spec((3, 4, 5), "float32", "CHW"), Spec((4, 5, 3), "float32", "HWC")),
        (ToLayout("HWC"), GRAY, GRAY),
        (Normalize((0.5,), (0.5,)), GRAY, Spec((28, 28, 1), "float32", "HWC")),
        (
            Normalize(MEAN, STD),
            Spec((3, 4, 5), "float16", "CHW"),
            Spec((3, 4, 5), "float16", "CHW"),
        ),
        (Decode(), ENCODED, PIXELS),
    ],
    ids=str,
)
def test_out(op, before, after):
    assert op.out(before) == after


@pytest.mark.parametrize(
    ("op", "spec", "text"),
    [
        (ToFloat(), ENCODED, "ToFloat needs pixels, got encoded bytes; put Decode() before it"),
        (
            ToLayout("CHW"),
            ENCODED,
            "ToLayout needs pixels, got encoded bytes; put Decode() before it",
        ),
        (
            Normalize.imagenet(),
            ENCODED,
            "Normalize needs pixels, got encoded bytes; put Decode() before it",
        ),
        (
            Normalize.imagenet(),
            GRAY,
            (
                "Normalize has 3 channels, got HWC uint8[28, 28, 1]; give one mean and one std per"
                " channel"
            ),
        ),
        (
            Decode(),
            PIXELS,
            (
                "Decode needs encoded bytes, got HWC uint8[?, ?, 3]; put it first, once, and leave"
                " it out for arrays"
            ),
        ),
    ],
    ids=str,
)
def test_refuses_what_comes_before(op, spec, text):
    with pytest.raises(SpecError) as error:
        op.out(spec)
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: ToFloat("float64"),
            "ToFloat dtype must be one of float32, float16, bfloat16, got 'float64'",
        ),
        (lambda: ToLayout("NCHW"), 'ToLayout layout must be "HWC" or "CHW", got \'NCHW\''),
        (
            lambda: Normalize((0.5,), (0.5, 0.5)),
            "Normalize needs as many means as stds, got 1 and 2",
        ),
        (lambda: Normalize((0.5,), (0.0,)), "Normalize std must be > 0 and finite, got (0.0,)"),
        (
            lambda: Normalize((0.5,), (float("nan"),)),
            "Normalize std must be > 0 and finite, got (nan,)",
        ),
        (lambda: Normalize((float("inf"),), (0.5,)), "Normalize mean must be finite, got (inf,)"),
        (
            lambda: Normalize(0.5, (0.5,)),
            "Normalize mean must be a tuple of numbers, one per channel, got 0.5",
        ),
        (
            lambda: Normalize((0.5,), "1"),
            "Normalize std must be a tuple of numbers, one per channel, got '1'",
        ),
        (
            lambda: Decode(matte=(0, 0)),
            "Decode matte must be three integers in [0, 255], got (0, 0)",
        ),
        (
            lambda: Decode(matte=(0, 0, 256)),
            "Decode matte must be three integers in [0, 255], got (0, 0, 256)",
        ),
        (lambda: Decode(matte=255), "Decode matte must be three integers in [0, 255], got 255"),
        (lambda: Decode(max_pixels=0), "Decode max_pixels must be an integer >= 1, got 0"),
    ],
)
def test_refuses(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == text
