"""Repeated: every sample as many times."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.plans import served

from fastfeed.errors import ConfigError
from fastfeed.sampling import Repeated
from fastfeed.sampling.plan import Plan


@pytest.mark.parametrize("together", [False, True])
def test_each_sample_and_turn_once(together):
    plan = Plan(50, 20, shuffle=Repeated(3, together), tail="pad")
    assert (plan.length, plan.steps) == (150, 8)
    pairs = served(plan, 4)
    assert sorted(zip(*map(np.ndarray.tolist, pairs), strict=True)) == [
        (id, turn) for id in range(50) for turn in range(3)
    ]


def test_all_samples_come_before_any_comes_again():
    ids, occurrences = served(Plan(50, 10, shuffle=Repeated(3)))
    assert occurrences.tolist() == [0] * 50 + [1] * 50 + [2] * 50
    walks = [ids[first : first + 50].tolist() for first in (0, 50, 100)]
    assert walks[0] != walks[1] != walks[2] != walks[0]
    assert walks[0] == served(Plan(50, 10)).ids.tolist(), "the first time is a plain epoch"


def test_together_means_next_to_each_other():
    ids, occurrences = served(Plan(50, 10, shuffle=Repeated(5, together=True)))
    assert (ids.reshape(50, 5) == ids[::5, None]).all()
    assert occurrences.tolist() == [0, 1, 2, 3, 4] * 50


def test_fewer_positions_hold_other_samples_in_every_epoch():
    """DeiT's sampler: as many steps as without repeats, of a third of the samples."""
    plan = Plan(60, 12, shuffle=Repeated(3, together=True, length=60))
    epochs = [served(plan, epoch).ids.reshape(-1, 3) for epoch in range(2)]
    for ids in epochs:
        assert (ids == ids[:, :1]).all() and len(np.unique(ids)) == 20
    assert set(epochs[0].ravel()) != set(epochs[1].ravel())


def test_golden_orders():
    """Never change: saved states name positions in them."""
    plan = Plan(4, 4, seed=7, shuffle=Repeated(2))
    assert [plan.ids(3, step).tolist() for step in range(2)] == GOLDEN
    plan = Plan(4, 4, seed=7, shuffle=Repeated(2, together=True))
    assert [plan.ids(3, step).tolist() for step in range(2)] == GOLDEN_TOGETHER


GOLDEN = [[1, 2, 3, 0], [1, 3, 2, 0]]
GOLDEN_TOGETHER = [[1, 1, 2, 2], [3, 3, 0, 0]]


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda: Repeated(0), "Repeated.times must be an integer >= 1, got 0"),
        (lambda: Repeated(2**17), "Repeated.times must be at most 65536, got 131072"),
        (lambda: Repeated(2, length=0), "Repeated.length must be an integer >= 1, got 0"),
        (
            lambda: Plan(4, 2, shuffle=Repeated(2, length=9)),
            "Repeated.length must be at most 8, 2 times 4 samples, got 9",
        ),
        (lambda: Repeated(2, 1), "Repeated.together must be True or False, got 1"),
    ],
)
def test_refuses(do, text):
    with pytest.raises(ConfigError) as error:
        do()
    assert str(error.value) == text
