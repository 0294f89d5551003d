"""Balanced: classes come alike, and within a class samples do, over epochs too."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.plans import Rows, balanced, plans, served
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError
from fastfeed.sampling import Balanced
from fastfeed.sampling.orders.classes import Classes
from fastfeed.sampling.plan import Plan


@given(plans(balanced))
def test_classes_and_their_samples_come_alike(plan):
    classes: Classes = plan.shuffle.classes
    class_of = np.empty(plan.samples, np.int64)
    class_of[classes.ids] = np.repeat(np.arange(len(classes.sizes)), classes.sizes)
    used = np.zeros(plan.samples, np.int64)
    for epoch in range(8):
        ids, occurrences = served(plan, epoch)
        assert np.ptp(np.bincount(class_of[ids], minlength=len(classes.sizes))) <= 1
        assert occurrences.min() >= 0
        used += np.bincount(ids, minlength=plan.samples)
        for class_ in range(len(classes.sizes)):
            assert np.ptp(used[class_of == class_]) <= 1
    assert np.ptp(np.bincount(class_of, used)) <= 1, "the classes that come once more take turns"


@given(plans(balanced), st.data())
def test_every_stretch_from_the_beginning_is_balanced(plan, data):
    classes: Classes = plan.shuffle.classes
    ids = served(plan).ids[: data.draw(st.integers(1, len(served(plan).ids)))]
    counts = [np.isin(ids, own).sum() for own in np.split(classes.ids, classes.firsts[1:])]
    assert max(counts) - min(counts) <= 1


def test_a_rare_class_goes_through_its_samples_before_any_comes_again():
    """Two classes of 90 and 10 samples: each has 50 of 100 positions, so the rare samples come five
    times an epoch.
    """
    plan = Plan(100, 10, shuffle=Balanced().bind(Rows(100, labels=[0] * 90 + [1] * 10)))
    rare = [
        (id, turn)
        for id, turn in zip(*map(np.ndarray.tolist, served(plan)), strict=True)
        if id >= 90
    ]
    for turn in range(5):
        assert sorted(rare[turn * 10 : turn * 10 + 10]) == [(id, turn) for id in range(90, 100)]
    walks = {tuple(id for id, _ in rare[turn * 10 : turn * 10 + 10]) for turn in range(5)}
    assert len(walks) == 5, "each time in another order"


def test_batches_hold_classes_in_no_fixed_order():
    plan = Plan(1000, 10, shuffle=Balanced().bind(Rows(1000, labels=np.arange(1000) % 10)))
    rounds = served(plan).ids.reshape(100, 10) % 10
    assert (np.sort(rounds) == np.arange(10)).all()
    assert len(np.unique(rounds, axis=0)) > 95


def test_golden_order():
    """Never changes: saved states name positions in it."""
    plan = Plan(
        8,
        4,
        seed=7,
        shuffle=Balanced(10).bind(Rows(8, labels=[5, 0, 5, 2, 5, 5, 0, 5])),
        tail="pad",
    )
    visits = served(plan, 3)
    assert visits.ids.tolist() == GOLDEN
    assert visits.occurrences.tolist() == GOLDEN_TURNS


GOLDEN = [1, 3, 0, 3, 6, 4, 6, 3, 7, 1]
GOLDEN_TURNS = [0, 0, 0, 1, 0, 0, 1, 2, 0, 1]


@pytest.mark.parametrize(
    ("samples", "kind"), [(200, np.uint8), (300, np.uint16), (70_000, np.uint32)]
)
def test_ids_take_few_bytes(samples, kind):
    classes = Classes.of(np.arange(samples) % 7)
    assert classes.ids.dtype == kind
    assert (np.sort(classes.ids) == np.arange(samples)).all()
    assert classes.sizes.sum() == samples and len(classes.sizes) == 7


def test_prints_as_written_once_bound():
    bound = Balanced(5).bind(Rows(2, labels=[0, 1]))
    assert repr(bound) == "Balanced(length=5)" and bound == Balanced(5)


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda: Balanced(0), "Balanced.length must be an integer >= 1, got 0"),
        (
            lambda: Balanced().bind(Rows(4, labels=[0, -1, 1, -1])),
            (
                "Balanced() needs the class of every sample, got 2 of 4 without a label, the first"
                " of them photos/1.jpg; label them or leave them out of the source"
            ),
        ),
        (
            lambda: Plan(4, 2, shuffle=Balanced()),
            (
                "Balanced() takes its classes from the labels of a source and is not bound to one; "
                "create a Feed with it, or call its bind(source)"
            ),
        ),
        (
            lambda: Plan(4, 2, shuffle=Balanced().bind(Rows(3, labels=[0, 0, 1]))),
            (
                "this Balanced() belongs to a source of 3 samples, got a source of 4; bind"
                " Balanced() to it"
            ),
        ),
    ],
)
def test_refuses(do, text):
    with pytest.raises(ConfigError) as error:
        do()
    assert str(error.value) == text
