"""Sharpness, blur, noise and JPEG's artifacts: ranges, statistics, refusals.

Their meaning is a law.
"""

from __future__ import annotations

import threading

import cv2
import numpy as np
import pytest
from helpers.op_examples.filters import EXAMPLES, MEANING
from helpers.opencv_ops.kernels import KERNELS
from helpers.photos import picture

from fastfeed import (
    GaussianBlur,
    GaussianNoise,
    JPEGCompression,
    MedianBlur,
    MotionBlur,
    Sharpness,
)
from fastfeed.errors import ConfigError, SpecError
from fastfeed.ops import noise_table
from fastfeed.sampling.rng import uniform
from fastfeed.spec import Spec

# a table of other numbers is other noise in everybody's samples
GOLDEN = [
    -4622,
    3784,
    -77,
    -1971,
    -11849,
    745,
]
SIZES = [(1, 1), (1, 4), (4, 1), (2, 2), (3, 3), (4, 4), (3, 300), (300, 2), (20, 30)]


def params(op, n=4000, size=(40, 56), epoch=0):
    return op.params(
        uniform(7, epoch, np.arange(n), 1, op.draws), np.tile(np.array([size]), (n, 1))
    )


def made(op, image, n=4, epoch=0):
    values = params(op, n, image.shape[:2], epoch)
    return [KERNELS[type(op)](op, values, row, image.copy()) for row in range(n)]


def test_factors_sigmas_and_qualities_are_uniform_in_their_ranges():
    for op, name, low, high in (
        (Sharpness(0.4), "factor", 0.6, 1.4),
        (Sharpness(3), "factor", 0, 4),
        (Sharpness((0.5, 0.75)), "factor", 0.5, 0.75),
        (GaussianBlur(), "sigma", 0.1, 2.0),
        (GaussianNoise((5, 20)), "sigma", 5, 20),
        (GaussianNoise(), "offset", 0, noise_table.LENGTH),
    ):
        found = (params(op)[name] - low) / (high - low)
        assert 0 <= found.min() < 0.01 and 0.99 < found.max() <= 1
        np.testing.assert_allclose(
            np.quantile(found, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.03
        )
    qualities, counts = np.unique(params(JPEGCompression((40, 49)))["quality"], return_counts=True)
    assert qualities.tolist() == list(range(40, 50))
    assert 300 < counts.min() < counts.max() < 500  # of 400, with a deviation of 19


def test_a_number_is_exactly_that():
    assert set(params(GaussianBlur(sigma=1.5))["sigma"]) == {1.5}
    assert set(params(GaussianNoise(9))["sigma"]) == {9.0}
    assert set(params(JPEGCompression(50))["quality"]) == {50}


@pytest.mark.parametrize("op", [op for ops in EXAMPLES.values() for op in ops], ids=repr)
@pytest.mark.parametrize("channels", [1, 3])
def test_mean_the_same_for_images_of_any_shape(op, channels):
    meaning = MEANING[type(op)]
    for size in SIZES:
        image = np.random.default_rng(sum(size)).integers(0, 256, (*size, channels), dtype=np.uint8)
        values = params(op, 3, size)
        for row in range(3):
            want = meaning.oracle(op, values, row, image.copy())
            got = KERNELS[type(op)](op, values, row, image.copy())
            assert got.shape == want.shape and got.dtype == np.uint8 and got.flags.c_contiguous
            assert np.abs(got.astype(int) - want).max() <= meaning.within, (size, row)


def test_threads_do_not_disturb_each_other():
    ops = [Sharpness((0.1, 0.2)), GaussianBlur(9, (1, 2)), GaussianNoise(30), JPEGCompression()]
    images = [picture(seed, (50 + seed, 70), 3) for seed in range(4)]
    want = [[made(op, image) for op in ops] for image in images]
    found: dict[int, bool] = {}

    def work(i):
        found[i] = all(
            all(map(np.array_equal, made(op, images[i]), want[i][k]))
            for _ in range(20)
            for k, op in enumerate(ops)
        )

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(4), True)


def test_sharpness_of_one_changes_nothing_and_edges_stay():
    image = np.random.default_rng(1).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    np.testing.assert_array_equal(made(Sharpness((1, 1)), image, 1)[0], image)
    soft = made(Sharpness((0, 0)), image, 1)[0]
    assert soft[1:-1, 1:-1].std() < 0.6 * image.std()
    for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        np.testing.assert_array_equal(soft[edge], image[edge])


def test_kernel_is_chosen_by_the_largest_sigma():
    assert [GaussianBlur(sigma=s).taps for s in (1.0, (0.1, 2.0), (0.1, 2.1))] == [7, 13, 15]
    assert GaussianBlur(5, 9).taps == 5


def test_blur_does_not_move_or_dim_an_image():
    image = np.zeros((41, 41, 1), np.uint8)
    image[20, 20] = 255
    wide = made(GaussianBlur(sigma=1.0), image, 1)[0][:, :, 0]
    np.testing.assert_array_equal(wide, wide.T)
    np.testing.assert_array_equal(wide, wide[::-1, ::-1])
    assert wide[20, 20] == round(255 * 0.399050**2)  # the middle weight of seven with sigma 1
    flat = np.full((9, 300, 3), 201, np.uint8)
    np.testing.assert_array_equal(made(GaussianBlur(99, 30.0), flat, 1)[0], flat)


def test_the_table_is_normal_and_the_same_everywhere():
    table = noise_table.normal()
    assert (
        table.dtype == np.float32
        and table.shape == (noise_table.LENGTH,)
        and not table.flags.writeable
    )
    np.testing.assert_array_equal(table, noise_table.steps() / np.float32(noise_table.STEPS))
    assert noise_table.steps()[:6].tolist() == GOLDEN
    assert abs(table.mean()) < 0.002 and abs(table.std() - 1) < 0.002
    # of how many of a normal distribution are below: 2.3 %, 15.9 %, 50 %, 84.1 %, 97.7 %
    found = [(table < z).mean() for z in (-2, -1, 0, 1, 2)]
    np.testing.assert_allclose(found, [0.02275, 0.15866, 0.5, 0.84134, 0.97725], atol=0.002)
    assert abs((table**3).mean()) < 0.01 and abs((table**4).mean() - 3) < 0.03
    for lag in (1, 2, 3, 224 * 3, noise_table.LENGTH // 2, noise_table.LENGTH // 4):
        assert abs(np.mean(table * np.roll(table, lag))) < 0.004


def test_reading_wraps_around():
    table = np.arange(10)
    assert noise_table.read_wrapped(table, 3, 4).tolist() == [3, 4, 5, 6]
    assert noise_table.read_wrapped(table, 6, 4).tolist() == [6, 7, 8, 9]
    assert noise_table.read_wrapped(table, 8, 25).tolist() == [(8 + i) % 10 for i in range(25)]
    assert noise_table.read_wrapped(table, 14, 3).tolist() == [4, 5, 6]


def test_noise_continues_where_the_table_ends():
    image = np.full((9, 50, 3), 100, np.uint8)
    for offset in (noise_table.LENGTH - 1, noise_table.LENGTH - 700, 0):
        values = {"sigma": np.array([30.0]), "offset": np.array([offset])}
        got = KERNELS[GaussianNoise](GaussianNoise(), values, 0, image.copy())
        np.testing.assert_array_equal(got, MEANING[GaussianNoise].oracle(None, values, 0, image))
    large = np.full((1024, 800, 3), 100, np.uint8)  # larger than the table
    values = {"sigma": np.array([30.0]), "offset": np.array([12_345])}
    flat = KERNELS[GaussianNoise](GaussianNoise(), values, 0, large).ravel()
    np.testing.assert_array_equal(
        flat[: flat.size - noise_table.LENGTH], flat[noise_table.LENGTH :]
    )


def test_noise_has_its_deviation_and_is_independent():
    gray = np.full((224, 224, 3), 128, np.uint8)
    one, other, *_ = (image.astype(float) - 128 for image in made(GaussianNoise(20), gray))
    for noise in (one, other):
        assert abs(noise.mean()) < 0.3 and abs(noise.std() - 20) < 0.2
    for a, b in (
        (one, other),
        (one[:, :, 0], one[:, :, 1]),
        (one[:, :, 0], one[:, :, 2]),
        (one[:, 1:], one[:, :-1]),
        (one[1:], one[:-1]),
    ):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.02
    np.testing.assert_array_equal(made(GaussianNoise(0), gray, 1)[0], gray)


def test_noise_is_clipped_where_bytes_end():
    for level in (0, 255):
        image = np.full((100, 100, 3), level, np.uint8)
        assert (made(GaussianNoise(40), image, 1)[0] == level).mean() == pytest.approx(
            0.5, abs=0.02
        )


def test_lines_and_squares_are_odd_and_uniform_with_both_ends():
    length, direction = params(MotionBlur((3, 9))).values()
    shares = np.bincount(length, minlength=10) / len(length)
    np.testing.assert_allclose(shares[3::2], 0.25, atol=0.03)
    assert shares[::2].sum() == 0 and length.dtype == np.int64
    np.testing.assert_allclose(np.hypot(*direction.T), 1)
    angle = np.degrees(np.arctan2(-direction[:, 1], direction[:, 0]))
    assert np.abs(np.histogram(angle, 6, (-90, 90))[0] / len(angle) - 1 / 6).max() < 0.03
    kernel = params(MedianBlur((1, 7)))["kernel"]
    np.testing.assert_allclose(np.bincount(kernel)[1::2] / len(kernel), 0.25, atol=0.03)
    assert MedianBlur(5).draws == 0


def test_a_moved_point_is_a_line_at_its_angle():
    """Up to the right: counterclockwise from the horizontal."""
    image = np.zeros((9, 9, 1), np.uint8)
    image[4, 4] = 245
    u = np.zeros((1, MotionBlur(7, (45, 45)).draws))
    values = MotionBlur(7, (45, 45)).params(u, np.array([[9, 9]]))
    line = KERNELS[MotionBlur](MotionBlur(7, (45, 45)), values, 0, image)[:, :, 0]
    # a pixel apart along the diagonal: two steps of 0.71 end up in one pixel, at both ends
    np.testing.assert_array_equal(np.argwhere(line), [[2, 6], [3, 5], [4, 4], [5, 3], [6, 2]])
    assert line.sum() == 245 and line[4, 4] == 35


def test_quality_is_what_a_file_would_lose():
    image = cv2.GaussianBlur(
        np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8), (5, 5), 1
    )
    lost = [
        np.abs(made(JPEGCompression(q), image, 1)[0].astype(int) - image).mean()
        for q in (5, 30, 60, 90)
    ]
    assert lost == sorted(lost, reverse=True) and lost[0] > 2 * lost[-1]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: Sharpness(-1),
            "Sharpness amount must be a number in [0, 100] or a pair (low, high)",
        ),
        (lambda: Sharpness((2, 1)), "got (2, 1); write Sharpness(0.4) or Sharpness((0.6, 1.4))"),
        (lambda: Sharpness("sharp"), "got 'sharp'"),
        (
            lambda: GaussianBlur(4),
            "GaussianBlur kernel must be an odd integer in [1, 999] pixels or None, got 4",
        ),
        (lambda: GaussianBlur(True), "got True; write GaussianBlur(23) or leave it out"),
        (
            lambda: GaussianBlur(sigma=0),
            "GaussianBlur sigma must be a number in [0.01, 100] or a pair",
        ),
        (lambda: GaussianBlur(sigma=(2, 1)), "got (2, 1); write GaussianBlur(sigma=(0.1, 2.0))"),
        (lambda: GaussianBlur(sigma=float("nan")), "got nan"),
        (lambda: GaussianNoise(-1), "GaussianNoise sigma must be a number in [0, 255] or a pair"),
        (lambda: GaussianNoise((0, 300)), "torchvision's 0.1 is GaussianNoise(25.5)"),
        (
            lambda: JPEGCompression(0),
            "JPEGCompression quality must be an integer in [1, 100] or a pair",
        ),
        (lambda: JPEGCompression((50.5, 60)), "got (50.5, 60); write JPEGCompression((30, 95))"),
        (lambda: MotionBlur(4), "MotionBlur length must be odd, got 4; write MotionBlur(9)"),
        (lambda: MotionBlur((3, 101)), "MotionBlur length must be an integer in [1, 99]"),
        (lambda: MotionBlur(3, 400), "MotionBlur degrees must be a number in [0, 360]"),
        (lambda: MedianBlur((3, 6)), "MedianBlur kernel must be odd, got (3, 6)"),
        (lambda: MedianBlur(17), "MedianBlur kernel must be an integer in [1, 15]"),
    ],
)
def test_refuses_what_is_out_of_range(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert text in str(error.value)


def test_no_jpeg_has_sides_that_long():
    JPEGCompression().out(Spec((1, 65_500, 3), "uint8", "HWC"))
    with pytest.raises(
        SpecError,
        match=r"at most 65500 pixels a side, got HWC uint8.*; put CenterCrop or Resize before",
    ):
        JPEGCompression().out(Spec((1, 65_501, 3), "uint8", "HWC"))
