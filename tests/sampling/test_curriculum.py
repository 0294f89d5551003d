"""Curriculum: the lowest values first, all samples at the end."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.plans import Rows, curriculum, limit, plans, served
from hypothesis import given
from hypothesis import strategies as st

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.sampling import Curriculum
from fastfeed.sampling.plan import Plan

VALUES = np.array([5, 1, 4, 1, 3, 0, 2, 9])


@given(plans(curriculum), st.integers(0, 7))
def test_an_epoch_has_the_lowest_values_equally_often(plan, epoch):
    order = plan.shuffle
    ids, occurrences = plan.at(epoch, np.arange(plan.length))
    times = np.bincount(ids, minlength=plan.samples)[order.by.ids]
    pool = np.count_nonzero(times)
    assert times[:pool].min() >= times[:pool].max() - 1
    assert occurrences.max() == times.max() - 1
    if epoch >= order.epochs:
        assert pool == plan.samples
    elif epoch == 0:
        assert pool == max(1, round(order.start * plan.samples))


def test_the_share_grows_evenly():
    plan = Plan(100, 10, shuffle=Curriculum(np.arange(100)[::-1], start=0.2, epochs=4))
    pools = [np.unique(served(plan, epoch).ids) for epoch in range(6)]
    assert [len(pool) for pool in pools] == [20, 40, 60, 80, 100, 100]
    for pool in pools:
        assert pool.tolist() == list(range(100 - len(pool), 100)), "the values descend"


def test_samples_come_at_any_place_of_an_epoch():
    """Chi-square over thirds of an epoch, for each sample of the first half."""
    plan = Plan(12, 12, shuffle=Curriculum(np.arange(12), start=0.5, epochs=1000))
    counts = np.zeros((3, 6))
    for epoch in range(80):
        for third, ids in enumerate(served(plan, epoch).ids.reshape(3, 4)):
            counts[third] += np.bincount(ids, minlength=7)[:6]
    expected = counts.sum() / counts.size
    assert ((counts - expected) ** 2 / expected).sum() < limit(counts.size)


def test_a_column_is_read_from_the_source():
    source = ff.Files([f"{i}.jpg" for i in range(8)], columns={"hard": VALUES})
    by_name, by_value = Curriculum("hard").bind(source), Curriculum(VALUES).bind(source)
    assert by_name == by_value and repr(by_name) == repr(by_value)
    assert by_name.by.ids.tolist() == [5, 1, 3, 6, 4, 2, 0, 7], "equal values as they are stored"
    assert by_name != Curriculum(-VALUES)


def test_golden_order():
    """Never changes: saved states name positions in it."""
    plan = Plan(8, 4, seed=7, shuffle=Curriculum(VALUES, start=0.25, epochs=2))
    assert [served(plan, epoch).ids.tolist() for epoch in range(3)] == GOLDEN


GOLDEN = [[5, 1, 1, 5, 5, 1, 1, 5], [5, 3, 6, 1, 4, 4, 3, 1], [7, 3, 6, 1, 0, 2, 5, 4]]


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda: Curriculum("x", start=0), "Curriculum.start must be in (0, 1], got 0"),
        (lambda: Curriculum("x", epochs=0), "Curriculum.epochs must be an integer >= 1, got 0"),
        (
            lambda: Curriculum([1.0, np.nan, 2, np.nan]),
            "Curriculum.by must be a number for every sample, got NaN for sample 1 and 1 more",
        ),
        (
            lambda: Curriculum(["a", "b"]),
            "Curriculum.by must be the name of a column or one number per sample, got <U1[2]",
        ),
        (
            lambda: Curriculum("x").bind(Rows(4)),
            "Curriculum.by must be a column of the source, which has none, got 'x'; columns of"
            " shards are read with each sample: pass one value per sample instead",
        ),
        (
            lambda: Curriculum([1, 2]).bind(Rows(4)),
            "Curriculum.by must be one number per sample: 4, got 2",
        ),
        (
            lambda: Plan(4, 2, shuffle=Curriculum("x")),
            "Curriculum(by='x') takes a column of a source and is not bound to one; create a Feed"
            " with it, or call its bind(source)",
        ),
    ],
)
def test_refuses(do, text):
    with pytest.raises(ConfigError) as error:
        do()
    assert str(error.value) == text
