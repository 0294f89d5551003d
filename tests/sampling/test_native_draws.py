"""The native extension's random numbers and permutations are those that NumPy code defines."""

import numpy as np
import pytest

from fastfeed.runtime.extension import extension, is_built
from fastfeed.sampling.permute import _permute, _round_keys, _sides, permute
from fastfeed.sampling.rng import _uniform, uniform

pytestmark = pytest.mark.skipif(not is_built(), reason="the native extension is not built")


@pytest.mark.parametrize("n", [1, 2, 3, 22, 23, 4097])
@pytest.mark.parametrize(
    ("seed", "epoch", "slot"), [(0, 0, 0), (2**64 - 1, 2**32 - 1, 0xFFFF), (7, 3, 12)]
)
def test_uniform(seed, epoch, slot, n):
    ids = np.array([0, 1, 2**40, 5, 2**62, 5])
    drawn = uniform(seed, epoch, ids, slot, n)
    assert drawn.dtype == np.float64 and drawn.shape == (6, n)
    assert np.array_equal(drawn, _uniform(seed, epoch, ids, slot, n))


def test_uniform_of_strided_and_no_ids():
    ids = np.arange(20)[::3]
    assert np.array_equal(uniform(1, 2, ids, 3, 5), _uniform(1, 2, ids, 3, 5))
    assert uniform(1, 2, ids[:0], 3, 5).shape == (0, 5) and uniform(1, 2, ids, 3, 0).shape == (7, 0)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 10, 1000, 2**20 - 3, 2**40 - 7])
def test_permute(n, inverse):
    values = np.unique(
        np.r_[np.arange(min(n, 500)), np.random.default_rng(0).integers(0, n, 500), n - 1]
    )
    key = (3, 1, 0)
    assert np.array_equal(
        permute(values, n, key, inverse), _permute(values, n, _sides(n), _round_keys(key), inverse)
    )


def test_permute_keeps_the_shape():
    values = np.arange(12).reshape(3, 4)
    assert np.array_equal(
        permute(values, 12, (1,)).reshape(-1), permute(values.reshape(-1), 12, (1,))
    )


@pytest.mark.parametrize("inverse", [False, True])
def test_permute_each_value_in_its_own(inverse):
    numbers = np.random.default_rng(0)
    sizes = np.r_[1, 2, 3, 2**40 - 7, numbers.integers(1, 1000, 500)]
    values = numbers.integers(0, sizes)
    parts = numbers.integers(0, 2**62, len(values))
    for n, key in ((sizes, (3, parts)), (sizes, (3, 1)), (2**40, (parts, 1))):
        expected = _permute(values, n, _sides(n), _round_keys(key), inverse)
        assert np.array_equal(permute(values, n, key, inverse), expected)


def test_values_outside_are_refused():
    out = np.empty(2, np.int64)
    keys = np.zeros((8, 1), np.uint64)

    def ask(values, *numbers):
        extension().permute(np.array(values), *np.array(numbers, np.uint64), keys, False, out)

    with pytest.raises(IndexError, match="not in"):
        ask([4, 5], [5], [3], [2])
    with pytest.raises(IndexError, match="not in"):
        ask([4, 4], [5, 4], [3, 3], [2, 2])
    with pytest.raises(ValueError, match="sides"):
        ask([1, 1], [6, 7], [3, 3], [2, 2])
    with pytest.raises(ValueError, match="one entry per value"):
        ask([1, 1], [6, 6, 6], [3, 3, 3], [2, 2, 2])
