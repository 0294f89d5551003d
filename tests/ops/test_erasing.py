"""Erasing: areas, shapes and places as drawn, refusals. What is hidden to the pixel is a law."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.op_examples.erasing import EXAMPLES, MEANING
from helpers.opencv_ops.kernels import KERNELS

from fastfeed import CutOut, GridMask, RandomErasing
from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops.noise_table import LENGTH
from fastfeed.sampling.rng import uniform
from fastfeed.spec import Spec

SIZES = [(1, 1), (1, 4), (4, 1), (2, 2), (3, 300), (300, 2), (33, 47)]


def params(op, n=4000, size=(224, 224)):
    return op.params(uniform(5, 0, np.arange(n), 1, op.draws), np.tile(np.array([size]), (n, 1)))


def boxes(op, n=4000, size=(224, 224)):
    """Those that hide anything."""
    box = params(op, n, size)["box"]
    return box[box[:, 2] > 0]


@pytest.mark.parametrize("op", [op for ops in EXAMPLES.values() for op in ops], ids=repr)
@pytest.mark.parametrize("channels", [1, 3])
def test_hides_the_same_in_images_of_any_shape(op, channels):
    for size in SIZES:
        image = np.random.default_rng(sum(size)).integers(0, 256, (*size, channels), dtype=np.uint8)
        values = params(op, 6, size)
        for row in range(6):
            want = MEANING[type(op)].oracle(op, values, row, image.copy())
            np.testing.assert_array_equal(KERNELS[type(op)](op, values, row, image.copy()), want)


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_erases_as_often_as_asked(p):
    assert len(boxes(RandomErasing(p))) / 4000 == pytest.approx(p, abs=0.03)


@pytest.mark.parametrize("log_ratio", [True, False])
def test_erased_areas_and_ratios_are_uniform_or_log_uniform(log_ratio):
    found = boxes(RandomErasing(1.0, (0.02, 0.33), (0.3, 3.3), log_ratio=log_ratio))
    height, width = found[:, 2].astype(float), found[:, 3].astype(float)
    area = (height * width / 224**2 - 0.02) / 0.31
    scale = np.log if log_ratio else np.asarray
    ratio = (scale(height / width) - scale(0.3)) / (scale(3.3) - scale(0.3))
    # a box of 0.33 and 3.3 is higher than the image: few are lost to that
    quarters = [
        0.25,
        0.5,
        0.75,
    ]
    np.testing.assert_allclose(np.quantile(area, quarters), quarters, atol=0.03)
    np.testing.assert_allclose(np.quantile(ratio, quarters), quarters, atol=0.03)
    assert abs(np.corrcoef(area, ratio)[0, 1]) < 0.05
    for found, slack in ((area, 0.01), (ratio, 0.03)):  # whole pixels
        assert -slack < found.min() < found.max() < 1 + slack


def test_erased_boxes_are_anywhere_inside():
    found = boxes(RandomErasing(1.0), size=(100, 150))
    for start, length, side in ((0, 2, 100), (1, 3, 150)):
        room = side - found[:, length]
        assert (
            found[:, start].min() == 0
            and (found[:, start] <= room).all()
            and (found[:, start] == room).any()
        )
        place = (found[:, start] + 0.5) / (room + 1)
        np.testing.assert_allclose(
            np.quantile(place, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.03
        )


def test_another_attempt_is_made_until_a_box_is_smaller_than_the_image():
    op = RandomErasing(1.0, (0.5, 0.6), (0.3, 3.3))
    found = boxes(op)
    assert 3980 < len(found) <= 4000 and (found[:, 2:] < 224).all()  # ten fail in one of a thousand
    u = uniform(5, 0, np.arange(4000), 1, op.draws)
    side = np.exp(np.log(0.3) + u[:, 11] * np.log(11)) ** 0.5 * (0.5 + 0.1 * u[:, 1]) ** 0.5
    once = (side < 1) & (side > 0.5 + 0.1 * u[:, 1])
    assert 0.3 < once.mean() < 0.8  # the first attempt alone would leave many as they are
    assert not len(boxes(RandomErasing(1.0), size=(1, 1))) and not len(
        boxes(RandomErasing(1.0), size=(1, 500))
    )


def test_what_is_erased_with_noise_is_about_medium_gray():
    op = RandomErasing(1.0, (0.3, 0.4), fill="noise")
    values = params(op, 20)
    assert values["offset"].min() < LENGTH / 4 and values["offset"].max() > LENGTH * 3 / 4
    found = []
    for row in range(20):
        image = KERNELS[RandomErasing](op, values, row, np.zeros((224, 224, 3), np.uint8))
        top, left, height, width = values["box"][row]
        found.append(image[top : top + height, left : left + width].astype(float))
        assert (
            abs(found[-1].mean() - 127.5) < 2 and abs(found[-1].std() - 56.4) < 2
        )  # 57.5, clipped
    first, second = (found[i][:50, :50].ravel() for i in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05


def test_a_color_is_one_for_the_rectangle_and_normal_over_samples():
    op = RandomErasing(1.0, (0.3, 0.4), fill="color")
    colors = params(op, 4000)["color"]
    assert colors.shape == (4000, 3) and colors.dtype == np.uint8
    assert np.abs(colors.mean(axis=0) - 127.5).max() < 4
    assert np.abs(colors.std(axis=0) - 56.4).max() < 3  # 57.5, clipped
    correlations = np.corrcoef(colors.T.astype(float))
    assert np.abs(correlations - np.eye(3)).max() < 0.06


def test_cut_out_squares_have_their_center_in_the_image():
    box = params(CutOut(9), size=(40, 60))["box"]
    bottom, right = box[:, 0] + box[:, 2], box[:, 1] + box[:, 3]
    assert (box >= 0).all() and bottom.max() == 40 and right.max() == 60
    inside = (box[:, 0] > 0) & (bottom < 40) & (box[:, 1] > 0) & (right < 60)
    assert (box[inside, 2:] == 9).all() and inside.mean() == pytest.approx(
        30 / 40 * 50 / 60, abs=0.03
    )
    assert box[:, 2:].min() == 5  # half of it, where the center is at the edge
    center = (box[inside, :2] + 4).mean(axis=0)
    np.testing.assert_allclose(center, [19.5, 29.5], atol=1)


@pytest.mark.parametrize("keep", [0.4, 0.6, 0.9])
def test_grids_hide_their_share_and_begin_anywhere(keep):
    op = GridMask((10, 40), keep)
    values = params(op)
    units, counts = np.unique(values["unit"], return_counts=True)
    assert units.tolist() == list(range(10, 41)) and counts.min() > 80
    np.testing.assert_allclose(values["share"], 1 - keep, atol=0.051)  # half a pixel of ten
    for name in ("top", "left"):
        assert ((values[name] >= 0) & (values[name] < values["unit"])).all()
        assert ((values[name] + 0.5) / values["unit"]).mean() == pytest.approx(0.5, abs=0.02)
    hidden = [
        (KERNELS[GridMask](op, values, row, np.full((224, 224, 1), 9, np.uint8)) == 0).mean()
        for row in range(100)
    ]
    assert np.mean(hidden) == pytest.approx((1 - keep) ** 2, abs=0.01)


def test_a_pixel_of_every_unit_is_hidden_and_one_is_kept():
    for keep, side in ((0.001, 4), (0.999, 1)):
        values = params(GridMask(5, keep), 1)
        assert values["share"][0] * 5 == pytest.approx(side)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RandomErasing(1.5), "RandomErasing p must be in [0, 1], got 1.5"),
        (
            lambda: RandomErasing(scale=(0.5, 1.5)),
            "RandomErasing scale must be 0 <= low <= high <= 1, got (0.5, 1.5)",
        ),
        (
            lambda: RandomErasing(scale=0.3),
            "RandomErasing scale must be a pair (low, high), got 0.3",
        ),
        (
            lambda: RandomErasing(ratio=(0, 1)),
            "RandomErasing ratio must be 0 < low <= high <= 1000, got (0, 1); ",
        ),
        (
            lambda: RandomErasing(fill="random"),
            'RandomErasing fill must be (r, g, b), "noise" or "color", got \'random\'',
        ),
        (
            lambda: RandomErasing(fill=(1, 2, 256)),
            "must be three integers in [0, 255], RGB, got (1, 2, 256)",
        ),
        (
            lambda: CutOut(0),
            "CutOut size must be an integer in [1, 65535] pixels, got 0; write CutOut(16)",
        ),
        (lambda: CutOut((8, 8)), "got (8, 8); write CutOut(16)"),
        (lambda: CutOut(8, 0), "CutOut fill must be three integers"),
        (lambda: GridMask(1), "GridMask unit must be an integer in [2, 65535] or a pair"),
        (lambda: GridMask((9.5, 20)), "got (9.5, 20); in pixels: GridMask((96, 224))"),
        (
            lambda: GridMask(keep=1),
            "GridMask keep must be in (0, 1), got 1; 0.6 hides 16 % of the image",
        ),
        (lambda: GridMask(fill=(0, 0)), "GridMask fill must be three integers"),
    ],
)
def test_refuses_what_is_out_of_range(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert text in str(error.value)


def test_a_square_larger_than_the_image_is_refused():
    CutOut(32).out(Spec((32, 40, 3), "uint8", "HWC"))
    with pytest.raises(
        SpecError, match=r"at most the image's, 32 x 40 pixels, got 33; write CutOut\(16\)"
    ):
        CutOut(33).out(Spec((32, 40, 3), "uint8", "HWC"))
