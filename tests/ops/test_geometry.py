"""Geometry ops against plain references written sample by sample."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops import CenterCrop, RandomCrop, RandomFlip, RandomResize, RandomResizedCrop, Resize
from fastfeed.sampling.rng import uniform
from fastfeed.spec import ENCODED, PIXELS, Spec

NONE = np.empty((0, 0))
SIDES = st.integers(1, 5000)
IMAGES = st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=8)


def moved(op, sizes, u=NONE):
    """Boxes, sizes, flips as lists, after checking their shapes and dtypes."""
    sizes = np.array(sizes, np.int64)
    got = op.params(u, sizes)
    n = len(sizes)
    assert {name: (a.shape, a.dtype) for name, a in got.items()} == {
        "box": ((n, 4), np.float64),
        "size": ((n, 2), np.int64),
        "flip": ((n, 2), np.bool_),
    }
    return got["box"].tolist(), got["size"].tolist(), got["flip"].tolist()


def inside(box, size):
    top, left, height, width = box
    assert height > 0 and width > 0
    assert top >= 0 and left >= 0
    assert top + height <= size[0] + 1e-6 and left + width <= size[1] + 1e-6


# -- Resize


@pytest.mark.parametrize(
    ("op", "image", "result"),
    [
        (Resize((30, 20)), (500, 400), (30, 20)),
        (Resize((30, 20)), (3, 4), (30, 20)),
        (Resize(256), (500, 400), (320, 256)),
        (Resize(256), (400, 500), (256, 320)),
        (Resize(256), (400, 400), (256, 256)),
        (Resize(256), (100, 50), (512, 256)),
        (Resize(256), (257, 333), (256, 331)),  # 331.7, as torchvision: rounded down
        (Resize(1), (1000, 3), (333, 1)),
        (Resize([30, 20]), (500, 400), (30, 20)),  # a list, as from JSON
    ],
    ids=str,
)
def test_resize(op, image, result):
    assert moved(op, [image]) == ([[0, 0, *image]], [list(result)], [[False, False]])
    assert op.out(Spec((*image, 3), "uint8", "HWC")) == Spec((*result, 3), "uint8", "HWC")


@pytest.mark.parametrize(
    ("size", "image", "scaled", "before"),
    [
        ((24, 32), (40, 56), (22, 32), (0, 0)),  # of 22.86 and 32, with a border of 0.57
        ((24, 32), (21, 33), (20, 32), (1, 0)),
        ((24, 32), (64, 64), (24, 24), (0, 4)),
        ((30, 30), (7, 20), (10, 30), (9, 0)),  # of 10.5: 9.75 on either side, not 10
    ],
)
def test_resize_with_a_border_and_sides_rounded_down_is_tensorflows(size, image, scaled, before):
    (box,), results, _ = moved(Resize(size, fit="pad_floor"), [image])
    units = [side / part for side, part in zip(image, scaled, strict=True)]
    assert results == [list(size)]
    edges = [-edge * unit for edge, unit in zip(before, units, strict=True)]
    sides = [side * unit for side, unit in zip(size, units, strict=True)]
    np.testing.assert_allclose(box, [*edges, *sides])


def test_resize_of_unknown_sizes():
    assert Resize(256).out(PIXELS) == PIXELS
    assert Resize((30, 20)).out(PIXELS) == PIXELS.with_size(30, 20)


@given(st.integers(1, 600), IMAGES)
def test_resize_by_the_short_side(size, images):
    _, results, _ = moved(Resize(size), images)
    for (height, width), got in zip(images, results, strict=True):
        short, long = sorted((height, width))
        assert sorted(got) == [size, max(size, int(size * long / short))] or sorted(got) == [
            size,
            size * long // short,
        ]


# -- CenterCrop


@pytest.mark.parametrize(
    ("size", "image", "box"),
    [
        (4, (10, 8), (3, 2, 4, 4)),
        (4, (4, 4), (0, 0, 4, 4)),
        (4, (5, 7), (0, 2, 4, 4)),  # halves go to the even number, as torchvision's round()
        ((2, 6), (10, 8), (4, 1, 2, 6)),
        (8, (4, 6), (0, 1, 4, 4)),  # too small: the largest middle square
        ((8, 4), (4, 6), (0, 2, 4, 2)),
        (8, (20, 4), (8, 0, 4, 4)),
    ],
    ids=str,
)
def test_center_crop(size, image, box):
    want = list(size) if isinstance(size, tuple) else [size, size]
    assert moved(CenterCrop(size), [image]) == ([list(map(float, box))], [want], [[False, False]])


@pytest.mark.parametrize(
    ("needed", "image", "box"),
    [
        (True, (5, 9), (-1, 2, 8, 6)),  # 3 rows are missing: 1 above, 2 below
        (True, (20, 3), (6, -1, 8, 6)),
        (True, (8, 6), (0, 0, 8, 6)),
        ("corner", (5, 9), (0, 2, 8, 6)),
        ("corner", (4, 4), (0, 0, 8, 6)),
    ],
)
def test_center_crop_pads_what_is_too_small(needed, image, box):
    op = CenterCrop((8, 6), fill=(1, 2, 3), pad_if_needed=needed)
    assert moved(op, [image]) == ([list(map(float, box))], [[8, 6]], [[False, False]])
    assert op.out(Spec((*image, 3), "uint8", "HWC")) == Spec((8, 6, 3), "uint8", "HWC")
    assert repr(op) == f"CenterCrop(size=(8, 6), fill=(1, 2, 3), pad_if_needed={needed!r})"


@given(st.tuples(st.integers(1, 600), st.integers(1, 600)), IMAGES)
def test_center_crop_is_inside_and_keeps_its_shape(size, images):
    boxes, _, _ = moved(CenterCrop(size), images)
    for box, image in zip(boxes, images, strict=True):
        inside(box, image)
        assert box[3] / box[2] == pytest.approx(size[1] / size[0])
        if size[0] <= image[0] and size[1] <= image[1]:
            assert box[2:] == list(size)
            assert all(value.is_integer() for value in box)
            assert (
                abs(image[0] - size[0] - 2 * box[0]) <= 1
                and abs(image[1] - size[1] - 2 * box[1]) <= 1
            )


# -- RandomResizedCrop


def torchvision_box(op, u, height, width):
    """RandomResizedCrop.get_params of torchvision, its random calls answered from `u`."""
    area = height * width
    for i in range(10):
        target = area * (op.scale[0] + u[i] * (op.scale[1] - op.scale[0]))
        low, high = math.log(op.ratio[0]), math.log(op.ratio[1])
        ratio = math.exp(low + u[10 + i] * (high - low))
        w, h = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < w <= width and 0 < h <= height:
            return [int(u[20] * (height - h + 1)), int(u[21] * (width - w + 1)), h, w]
    in_ratio = width / height
    w, h = width, height
    if in_ratio < min(op.ratio):
        h = round(w / min(op.ratio))
    elif in_ratio > max(op.ratio):
        w = round(h * max(op.ratio))
    return [(height - h) // 2, (width - w) // 2, h, w]


CROPS = st.sampled_from(
    [
        RandomResizedCrop(224),
        RandomResizedCrop((20, 30), scale=(0.5, 1.0)),
        RandomResizedCrop(7, ratio=(1.0, 1.0)),
        RandomResizedCrop(7, scale=(1.0, 1.0), ratio=(0.5, 3.0)),
        RandomResizedCrop(7, scale=(0.001, 0.002), ratio=(0.1, 10.0)),
    ]
)


@given(
    CROPS,
    st.lists(st.tuples(st.integers(4, 5000), st.integers(4, 5000)), min_size=1, max_size=8),
    st.integers(0),
)
def test_crop_is_torchvisions(op, images, seed):
    u = uniform(seed % 2**64, 0, np.arange(len(images)), 0, op.draws)
    boxes, sizes, flips = moved(op, images, u)
    height, width = (op.size, op.size) if isinstance(op.size, int) else op.size
    assert sizes == [[height, width]] * len(images)
    assert not np.any(flips)
    for row, image in enumerate(images):
        inside(boxes[row], image)
        assert boxes[row] == torchvision_box(op, u[row].tolist(), *image)


@pytest.mark.parametrize("image", [(1, 1), (1, 5000), (5000, 1), (2, 3), (1, 2)], ids=str)
def test_crop_of_tiny_images_stays_inside(image):
    op = RandomResizedCrop(224)
    u = uniform(0, 0, np.arange(500), 0, op.draws)
    for box in moved(op, [image] * 500, u)[0]:
        inside(box, image)
        assert all(value.is_integer() for value in box)


def test_crop_covers_its_ranges():
    op, image = RandomResizedCrop(224), (3000, 3000)
    u = uniform(0, 0, np.arange(20_000), 0, op.draws)
    box = op.params(u, np.full((20_000, 2), 3000))["box"]
    share = box[:, 2] * box[:, 3] / 3000**2
    ratio = box[:, 3] / box[:, 2]
    assert 0.079 < share.min() < 0.082 and 0.97 < share.max() <= 1
    assert 0.748 < ratio.min() < 0.755 and 1.325 < ratio.max() < 1.335
    assert abs(np.log(ratio).mean()) < 0.01
    room = (np.array(image) - box[:, 2:]).clip(1)
    place = (box[:, :2] / room)[room.min(axis=1) > 100]
    np.testing.assert_allclose(place.mean(axis=0), 0.5, atol=0.02)


@pytest.mark.parametrize(
    ("image", "box"),
    [
        ((100, 1000), (0, 433, 100, 133)),
        ((1000, 100), (433, 0, 133, 100)),
        ((100, 100), (0, 0, 100, 100)),
    ],
    ids=str,
)
def test_crop_that_never_fits_is_the_largest_middle(image, box):
    """Draws of 0.99 ask for nearly the whole area in the wrong shape, ten times."""
    op = RandomResizedCrop(50, scale=(0.9, 1.0))
    u = np.full((1, 22), 0.999)
    u[:, 10:20] = 0.999 if image[0] >= image[1] else 0.001
    assert moved(op, [image], u)[0] == [list(map(float, box))]


# -- RandomFlip


@pytest.mark.parametrize(
    ("op", "u", "flip"),
    [
        (RandomFlip(), (0.1, 0.49), (False, True)),
        (RandomFlip(), (0.1, 0.5), (False, False)),
        (RandomFlip(direction="vertical"), (0.49, 0.9), (True, False)),
        (RandomFlip(direction="both"), (0.49, 0.9), (True, False)),
        (RandomFlip(direction="both"), (0.1, 0.1), (True, True)),
        (RandomFlip(0.0), (0.0, 0.0), (False, False)),
        (RandomFlip(1.0), (0.999, 0.999), (False, True)),
    ],
    ids=str,
)
def test_flip(op, u, flip):
    assert moved(op, [(7, 9)], np.array([u])) == ([[0, 0, 7, 9]], [[7, 9]], [list(flip)])


def test_flip_is_as_likely_as_it_says():
    u = uniform(0, 0, np.arange(20_000), 0, 2)
    flips = RandomFlip(0.3, "both").params(u, np.full((20_000, 2), 8))["flip"]
    np.testing.assert_allclose(flips.mean(axis=0), 0.3, atol=0.02)
    assert abs(np.corrcoef(flips.T)[0, 1]) < 0.05


# -- refusals

SIZE = "size must be an int or (height, width), got"
RANGE = "size must be in [1, 65535] pixels, got"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Resize("big"), f"Resize {SIZE} 'big'"),
        (lambda: Resize((1, 2, 3)), f"Resize {SIZE} (1, 2, 3)"),
        (lambda: Resize(True), f"Resize {SIZE} True"),
        (lambda: Resize(0), f"Resize {RANGE} 0"),
        (lambda: Resize(70_000), f"Resize {RANGE} 70000"),
        (
            lambda: Resize(8, "area"),
            "Resize filter must be one of bilinear, bicubic, lanczos, box, nearest, linear, or a tuple of"
            " these, got 'area'",
        ),
        (lambda: CenterCrop((0, 5)), f"CenterCrop {RANGE} (0, 5)"),
        (lambda: CenterCrop(None), f"CenterCrop {SIZE} None"),
        (lambda: RandomResizedCrop(-1), f"RandomResizedCrop {RANGE} -1"),
        (
            lambda: RandomResizedCrop(8, scale=(0, 1)),
            (
                "RandomResizedCrop scale must be 0 < low <= high <= 1, got (0, 1); shares of the"
                " area, such as (0.08, 1.0)"
            ),
        ),
        (
            lambda: RandomResizedCrop(8, scale=(0.5, 1.5)),
            (
                "RandomResizedCrop scale must be 0 < low <= high <= 1, got (0.5, 1.5); "
                "shares of the area, such as (0.08, 1.0)"
            ),
        ),
        (
            lambda: RandomResizedCrop(8, ratio=(2, 1)),
            (
                "RandomResizedCrop ratio must be 0 < low <= high <= 1000, got (2, 1); "
                "width / height, such as (3 / 4, 4 / 3)"
            ),
        ),
        (
            lambda: RandomResizedCrop(8, ratio=1.0),
            (
                "RandomResizedCrop ratio must be a pair (low, high), got 1.0; width / height, such"
                " as (3 / 4, 4 / 3)"
            ),
        ),
        (
            lambda: RandomResizedCrop(8, filter="cubic"),
            "RandomResizedCrop filter must be one of bilinear, bicubic, lanczos, box, nearest, linear, or a"
            " tuple of these, got 'cubic'",
        ),
        (lambda: RandomFlip(1.5), "RandomFlip p must be in [0, 1], got 1.5"),
        (lambda: RandomFlip(float("nan")), "RandomFlip p must be in [0, 1], got nan"),
        (
            lambda: RandomFlip(direction="diagonal"),
            'RandomFlip direction must be "horizontal", "vertical" or "both", got \'diagonal\'',
        ),
    ],
)
def test_refuses(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == text


@pytest.mark.parametrize(
    "op", [Resize(8), CenterCrop(8), RandomResizedCrop(8), RandomFlip()], ids=str
)
def test_needs_pixels_with_channels_last(op):
    name = type(op).__name__
    with pytest.raises(SpecError) as error:
        op.out(ENCODED)
    assert str(error.value) == f"{name} needs HWC pixels, got encoded bytes; put Decode() before it"
    with pytest.raises(SpecError) as error:
        op.out(Spec((3, 9, 9), "uint8", "CHW"))
    assert (
        str(error.value)
        == f"{name} needs HWC pixels, got CHW uint8[3, 9, 9]; put ToLayout after it"
    )


def test_random_resize_draws_every_length_as_torchvision_scales():
    """Chi-square over the lengths; sizes by torchvision's rule, int(size * long / short)."""
    op = RandomResize((5, 9))
    u = np.random.default_rng(0).random((5000, 1))
    new = op.params(u, np.tile([[30, 47]], (5000, 1)))["size"]
    counts = np.bincount(new[:, 0] - 5, minlength=5)
    assert ((counts - 1000) ** 2 / 1000).sum() < 23.5  # p 1e-4, 4 degrees of freedom
    assert (new[:, 1] == new[:, 0] * 47 // 30).all()
    edges = op.params(np.array([[0.0], [1 - 1e-16]]), np.array([[40, 30], [30, 47]]))["size"]
    assert edges.tolist() == [[6, 5], [9, 14]]
    limited = RandomResize((20, 20), longest=25).params(
        np.zeros((2, 1)), np.array([[30, 47], [9, 9]])
    )
    assert limited["size"].tolist() == [[15, 25], [20, 20]]


def test_random_resize_scales_as_detectron2():
    """ResizeScale: np.round(size * min(box * scale / size)), of a uniform scale."""
    u = np.random.default_rng(0).random((500, 1))
    sizes = np.random.default_rng(1).integers(1, 900, (500, 2))
    new = RandomResize((1024, 768), scale=(0.1, 2.0)).params(u, sizes)["size"]
    for (height, width), value, found in zip(sizes.tolist(), u[:, 0], new.tolist(), strict=True):
        scale = 0.1 + value * 1.9
        fit = min(1024 * scale / height, 768 * scale / width)
        assert found == [max(round(height * fit), 1), max(round(width * fit), 1)]
    ends = RandomResize(1024, scale=(0.1, 2.0)).params(np.array([[0.0], [1.0]]), np.full((2, 2), 9))
    assert ends["size"].tolist() == [[102, 102], [2048, 2048]]


def test_random_crop_keeps_small_images_in_the_corner_as_detectron2():
    """FixedSizeCrop: an offset in [0, size - crop], and a border below and to the right."""
    op = RandomCrop((8, 6), pad_if_needed="corner")
    boxes = op.params(np.random.default_rng(0).random((400, 2)), np.tile([[5, 9]], (400, 1)))["box"]
    assert {*boxes[:, 0].tolist()} == {0}
    assert {*boxes[:, 1].tolist()} == {0, 1, 2, 3}
    assert (boxes[:, 2:] == (8, 6)).all()
    large = op.params(np.random.default_rng(0).random((400, 2)), np.tile([[11, 9]], (400, 1)))
    corners = large["box"][:, :2].tolist()
    assert sorted({*map(tuple, corners)}) == [(0, 0), (1, 1), (2, 2), (3, 3)]  # one number for both


def test_random_crop_pads_what_is_too_small_as_torchvision():
    """Both sides get as much as is missing, and the place is any of that."""
    op = RandomCrop((8, 6), pad_if_needed=True)
    u = np.random.default_rng(0).random((400, 2))
    boxes = op.params(u, np.tile([[5, 9]], (400, 1)))["box"]
    assert {*boxes[:, 0].tolist()} == {-3, -2, -1, 0}  # 3 rows above, 3 below
    assert {*boxes[:, 1].tolist()} == {0, 1, 2, 3}
    assert (boxes[:, 2:] == (8, 6)).all()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RandomResize((9, 5)), "a pair (lowest, highest), got (9, 5)"),
        (lambda: RandomResize(5), "a pair (lowest, highest), got 5"),
        (lambda: RandomResize((0, 5)), "in [1, 65535] pixels, got (0, 5)"),
        (lambda: RandomResize((4, 5), longest=0), "in [1, 65535] pixels, got 0"),
        (lambda: RandomResize((4, 5), filter="sharp"), "RandomResize filter must be one of"),
        (lambda: RandomResize(4, scale=(0, 1)), "RandomResize scale must be 0 < low <= high <= "),
        (lambda: RandomResize(4, scale=2.0), "scale must be a pair (low, high), got 2.0"),
        (lambda: RandomResize(4, 8, scale=(1, 2)), "which limits both; leave one out"),
        (lambda: RandomCrop(4, pad_if_needed=1), 'must be True, False or "corner", got 1'),
    ],
)
def test_wrong_random_sizes_are_refused(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert text in str(error.value)
