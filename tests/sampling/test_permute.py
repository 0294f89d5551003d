"""The permutation is a bijection, takes no memory, and leaves no order behind."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.sampling.permute import permute

KEYS = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**20))


def order(n: int, *key: int) -> np.ndarray:
    return permute(np.arange(n), n, key)


@pytest.mark.parametrize("key", [(0,), (7, 3, 0), (2**64 - 1, 2**32 - 1, 5)], ids=str)
def test_bijection_for_every_small_n(key):
    for n in range(1, 301):
        got = order(n, *key)
        assert got.dtype == np.int64
        np.testing.assert_array_equal(np.sort(got), np.arange(n), err_msg=f"n = {n}")
        np.testing.assert_array_equal(
            permute(got, n, key, inverse=True), np.arange(n), err_msg=f"n = {n}"
        )


@given(st.integers(1, 1_000_000), KEYS)
def test_bijection_for_any_n(n, key):
    seen = np.zeros(n, bool)
    seen[order(n, *key)] = True
    assert seen.all()


@given(st.integers(1, 2**40), KEYS, st.lists(st.integers(0, 2**62), max_size=50))
def test_inverse_for_huge_n(n, key, values):
    values = np.array(values, np.int64) % n
    there = permute(values, n, key)
    assert np.all((there >= 0) & (there < n))
    np.testing.assert_array_equal(permute(there, n, key, inverse=True), values)


def test_a_value_goes_where_it_goes_whatever_is_asked_with_it():
    whole = order(1000, 1, 2)
    for some in ([5], [999, 0, 5], []):
        np.testing.assert_array_equal(permute(np.array(some, np.int64), 1000, (1, 2)), whole[some])


def test_a_billion_takes_no_memory():
    n = 10**9
    spots = np.arange(0, n, n // 1000)
    permute(spots, n, (1,))  # whatever NumPy allocates once
    tracemalloc.start()
    try:
        got = permute(spots, n, (0, 0, 0))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
    assert len(np.unique(got)) == len(spots)
    near = permute(np.arange(n - 100_000, n), n, (0, 0, 0))
    assert len(np.unique(near)) == len(near)
    assert abs(near.mean() / n - 0.5) < 5 / np.sqrt(12 * len(near))


def test_takes_any_shape_and_leaves_its_argument_alone():
    values = np.arange(12).reshape(3, 4)
    got = permute(values, 12, (7, 3, 0))
    assert got.shape == (3, 4)
    np.testing.assert_array_equal(values, np.arange(12).reshape(3, 4))
    one = np.zeros(1, np.int64)
    assert permute(one, 1, (1,)) is not one


@pytest.mark.parametrize("n", [5, 6, 7, 8])
def test_every_value_is_as_likely_in_every_place(n):
    rounds = 3000
    counts = np.zeros((n, n))
    for seed in range(rounds):
        counts[np.arange(n), order(n, seed, 0, 0)] += 1
    chi2 = ((counts - rounds / n) ** 2 / (rounds / n)).sum()
    freedom = (n - 1) ** 2
    assert abs(chi2 - freedom) < 5 * np.sqrt(2 * freedom)


def test_all_orders_of_four_come_up_alike():
    rounds, orders = 6000, {}
    for seed in range(rounds):
        key = tuple(order(4, seed, 0, 0).tolist())
        orders[key] = orders.get(key, 0) + 1
    assert len(orders) == 24
    chi2 = sum((count - rounds / 24) ** 2 / (rounds / 24) for count in orders.values())
    assert chi2 < 23 + 5 * np.sqrt(2 * 23)


@pytest.mark.parametrize(
    "other", [(0, 1, 0), (1, 0, 0), (0, 0, 1), (2**32, 0, 0), (2**63, 0, 0)], ids=str
)
def test_keys_do_not_know_of_each_other(other):
    n = 20_000
    a, b = order(n, 0, 0, 0), order(n, *other)
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(n)
    assert (a == b).sum() < 10  # one is expected
    assert abs(np.corrcoef(a[:-1], b[1:])[0, 1]) < 5 / np.sqrt(n)


def test_no_order_is_left():
    n = 20_000
    got = order(n, 0, 0, 0)
    for lag in (1, 2, 141, 142, 283):  # 142 = the side of the network's square
        assert abs(np.corrcoef(got[:-lag], got[lag:])[0, 1]) < 5 / np.sqrt(n), lag
    assert abs(np.corrcoef(got, np.arange(n))[0, 1]) < 5 / np.sqrt(n)
    steps = np.bincount(np.diff(got) % n, minlength=n)
    assert (
        steps.max() < 12
    )  # a permutation with structure repeats its steps; Poisson(1) does not come so far


def test_golden_order():
    """Never changes: saved states name positions in it."""
    assert order(12, 7, 3, 0).tolist() == [6, 1, 7, 9, 5, 8, 2, 3, 11, 10, 0, 4]
    far = permute(np.array([0, 1, 10**9 - 1]), 10**9, (7, 3, 0))
    assert far.tolist() == [80425310, 953738794, 380202350]


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32])
def test_numpy_integers_are_keys(kind):
    np.testing.assert_array_equal(order(100, kind(7), kind(3), 0), order(100, 7, 3, 0))


# -- one permutation per value


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**40), st.integers(1, 60), st.booleans())
def test_each_value_may_have_its_own_permutation(seed, most, count, inverse):
    """The one that it has alone."""
    numbers = np.random.default_rng(seed)
    n, part = numbers.integers(1, most + 1, count), numbers.integers(0, 2**62, count)
    values = numbers.integers(0, n)
    got = permute(values, n, (seed, part, 3), inverse)
    for i in range(count):
        assert got[i] == permute(values[i : i + 1], int(n[i]), (seed, int(part[i]), 3), inverse)[0]


def test_either_may_be_an_array():
    values = np.arange(100) % 7
    sizes, parts = np.full(100, 7), np.full(100, 5)
    expected = permute(values, 7, (1, 5))
    np.testing.assert_array_equal(permute(values, sizes, (1, 5)), expected)
    np.testing.assert_array_equal(permute(values, 7, (1, parts)), expected)
    got = permute(values.reshape(4, 25), sizes.reshape(4, 25), (1, parts.reshape(4, 25)))
    np.testing.assert_array_equal(got, expected.reshape(4, 25))
