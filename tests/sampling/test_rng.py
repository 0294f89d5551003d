"""Draws are a pure function of (seed, epoch, sample id, slot), and as good as random."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError
from fastfeed.sampling.rng import SLOT_SUBSTITUTE, philox, uniform

# kat_vectors of Random123: counter, key, result of philox4x32-10
KNOWN = {
    "zeros": (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    "ones": (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    "pi": (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
}


GOLDEN = [
    [0.5215441594740536, 0.7849946118940331, 0.020586622013479716],
    [0.03370293896806542, 0.3306591140987175, 0.9233806276413395],
    [0.9973801549673682, 0.6443512337662968, 0.9347614014750195],
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize("name", KNOWN)
def test_philox_known_answers(name):
    counter, (low, high), answer = (words(text) for text in KNOWN[name])
    got = philox(np.array(counter, np.uint64)[:, None], low | high << 32)
    assert got[:, 0].tolist() == answer


def test_philox_columns_are_independent():
    counters = np.array([words(counter) for counter, _, _ in KNOWN.values()], np.uint64).T
    together = philox(counters, 12345)
    for i in range(counters.shape[1]):
        np.testing.assert_array_equal(together[:, i], philox(counters[:, i : i + 1], 12345)[:, 0])


def test_golden_numbers():
    """These never change: every published run and every saved state depends on them."""
    got = uniform(seed=7, epoch=3, ids=np.array([0, 1, 2**40]), slot=2, n=3)
    np.testing.assert_array_equal(got, GOLDEN)


def test_number_is_53_bits_of_two_words():
    block = philox(np.array([[5], [1], [9], [4 << 16]], np.uint64), 11)[:, 0].tolist()
    first = ((block[0] >> 5) * 2**26 + (block[1] >> 6)) / 2**53
    second = ((block[2] >> 5) * 2**26 + (block[3] >> 6)) / 2**53
    assert uniform(11, 9, np.array([5 + 2**32]), 4, 2)[0].tolist() == [first, second]


SEEDS, EPOCHS, SLOTS = (
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, SLOT_SUBSTITUTE),
)
IDS = st.lists(st.integers(0, 2**63 - 1), max_size=20)


@given(SEEDS, EPOCHS, IDS, SLOTS, st.integers(0, 30))
def test_shape_range_and_rows_by_themselves(seed, epoch, ids, slot, n):
    got = uniform(seed, epoch, np.array(ids, np.int64), slot, n)
    assert (got.shape, got.dtype) == ((len(ids), n), np.float64)
    assert np.all((got >= 0) & (got < 1))
    for row, id in enumerate(ids):
        np.testing.assert_array_equal(got[row], uniform(seed, epoch, np.array([id]), slot, n)[0])


@given(st.integers(0, 30), st.integers(0, 30))
def test_more_numbers_begin_with_the_same_ones(few, more):
    few, more = sorted((few, more))
    ids = np.arange(5)
    np.testing.assert_array_equal(uniform(1, 2, ids, 3, few), uniform(1, 2, ids, 3, more)[:, :few])


IDS_10K = np.arange(10_000)


def sample(seed: int = 0, epoch: int = 0, slot: int = 0) -> np.ndarray:
    return uniform(seed, epoch, IDS_10K, slot, 4)


def test_uniform_over_the_unit_interval():
    u = sample().ravel()
    assert abs(u.mean() - 0.5) < 5 / np.sqrt(12 * len(u))
    counts = np.bincount((u * 64).astype(int), minlength=64)
    chi2 = ((counts - len(u) / 64) ** 2 / (len(u) / 64)).sum()
    assert chi2 < 63 + 5 * np.sqrt(2 * 63)
    assert len(np.unique(u)) == len(u)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"seed": 1 << 32},
        {"seed": 1 << 63},
        {"epoch": 1},
        {"epoch": 1 << 31},
        {"slot": 1},
        {"slot": SLOT_SUBSTITUTE},
    ],
    ids=str,
)
def test_streams_do_not_know_of_each_other(other):
    a, b = sample().ravel(), sample(**other).ravel()
    assert not np.any(a == b)
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(len(a))


def test_columns_and_neighbours_are_uncorrelated():
    u = sample()
    table = np.corrcoef(np.concatenate([u[:-1].T, u[1:].T]))
    assert np.abs(table - np.eye(8)).max() < 5 / np.sqrt(len(u))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((-1, 0, 0), "seed must be an integer in [0, 2**64), got -1"),
        ((2**64, 0, 0), f"seed must be an integer in [0, 2**64), got {2**64}"),
        ((0.5, 0, 0), "seed must be an integer in [0, 2**64), got 0.5"),
        ((True, 0, 0), "seed must be an integer in [0, 2**64), got True"),
        ((None, 0, 0), "seed must be an integer in [0, 2**64), got None"),
        ((0, -1, 0), "epoch must be an integer in [0, 2**32), got -1"),
        ((0, 2**32, 0), f"epoch must be an integer in [0, 2**32), got {2**32}"),
        ((0, 0, -1), "slot must be in [0, 65535], got -1"),
        ((0, 0, 65536), "slot must be in [0, 65535], got 65536"),
    ],
)
def test_refuses(arguments, text):
    seed, epoch, slot = arguments
    with pytest.raises(ConfigError) as error:
        uniform(seed, epoch, np.arange(3), slot, 1)
    assert str(error.value) == text


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32])
def test_numpy_integers_are_seeds(kind):
    np.testing.assert_array_equal(
        uniform(kind(7), kind(3), np.arange(3), 1, 4), uniform(7, 3, np.arange(3), 1, 4)
    )
