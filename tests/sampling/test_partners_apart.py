"""Rows of a batch whose neighbors are different samples, wherever that is possible."""

from __future__ import annotations

from cProfile import Profile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.sampling.partners import apart


@given(st.data())
def test_no_group_holds_a_sample_twice(data):
    """At up to as many rows of a sample as there are groups, with rows of no group at both ends."""
    group = data.draw(st.sampled_from([2, 4]))
    groups = data.draw(st.integers(1, 12))
    lead, rest = (data.draw(st.integers(0, group - 1)) for _ in range(2))
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    counts, total = [], groups * group
    while sum(counts) < total:
        counts.append(min(rng.integers(1, groups + 1), total - sum(counts)))
    inner = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    ids = np.concatenate([rng.integers(100, 200, lead), inner, rng.integers(100, 200, rest)])
    rows = apart(ids, group, lead, (3, lead))
    assert sorted(rows.tolist()) == list(range(len(ids)))
    table = np.sort(ids[rows][lead : lead + total].reshape(groups, group), axis=1)
    assert (table[:, 1:] != table[:, :-1]).all()


def test_rows_stay_where_no_sample_meets_itself():
    ids = np.array([3, 4, 3, 5, 4, 3])
    assert apart(ids, 2, 0, (1,)).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_sample_that_fills_most_rows_is_dealt():
    ids = np.array([7, 7, 7, 7, 7, 1, 2, 3])
    rows = apart(ids, 2, 0, (1,))
    table = ids[rows].reshape(-1, 2)
    assert sorted(rows.tolist()) == list(range(8))
    assert (table[:, 0] == table[:, 1]).sum() == 1


@pytest.mark.parametrize("group", [2, 4])
def test_work_grows_with_the_rows_where_a_sample_fills_many(group):
    rng = np.random.default_rng(1)
    calls = {}
    for rows in (256, 1024):
        ids = np.where(rng.permutation(rows) < 0.95 * rows // group, 0, np.arange(1, rows + 1))
        with Profile() as profile:
            apart(ids, group, 0, (1,))
        calls[rows] = sum(entry.callcount for entry in profile.getstats())
    assert calls[1024] < 8 * calls[256]


def test_fewer_rows_than_a_group():
    assert apart(np.array([1, 1]), 4, 3, (1,)).tolist() == [0, 1]
