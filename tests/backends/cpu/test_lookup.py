"""Native look-ups, counts and conversions of bytes, for any size and not a byte further."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import jpegs
from PIL import Image

from fastfeed.ops import Normalize, ToFloat, ToLayout
from fastfeed.ops.convert import Convert

pytestmark = pytest.mark.skipif(jpegs.native is None, reason=jpegs.NO_KERNEL)
RNG = np.random.default_rng(11)
SIDES = [  # (height, width): around the 64 bytes that are looked up at once
    (1, 1),
    (1, 21),
    (1, 63),
    (1, 64),
    (2, 32),
    (1, 65),
    (1, 127),
    (3, 43),
    (8, 24),
    (1, 191),
    (1, 193),
    (224, 224),
]


@pytest.mark.parametrize("channels", [1, 3])
def test_every_byte_and_none_further(channels: int):
    for sides in SIDES:
        size = sides[0] * sides[1] * channels
        for own in {1, channels}:  # a table for all channels, or one for each
            tables = RNG.integers(0, 256, (256, own), dtype=np.uint8)
            buffer = RNG.integers(0, 256, size + 200, dtype=np.uint8)
            want = buffer.copy()
            inside = want[100:-100].reshape(*sides, channels)
            for c in range(channels):
                inside[:, :, c] = tables[:, c % own][inside[:, :, c]]
            got = buffer[100:-100].reshape(*sides, channels)
            jpegs.native.testing.look_up(got, tables[:, 0].copy() if own == 1 else tables, got)
            np.testing.assert_array_equal(got, inside, str(sides))
            np.testing.assert_array_equal(buffer, want)


@pytest.mark.parametrize("channels", [1, 3])
def test_counts(channels: int):
    for sides in SIDES:
        for levels in (256, 3):  # many values, and few, which neighbors share
            image = RNG.integers(0, levels, (*sides, channels), dtype=np.uint8)
            want = [np.bincount(image[:, :, c].ravel(), minlength=256) for c in range(channels)]
            counts = np.empty((channels, 256), np.uint32)
            jpegs.native.testing.count(image, counts)
            np.testing.assert_array_equal(counts, want, str(sides))


@pytest.mark.parametrize(
    ("image", "table", "out", "message"),
    [
        ((4, 5, 2), (256,), (4, 5, 2), r"image must be uint8 \(height, width, 1 or 3\)"),
        ((4, 5, 3), (255,), (4, 5, 3), r"table must be uint8 \(256,\) or \(256, channels\)"),
        ((4, 5, 3), (256, 2), (4, 5, 3), r"table must be uint8 \(256,\) or \(256, channels\)"),
        ((4, 5, 1), (256, 3), (4, 5, 1), r"table must be uint8 \(256,\) or \(256, channels\)"),
        ((4, 5, 3), (256, 3, 1), (4, 5, 3), r"table must be uint8 \(256,\) or \(256, channels\)"),
        ((4, 5, 3), (256,), (4, 4, 3), "out must be of the image's shape"),
    ],
)
def test_the_kernel_refuses(
    image: tuple[int, ...], table: tuple[int, ...], out: tuple[int, ...], message: str
):
    with pytest.raises(ValueError, match=message):
        jpegs.native.testing.look_up(*(np.zeros(shape, np.uint8) for shape in (image, table, out)))


def test_grays_are_those_of_pillow():
    for sides in SIDES:
        pixels = RNG.integers(0, 256, (*sides, 3), dtype=np.uint8)
        buffer = np.full(pixels.size + 200, 7, np.uint8)
        image = buffer[100:-100].reshape(pixels.shape)
        image[...] = pixels
        jpegs.native.testing.gray(image)
        want = np.asarray(Image.fromarray(pixels).convert("L"))
        np.testing.assert_array_equal(image, want[:, :, None].repeat(3, axis=2), str(sides))
        assert (buffer[:100] == 7).all() and (buffer[-100:] == 7).all(), (
            "bytes around the image were written"
        )


def test_the_kernel_takes_no_copies():
    """What is written into a converted copy would be lost."""
    image, table = np.zeros((4, 5, 3), np.uint8), np.zeros(256, np.uint8)
    with pytest.raises(TypeError):
        jpegs.native.testing.look_up(image, table, np.zeros((4, 10, 3), np.uint8)[:, ::2])
    with pytest.raises(TypeError):
        jpegs.native.testing.look_up(image.astype(np.float32), table, image)
    with pytest.raises(TypeError):
        jpegs.native.testing.count(image, np.zeros((3, 256), np.int64))
    with pytest.raises(TypeError):
        jpegs.native.testing.gray(np.zeros((4, 10, 3), np.uint8)[:, ::2])
    with pytest.raises(ValueError, match=r"image must be uint8 \(height, width, 3\)"):
        jpegs.native.testing.gray(image[:, :, :1].copy())
    with pytest.raises(ValueError, match="counts must have one entry per channel"):
        jpegs.native.testing.count(image, np.zeros((1, 256), np.uint32))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("channels", [1, 3])
def test_conversion_is_its_table(channels: int, layout: str, dtype: str):
    for sides in SIDES:
        mean = (0.4, 0.5, 0.3)[:channels]
        how = Convert.of([ToFloat(dtype), Normalize(mean, mean), ToLayout(layout)], channels)
        pixels = RNG.integers(0, 256, (*sides, channels), dtype=np.uint8)
        want = np.stack(
            [how.table()[:, c][pixels[..., c]] for c in range(channels)],
            axis=-1 if layout == "HWC" else 0,
        )
        buffer = np.full(want.size + 64, 7, dtype)
        out = buffer[32:-32].reshape(want.shape)
        jpegs.native.testing.convert(pixels, how.table(), out, layout == "CHW")
        np.testing.assert_array_equal(buffer[32:-32].reshape(want.shape), want, str(sides))
        assert (buffer[:32] == 7).all() and (buffer[-32:] == 7).all(), (
            "bytes around the images were written"
        )


@pytest.mark.parametrize(
    ("table", "dtypes", "out", "planar", "message"),
    [
        ((256, 3), "fd", (4, 5, 3), False, "table and out must be of one dtype of 2 or 4 bytes"),
        ((256, 3), "dd", (4, 5, 3), False, "table and out must be of one dtype of 2 or 4 bytes"),
        ((256, 1), "ff", (4, 5, 3), False, r"table must be \(256, channels\)"),
        ((3, 256), "ff", (4, 5, 3), False, r"table must be \(256, channels\)"),
        ((256, 3), "ff", (3, 4, 5), False, "out must be of the image's shape"),
        (
            (256, 3),
            "ff",
            (4, 5, 3),
            True,
            "out must be of the image's shape, channels first if planar",
        ),
    ],
)
def test_the_kernel_refuses_to_convert(
    table: tuple, dtypes: str, out: tuple, planar: bool, message: str
):
    image = np.zeros((4, 5, 3), np.uint8)
    with pytest.raises(ValueError, match=message):
        jpegs.native.testing.convert(
            image, np.zeros(table, dtypes[0]), np.zeros(out, dtypes[1]), planar
        )
