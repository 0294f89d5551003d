"""Counting without sorting agrees with numpy.unique for any type and spread of values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.profiler.model.columns import factorize, unique_values

near = st.integers(-3, 12)
far = st.sampled_from([-(2**62), -1, 0, 7, 2**40, 2**63 - 1])


@given(st.lists(near | far, max_size=12).map(lambda values: np.array(values, np.int64)))
def test_as_numpy_unique(column: np.ndarray) -> None:
    before = column.copy()
    values, number = factorize(column)
    wanted, inverse = np.unique(column, return_inverse=True)
    assert unique_values(column).tolist() == values.tolist() == wanted.tolist()
    assert number.dtype == np.int64
    assert number.tolist() == inverse.tolist()
    values[:] = 0
    assert (column == before).all()  # values are no view


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32, np.int64])
def test_keeps_the_type_up_to_its_limits(kind: type[np.integer]) -> None:
    limits = np.iinfo(kind)
    column = np.array([limits.max - 1, limits.min + 3, 1, limits.max - 1], kind)
    assert unique_values(column).dtype == kind
    assert unique_values(column).tolist() == np.unique(column).tolist()
    many = np.resize(column, 1000)  # dense enough for a table in eight bits
    assert unique_values(many).tolist() == np.unique(column).tolist()
    assert (factorize(many)[0][factorize(many)[1]] == many).all()
