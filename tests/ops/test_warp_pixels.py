"""What the native extension of Rotate, Affine and Perspective makes of images and masks."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.op_examples.warp import EXAMPLES
from helpers.opencv_ops import warps
from helpers.opencv_ops.warps import KERNELS, warp
from helpers.photos import picture
from helpers.products import in_turn
from PIL import Image

import fastfeed as ff
from fastfeed.ops import Affine, Perspective, Rotate
from fastfeed.ops.warp import affine_matrices
from fastfeed.sampling.rng import uniform
from fastfeed.spec import Spec

IMAGE = picture(3, (60, 80), 3)
SIZES = np.array([[60, 80]])


def made(op, image, u=()):
    """One image through the native extension."""
    values = op.params(np.array([u]), np.array([image.shape[:2]]))
    return KERNELS[type(op)](op, values, 0, image.copy())


def framed(op):
    """Keeps the size, and shows a color outside the image."""
    return op.border == "constant" and not getattr(op, "expand", False)


def test_a_quarter_turn_is_counterclockwise():
    square = IMAGE[:, :60]
    np.testing.assert_array_equal(made(Rotate((90, 90)), square), np.rot90(square))
    np.testing.assert_array_equal(made(Rotate((180, 180)), square), np.rot90(square, 2))
    np.testing.assert_array_equal(made(Affine((90, 90)), square), np.rot90(square, -1))


def test_translation_moves_right_and_down():
    # of 80 and of 60: 10, 24
    moved = made(Affine(translate=(0.25, 0.5), fill=(1, 2, 3)), IMAGE, (0.75, 0.9))
    np.testing.assert_array_equal(moved[24:, 10:], IMAGE[:-24, :-10])
    assert (moved[:24] == [1, 2, 3]).all() and (moved[:, :10] == [1, 2, 3]).all()


def test_scale_is_about_the_middle():
    image = np.zeros((40, 40, 1), np.uint8)
    image[15:25, 15:25] = 200
    large = made(Affine(scale=(2, 2), filter="nearest"), image)
    assert (large[10:30, 10:30] == 200).all() and large.sum() == 400 * 200


@pytest.mark.parametrize(
    "op",
    [op for ops in EXAMPLES.values() for op in ops if op.filter == "bilinear" and framed(op)],
    ids=repr,
)
def test_is_pillows_but_for_the_edge(op):
    """Without the frame of the laws' oracle: a pixel inside the image's edge or outside of it all
    is the same.
    """
    u = uniform(2, 0, np.arange(6), 0, op.draws)
    values = op.params(u, np.tile(SIZES, (6, 1)))
    y, x = np.mgrid[:60, :80] + 0.5
    for row, matrix in enumerate(values["matrix"]):
        got = KERNELS[type(op)](op, values, row, IMAGE.copy())
        data = tuple((matrix / matrix[2, 2]).ravel()[:8])
        kind, how = Image.Transform.PERSPECTIVE, Image.Resampling.BILINEAR
        want = np.asarray(
            Image.fromarray(IMAGE).transform((80, 60), kind, data, how, fillcolor=op.fill)
        )
        place = np.stack([x, y, np.ones_like(x)], axis=-1) @ matrix.T
        place = place[..., :2] / place[..., 2:]
        depth = np.minimum(place, [80, 60] - place).min(axis=-1)
        far = np.abs(depth) > 0.51
        assert np.abs(got.astype(int) - want)[far].max() <= 1
        assert far.mean() > 0.9


@pytest.mark.parametrize("op", [op for ops in EXAMPLES.values() for op in ops], ids=repr)
@pytest.mark.parametrize(
    ("size", "filter"),
    [
        *in_turn([(60, 80), (37, 91), (5, 9)], ["bilinear", "nearest"]),
        *(
            pytest.param((300, 401), name, marks=pytest.mark.slow)
            for name in ("bilinear", "nearest")
        ),
    ],
    ids=str,
)
def test_opencv_4_gives_the_same_bytes(op, size, filter, monkeypatch):
    """Its own warps would not; trivial where it is installed, where the laws compare with the
    native kernel.
    """
    values = op.params(uniform(7, 0, np.arange(6), 0, op.draws), np.tile(np.array([size]), (6, 1)))
    for image in (picture(3, size, 3), picture(4, size, 1), picture(5, size, 1)[:, :, 0]):
        fill = (9, 200, 77)[: image[0, 0].size]
        for matrix in values["matrix"]:
            expected = warp(image, matrix, filter, fill, border=op.border)
            with monkeypatch.context() as patch:
                patch.setattr(warps, "_EXACT", False)
                again = warp(image, matrix, filter, fill, border=op.border)
                np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1), (2, 2), (3, 40_000), (40_000, 1)])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("filter", ["bilinear", "nearest"])
def test_any_size_and_channels(size, channels, filter):
    """OpenCV alone ends at 32767 pixels."""
    image = np.full((*size, channels), 90, np.uint8)
    for op, u in ((Rotate(40, filter), (0.9,)), (Perspective(0.4, 1.0, filter), (0.5,) * 8)):
        got = made(op, image, u)
        assert got.shape == image.shape and got.dtype == np.uint8 and got.flags.c_contiguous
        assert 0 < got[size[0] // 2, size[1] // 2, 0] <= 90


def test_long_images_are_warped_alike():
    image = np.tile(picture(1, (8, 50), 2), (1, 800, 1))
    matrix = affine_matrices(0, (3.25, 0.5), 1.1, center=(20_000, 4))[0]
    there = warp(image[:, :30_000], matrix, "bilinear", (0, 0, 0))
    np.testing.assert_allclose(
        warp(image, matrix, "bilinear", (0, 0, 0))[2:-2, 10:25_000], there[2:-2, 10:25_000], atol=2
    )


def test_what_lies_outside_is_the_fill():
    away = Affine(translate=(1.0, 0), fill=(255, 0, 0))
    assert (made(away, IMAGE, (1.0,)) == [255, 0, 0]).all()
    assert (made(away, IMAGE[:, :, :1], (1.0,)) == 76).all()  # the luma of red


@pytest.mark.parametrize(
    "op", [Affine(), Rotate(0), Rotate(30), Perspective(0.5, 0.1), Affine(translate=(0.1, 0))]
)
def test_no_move_costs_nothing(op):
    values = op.params(np.full((1, op.draws), 0.5), SIZES)  # the middle of every range
    assert KERNELS[type(op)](op, values, 0, IMAGE) is IMAGE


def test_masks_keep_their_values():
    mask = np.zeros((50, 60), np.uint8)
    mask[10:40, 20:50] = 3
    got = warp(mask, affine_matrices(33, (5, 5), center=(30, 25))[0], "nearest", (255,))
    assert got.shape == mask.shape and set(np.unique(got)) == {0, 3, 255}
    tilted = Perspective(0.5, 1.0).params(np.full((1, 8), 0.9), np.array([[50, 60]]))["matrix"][0]
    assert set(np.unique(warp(mask, tilted, "nearest", (255,)))) == {0, 3, 255}


@pytest.mark.parametrize("filter", ["bilinear", "nearest"])
def test_borders_of_long_images(filter):
    """Beyond single precision: half a turn about the left edge shows nothing of the image."""
    image = np.tile(picture(1, (4, 330), 2), (1, 100, 1))
    for border, want in (
        ("symmetric", image[::-1]),
        ("edge", np.repeat(image[::-1, :1], image.shape[1], axis=1)),
        ("reflect", np.concatenate([image[::-1, 1:], image[::-1, -2:-1]], axis=1)),
    ):
        op = Rotate((180, 180), filter, border=border, center=(0, 2))
        with ff.Feed(ff.Arrays(image[None]), [op], batch=1) as feed:
            images = next(iter(feed)).images
        np.testing.assert_allclose(images[0].astype(int), want, atol=filter == "bilinear")


@pytest.mark.parametrize("angle", [0, 17, 45, 90, 180, 271, -30])
@pytest.mark.parametrize("size", [(60, 80), (61, 80), (7, 5)])
def test_expanded_images_are_pillows(angle, size):
    image = picture(3, size, 3)
    got = made(Rotate((angle, angle), "nearest", expand=True), image)
    want = np.asarray(Image.fromarray(image).rotate(angle, expand=True))
    assert got.shape == want.shape
    assert (got == want).all(axis=-1).mean() > 0.97


def test_an_expanded_canvas_holds_every_angle_of_the_range():
    op = Rotate((-100, 70), expand=True)
    canvas = op.params(np.array([[0.5]]), SIZES)["size"][0]
    sides = [Image.new("L", (80, 60)).rotate(angle, expand=True).size for angle in range(-100, 71)]
    assert (canvas[::-1] - np.max(sides, axis=0) >= 0).all()
    assert (canvas[::-1] - np.max(sides, axis=0) <= 2).all()
    assert op.out(Spec((60, 80, 3), "uint8", "HWC")).size == tuple(canvas)


def test_the_center_is_pillows():
    got = made(Rotate((25, 25), "nearest", (1, 2, 3), center=(10, 50)), IMAGE)
    want = Image.fromarray(IMAGE).rotate(25, center=(10, 50), fillcolor=(1, 2, 3))
    assert (got == np.asarray(want)).all(axis=-1).mean() > 0.99
