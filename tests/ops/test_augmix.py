"""AugMix: shares, lengths and strengths as they should be drawn; the blend is the sum it claims to
be.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.opencv_ops.augmix import mix
from helpers.opencv_ops.chain import run
from helpers.photos import picture

from fastfeed.errors import ConfigError
from fastfeed.feed.feed import Feed
from fastfeed.ops import AugMix, Maybe
from fastfeed.ops.program.layers import choose
from fastfeed.sampling.rng import uniform
from fastfeed.sources import Arrays


def values(op, n, size=(40, 50), seed=0):
    sizes = np.tile(np.array([size], np.int64), (n, 1))
    return op.params(uniform(seed, 0, np.arange(n), 3, op.draws), sizes)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_shares_are_beta_and_dirichlet(alpha):
    shares = values(AugMix(alpha=alpha), 20_000)["shares"]
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-12)
    own = shares[:, 0]
    assert abs(own.mean() - 0.5) < 0.01
    np.testing.assert_allclose(own.var(), 0.25 / (2 * alpha + 1), rtol=0.04)
    parts = shares[:, 1:] / (1 - own)[:, None]
    np.testing.assert_allclose(parts.mean(axis=0), 1 / 3, atol=0.01)
    np.testing.assert_allclose(parts.var(axis=0), (2 / 9) / (3 * alpha + 1), rtol=0.05)
    assert abs(np.corrcoef(own, parts[:, 0])[0, 1]) < 0.03


def test_chains_are_one_to_three_ops_long():
    lengths = [
        np.sum([one.choice >= 0 for one in chain], axis=0)
        for chain in values(AugMix(), 9000)["chains"]
    ]
    assert len(lengths) == 3
    for length in lengths:
        assert set(length.tolist()) == {1, 2, 3} and abs(np.bincount(length)[1:] - 3000).max() < 200
    assert abs(np.corrcoef(lengths[0], lengths[1])[0, 1]) < 0.04
    fixed = values(AugMix(chain_depth=5, mixture_width=2), 40)["chains"]
    assert [len(chain) for chain in fixed] == [5, 5] and all(
        (one.choice >= 0).all() for one in fixed[0]
    )


@pytest.mark.parametrize(("severity", "factors"), [(1, 1), (3, 5), (10, 19)])
def test_severity_is_the_number_of_strengths(severity, factors):
    op = AugMix(severity)
    one = values(op, 20_000)["chains"][1][0]
    k = [type(each).__name__ for each in op.chain[0].ops].index("Brightness")
    got = np.unique(one.values[k]["factor"][one.choice == k].round(5))
    assert len(got) == factors
    np.testing.assert_allclose(got, 1 + 0.1 * np.arange(1 - severity, severity), atol=1e-4)


def test_few_ops_are_those_that_robustness_tests_leave():
    kinds = {type(op).__name__ for op in AugMix(all_ops=False).chain[0].ops}
    assert kinds == {"Affine", "Posterize", "Solarize", "AutoContrast", "Equalize"}
    assert {type(op).__name__ for op in AugMix().chain[0].ops} - kinds == {
        *("Brightness", "Contrast", "Saturation", "Sharpness")
    }


def test_blend_is_the_sum_of_its_parts():
    op, image = AugMix(5, 4, 2), picture(1)
    its = values(op, 6, image.shape[:2])
    for row in range(6):
        found = [image]
        for chain in its["chains"]:
            found.append(run(op.chain, chain, row, image.copy()))
        want = np.einsum("k,khwc->hwc", its["shares"][row], np.stack(found).astype(np.float64))
        assert np.abs(mix(op, its, row, image.copy(), run) - want).max() < 0.501
        for k in range(5):
            alone = its | {"shares": np.eye(5)[[k] * 6]}
            np.testing.assert_array_equal(mix(op, alone, row, image.copy(), run), found[k])


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 1, 1), (1, 600, 3), (400, 1, 1), (33, 47, 1)])
@pytest.mark.parametrize(
    "op", [AugMix(10), AugMix(mixture_width=1), AugMix(mixture_width=2, chain_depth=1)], ids=repr
)
def test_odd_images(shape, op):
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    its = values(op, 8, shape[:2])
    for row in range(8):
        got = mix(op, its, row, image.copy(), run)
        assert got.shape == shape and got.dtype == np.uint8 and got.flags.c_contiguous


def test_a_row_depends_on_its_own_numbers_only_and_rows_can_be_taken_out():
    op, image = AugMix(alpha=0.4), picture(2)
    u, sizes = uniform(0, 0, np.arange(8), 3, op.draws), np.tile([image.shape[:2]], (8, 1))
    (whole,) = choose(op, u, sizes)
    some = whole[[5, 2]]
    for row, place in ((5, 0), (2, 1)):
        (alone,) = choose(op, u[row : row + 1], sizes[row : row + 1])
        want = mix(op, alone.values[0], 0, image.copy(), run)
        np.testing.assert_array_equal(mix(op, whole.values[0], row, image.copy(), run), want)
        np.testing.assert_array_equal(mix(op, some.values[0], place, image.copy(), run), want)


def test_same_bytes_in_any_batch_and_on_any_thread():
    images = np.stack([picture(i) for i in range(12)])
    ops = [AugMix(), Maybe(AugMix(9), 0.5)]
    first, second = [
        np.concatenate(
            [batch.images for batch in Feed(Arrays(images), ops, batch=batch, threads=threads)]
        )
        for batch, threads in ((12, 1), (3, 4))
    ]
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, images)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: AugMix(11), "AugMix severity must be an integer in [1, 10], got 11"),
        (
            lambda: AugMix(mixture_width=0),
            "AugMix mixture_width must be an integer in [1, 16], got 0",
        ),
        (
            lambda: AugMix(chain_depth=0),
            "AugMix chain_depth must be an integer in [1, 16], got 0; -1 draws one to three",
        ),
        (
            lambda: AugMix(alpha=0),
            "AugMix alpha must be a number in [0.01, 50], got 0; 1.0 is usual",
        ),
        (lambda: AugMix(filter="box"), "AugMix filter must be one of bilinear, nearest, got 'box'"),
    ],
)
def test_errors_say_what_is_allowed(make, text):
    with pytest.raises(ConfigError) as error:
        make()
    assert text in str(error.value)
