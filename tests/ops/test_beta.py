"""Random numbers of other distributions: they are what they are called, and each depends on its own
uniform only.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastfeed.ops.beta import beta, dirichlet

PAIRS = [
    (0.05, 0.05),
    (0.2, 0.2),
    (0.4, 1.2),
    (0.5, 3.0),
    (1, 1),
    (1, 2.5),
    (0.3, 1),
    (8, 8),
    (30, 2),
    (1000, 1000),
]
U = (np.arange(20_000) + 0.5) / 20_000


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_moments_are_those_of_the_distribution(a, b):
    """At evenly spread numbers a mean is an integral."""
    x = beta(U, a, b)
    mean = a / (a + b)
    assert math.isclose(x.mean(), mean, abs_tol=2e-4)
    assert math.isclose(x.var(), a * b / ((a + b) ** 2 * (a + b + 1)), rel_tol=2e-3)
    assert math.isclose(
        (x**3).mean(), math.prod((a + k) / (a + b + k) for k in range(3)), abs_tol=3e-4
    )
    assert (np.diff(x) >= 0).all() and x.min() >= 0 and x.max() <= 1


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_inverts_the_distribution_function(a, b):
    special = pytest.importorskip(
        "scipy.special", reason="no SciPy to compare with: pip install scipy"
    )
    x = beta(U, a, b)
    held = (x > 1e-300) & (x < 0.999999)
    assert np.abs(special.betainc(a, b, x) - U)[held].max() < 1e-11


def test_known_quantiles():
    """Of the arcsine law and of a polynomial."""
    np.testing.assert_allclose(beta(U, 0.5, 0.5), np.sin(np.pi * U / 2) ** 2, rtol=1e-9)
    x = beta(U, 2, 2)
    np.testing.assert_allclose(3 * x**2 - 2 * x**3, U, atol=1e-12)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_ends_are_numbers(a, b):
    x = beta(np.array([0.0, 2.0**-53, 1 - 2.0**-53]), a, b)
    assert np.isfinite(x).all() and 0 <= x[0] <= x[1] < 0.5 < x[2] <= 1


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_each_depends_on_its_own_number_only(a, b):
    u = np.random.default_rng(0).random(200)
    np.testing.assert_array_equal(
        np.concatenate([beta(u[i : i + 1], a, b) for i in range(200)]), beta(u, a, b)
    )
    np.testing.assert_array_equal(beta(u.reshape(20, 10), a, b).reshape(-1), beta(u, a, b))


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_dirichlet_shares_sum_to_one_and_are_alike(alpha):
    shares = dirichlet(np.random.default_rng(1).random((40_000, 3)), alpha, 4)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(shares.mean(axis=0), 0.25, atol=0.006)
    np.testing.assert_allclose(shares.var(axis=0), 0.1875 / (4 * alpha + 1), rtol=0.04)
    assert dirichlet(np.empty((3, 0)), alpha, 1).tolist() == [[1.0]] * 3
