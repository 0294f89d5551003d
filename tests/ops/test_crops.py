"""Crop, RandomCrop, Pad, and the ways of Resize to keep a shape, against plain references."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops import CenterCrop, Crop, Pad, RandomCrop, Resize
from fastfeed.ops.base import Border
from fastfeed.ops.program.compile import fuse
from fastfeed.ops.program.window import Step, fold
from fastfeed.sampling.rng import uniform
from fastfeed.spec import ENCODED, PIXELS, Spec

SIDES = st.integers(1, 3000)
IMAGES = st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=6)


def pixels(height, width):
    return Spec((height, width, 3), "uint8", "HWC")


def moved(op, sizes, u=None):
    """Boxes and sizes as lists."""
    sizes = np.array(sizes, np.int64)
    got = op.params(np.empty((0, 0)) if u is None else np.array(u), sizes)
    assert {name: (a.shape, a.dtype) for name, a in got.items()} == {
        "box": ((len(sizes), 4), np.float64),
        "size": ((len(sizes), 2), np.int64),
        "flip": ((len(sizes), 2), np.bool_),
    }
    assert not got["flip"].any()
    return got["box"].tolist(), got["size"].tolist()


# -- Resize


@pytest.mark.parametrize(
    ("image", "result"),
    [
        ((500, 400), (256, 204)),
        ((400, 500), (204, 256)),
        ((64, 64), (256, 256)),
        ((1000, 1), (256, 1)),
    ],
    ids=str,
)
def test_resize_by_the_long_side(image, result):
    op = Resize(256, fit="long")
    assert moved(op, [image]) == ([[0, 0, *image]], [list(result)])
    assert op.out(pixels(*image)) == pixels(*result)
    assert op.out(PIXELS) == PIXELS


def test_resize_of_an_int_to_a_square():
    assert moved(Resize(20, fit="exact"), [(30, 50)])[1] == [[20, 20]]
    assert Resize(20, fit="exact").out(PIXELS) == pixels(20, 20)
    assert Resize((20, 30), fit="exact").params(np.empty((0, 0)), np.array([[9, 9]]))[
        "size"
    ].tolist() == [[20, 30]]


@pytest.mark.parametrize(
    ("size", "image", "box"),
    [
        ((100, 100), (100, 50), (0, -25, 100, 100)),
        ((100, 100), (50, 100), (-25, 0, 100, 100)),
        (100, (200, 100), (0, -50, 200, 200)),
        (100, (100, 100), (0, 0, 100, 100)),
        ((10, 30), (20, 20), (0, -20, 20, 60)),
        ((10, 10), (10, 5), (0, -2, 10, 10)),  # an odd rest: one more at the right
    ],
    ids=str,
)
def test_resize_with_a_border_in_whole_pixels(size, image, box):
    want = list(size) if isinstance(size, tuple) else [size, size]
    assert moved(Resize(size, fit="pad"), [image]) == ([list(map(float, box))], [want])


@given(st.tuples(st.integers(1, 500), st.integers(1, 500)), IMAGES)
def test_resize_with_a_border_keeps_the_shape_and_the_middle(size, images):
    op = Resize(size, fit="pad")
    boxes, results = moved(op, images)
    for (height, width), box, got in zip(images, boxes, results, strict=True):
        assert got == list(size)
        scale = min(size[0] / height, size[1] / width)
        unit = (box[2] / size[0], box[3] / size[1])
        inner = (height / unit[0], width / unit[1])  # what the image becomes
        for side, source, room, corner, step in zip(
            inner, (height, width), size, box[:2], unit, strict=True
        ):
            assert side == pytest.approx(round(side)) and 1 <= round(side) <= room
            assert round(side) == 1 or abs(round(side) - source * scale) <= 0.5 + 1e-9
            place = -corner / step
            assert (
                place == pytest.approx(round(place)) and round(place) == (room - round(side)) // 2
            )


def test_resize_says_its_border():
    assert Resize(8).border is None and Resize((8, 9)).border is None
    assert Resize(8, fit="pad", fill=[1, 2, 3]).border == Border("constant", (1, 2, 3))
    assert repr(Resize((8, 8))) == "Resize(size=(8, 8), filter='bilinear')"
    assert (
        repr(Resize(8, "box", "pad", (1, 2, 3)))
        == "Resize(size=8, filter='box', fit='pad', fill=(1, 2, 3))"
    )


# -- Crop


@pytest.mark.parametrize(
    ("op", "image", "box"),
    [
        (Crop(3, 4, (5, 6)), (20, 20), (3, 4, 5, 6)),
        (Crop(3, 4, 16), (19, 20), (3, 4, 16, 16)),
        (Crop(3, 4, 16), (18, 19), (2, 3, 16, 16)),  # moved inward
        (Crop(3, 4, 16), (40, 8), (3, 0, 8, 8)),  # enlarged
    ],
    ids=str,
)
def test_crop(op, image, box):
    want = [op.size, op.size] if isinstance(op.size, int) else list(op.size)
    assert moved(op, [image]) == ([list(map(float, box))], [want])


# -- RandomCrop


def torchvision_corner(op, u, image):
    """RandomCrop.make_params of torchvision, its random calls answered from u."""
    padding = op.padding if isinstance(op.padding, tuple) else (op.padding, op.padding)
    top, left, bottom, right = padding * (4 // len(padding))
    size = (op.size, op.size) if isinstance(op.size, int) else op.size
    room = (image[0] + top + bottom - size[0], image[1] + left + right - size[1])
    return [int(u[0] * (room[0] + 1)) - top, int(u[1] * (room[1] + 1)) - left]


CROPS = st.sampled_from(
    [
        RandomCrop(24),
        RandomCrop((9, 32), 4),
        RandomCrop(32, (0, 7)),
        RandomCrop(20, (1, 2, 3, 4), "reflect"),
    ]
)


@given(
    CROPS,
    st.lists(st.tuples(st.integers(32, 500), st.integers(32, 500)), min_size=1, max_size=6),
    st.integers(0),
)
def test_random_crop_is_torchvisions(op, images, seed):
    u = uniform(seed % 2**64, 0, np.arange(len(images)), 0, 2)
    boxes, results = moved(op, images, u)
    want = [op.size, op.size] if isinstance(op.size, int) else list(op.size)
    assert results == [want] * len(images)
    assert boxes == [
        [*torchvision_corner(op, u[i], image), *want] for i, image in enumerate(images)
    ]


def test_random_crop_is_equally_often_everywhere():
    u = uniform(0, 0, np.arange(30_000), 0, 2)
    corner = RandomCrop(32, 4).params(u, np.full((30_000, 2), 32))["box"][:, :2].astype(int)
    for axis in (0, 1):
        np.testing.assert_allclose(np.bincount(corner[:, axis] + 4) / 30_000, 1 / 9, rtol=0.06)
    assert abs(np.corrcoef(corner.T)[0, 1]) < 0.02


@pytest.mark.parametrize("u", [(0.0, 0.0), (0.999, 0.999), (0.3, 0.6)])
def test_random_crop_of_a_small_image_is_as_large_as_it_can_be(u):
    ((top, left, height, width),), sizes = moved(RandomCrop((32, 16), 2), [(12, 40)], [u])
    assert sizes == [[32, 16]] and (height, width) == (16, 8)  # of 16 x 44 with its padding
    assert top == -2 and left == pytest.approx(-2 + u[1] * 36)


def test_the_last_draw_below_one_stays_inside():
    last = np.nextafter(1, 0)
    (box,), _ = moved(RandomCrop(3), [(2**30 + 2, 5)], [(last, last)])
    assert box == [2**30 - 1, 2, 3, 3]


# -- Pad


@pytest.mark.parametrize(
    ("padding", "box", "size"),
    [
        (3, (-3, -3, 16, 26), (16, 26)),
        ((1, 2), (-1, -2, 12, 24), (12, 24)),
        ([1, 2, 3, 4], (-1, -2, 14, 26), (14, 26)),
        (0, (0, 0, 10, 20), (10, 20)),
    ],
    ids=str,
)
def test_pad(padding, box, size):
    op = Pad(padding)
    assert moved(op, [(10, 20)]) == ([list(map(float, box))], [list(size)])
    assert op.out(pixels(10, 20)) == pixels(*size)
    assert op.out(PIXELS) == PIXELS
    assert (op.border is None) == (padding == 0)
    assert Pad(1, "edge").border == Border("edge")


def test_a_crop_of_the_padded_image_in_one_window():
    """And what the first crop cut away is border, too."""
    ops = [Crop(10, 20, (50, 60)), Pad(5), Crop(0, 0, 30)]
    steps = [Step(op, None, 0) for op in ops]
    got = fold(steps, [np.empty((0, 0))] * 3, np.array([[100, 100]]))
    assert got.boxes.tolist() == [[5, 15, 30, 30]] and got.sizes.tolist() == [[30, 30]]
    assert got.limits is not None and got.limits.tolist() == [[10, 20, 50, 60]]


# -- refusals

PADDING = (
    "padding must be an int, (top and bottom, left and right) or (top, left, bottom, right), in [0,"
    " 65535] pixels"
)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: Resize(8, fit="inside"),
            'Resize fit must be "exact", "short", "long", "pad", "pad_floor", "corner", "cover" or'
            " \"crop\", got 'inside'",
        ),
        (
            lambda: Resize((8, 9), fit="long"),
            (
                'Resize fit="long" needs one side, got (8, 9); write Resize(8, fit="long"), or'
                ' fit="pad" for both'
            ),
        ),
        (
            lambda: CenterCrop(8, fill=(1, 1, 1)),
            (
                "CenterCrop mode and fill are for pad_if_needed, got mode='constant', fill=(1, 1, 1)"
                " without it; pass pad_if_needed=True, or leave them out"
            ),
        ),
        (
            lambda: Resize(8, fill=(1, 1, 1)),
            'Resize fill is for fit="pad", "pad_floor" and "corner", got fit=None; leave it out',
        ),
        (
            lambda: Resize(8, fit="pad", fill=3),
            "Resize fill must be three integers in [0, 255], RGB, got 3",
        ),
        (lambda: Crop(-1, 0, 5), "Crop top must be an integer in [0, 65535] pixels, got -1"),
        (lambda: Crop(0, 0.5, 5), "Crop left must be an integer in [0, 65535] pixels, got 0.5"),
        (lambda: Crop(0, 0, 0), "Crop size must be in [1, 65535] pixels, got 0"),
        (lambda: RandomCrop("x"), "RandomCrop size must be an int or (height, width), got 'x'"),
        (lambda: RandomCrop(8, -1), f"RandomCrop {PADDING}, got -1"),
        (lambda: RandomCrop(8, (1, 2, 3)), f"RandomCrop {PADDING}, got (1, 2, 3)"),
        (
            lambda: RandomCrop(8, 1, "wrap"),
            'RandomCrop mode must be "constant", "edge", "reflect" or "symmetric", got \'wrap\'',
        ),
        (
            lambda: RandomCrop(8, 1, "edge", (1, 2, 3)),
            "RandomCrop fill is for mode=\"constant\", got mode='edge'; leave it out",
        ),
        (lambda: Pad(1.5), f"Pad {PADDING}, got 1.5"),
        (
            lambda: Pad(1, fill=(0, 0, 256)),
            "Pad fill must be three integers in [0, 255], RGB, got (0, 0, 256)",
        ),
    ],
)
def test_refuses(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (
            Crop(10, 0, 30),
            (
                "Crop(top=10, left=0, size=30) reaches beyond uint8[32, 40, 3]; put Resize before"
                " it, or Pad where a border is wanted, or write CenterCrop(size)"
            ),
        ),
        (
            RandomCrop(40, 3),
            (
                "RandomCrop(size=40, padding=3, mode='constant', fill=(0, 0, 0),"
                " pad_if_needed=False) needs images at"
                " least that large, got uint8[32, 40, 3]; write padding=..., or put Resize"
                " before it"
            ),
        ),
    ],
    ids=str,
)
def test_refuses_images_that_are_too_small(op, text):
    with pytest.raises(SpecError) as error:
        op.out(pixels(32, 40))
    assert text in str(error.value).replace("HWC ", "")


@pytest.mark.parametrize(
    "op", [Crop(0, 0, 8), RandomCrop(8), Pad(1), Resize(8, fit="pad")], ids=str
)
def test_needs_pixels(op):
    with pytest.raises(SpecError, match="needs HWC pixels, got encoded bytes; put Decode"):
        op.out(ENCODED)


def test_a_second_border_needs_images_of_one_size():
    ops = [Pad(5), RandomCrop(24, 4), Resize((30, 30))]
    fuse(ops, Spec((20, 20, 3), "uint8", "HWC"))
    with pytest.raises(SpecError) as error:
        fuse(ops, ENCODED)
    assert (
        str(error.value)
        == "RandomCrop(size=24, padding=4, mode='constant', fill=(0, 0, 0), pad_if_needed=False)"
        " cannot follow"
        " Pad(padding=5, mode='constant', fill=(0, 0, 0)) where images are of many sizes, got"
        " HWC uint8[?, ?, 3]: each adds a border; put Resize((height, width)) between them, or"
        " leave one out"
    )
