"""ClassBatches: different classes and different samples in a batch, all of them equally often."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from helpers.plans import Rows, class_batches, limit, plans, served
from hypothesis import given
from hypothesis import strategies as st

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.sampling import ClassBatches
from fastfeed.sampling.orders.class_batches import Deck
from fastfeed.sampling.orders.classes import Classes
from fastfeed.sampling.plan import Plan


def class_of(plan: Plan) -> np.ndarray:
    classes: Classes = plan.shuffle.by_class
    found = np.empty(plan.samples, np.int64)
    found[classes.ids] = np.repeat(np.arange(len(classes.sizes)), classes.sizes)
    return found


@given(plans(class_batches))
def test_a_run_has_different_classes_and_different_samples_of_each(plan):
    order = plan.shuffle
    for epoch in range(3):
        ids = served(plan, epoch).ids.reshape(-1, order.classes, order.per_class)
        classes = class_of(plan)[ids]
        assert (classes == classes[..., :1]).all()
        for run, chosen in zip(ids, classes[..., 0], strict=True):
            assert len(np.unique(chosen)) == order.classes
            assert len(np.unique(run)) == order.run


@given(plans(class_batches), st.data())
def test_classes_and_their_samples_come_alike_from_the_beginning(plan, data):
    classes, order = class_of(plan), plan.shuffle
    used = np.zeros(plan.samples, np.int64)
    for epoch in range(6):
        ids = served(plan, epoch).ids
        cut = data.draw(st.integers(0, len(ids) // order.run)) * order.run if epoch == 5 else None
        used += np.bincount(ids[:cut], minlength=plan.samples)
    by_class = np.bincount(classes, used)
    assert (by_class % order.per_class == 0).all()
    assert np.ptp(by_class) <= 2 * order.per_class
    for number in range(len(by_class)):
        assert np.ptp(used[classes == number]) <= 2


@given(plans(class_batches), st.integers(0, 5))
def test_occurrences_in_an_epoch_count_from_zero(plan, epoch):
    visits = served(plan, epoch)
    for sample in np.unique(visits.ids):
        occurrences = np.sort(visits.occurrences[visits.ids == sample])
        assert occurrences.tolist() == list(range(len(occurrences)))


@pytest.mark.parametrize("sizes", [(7, 3), (10, 4), (9, 9), (8, 1), (6, 5)])
def test_all_hands_are_equally_likely(sizes):
    """Chi-square over the pairs of items that meet in a hand, and over the places of each item."""
    items, size = sizes
    count = 6000
    hands = np.repeat(np.arange(count), size)
    dealt, _ = Deck(items, size, (5, 1)).deal(hands, np.tile(np.arange(size), count))
    table = dealt.reshape(count, size)
    places = np.stack([np.bincount(column, minlength=items) for column in table.T])
    expected = count / items
    assert ((places - expected) ** 2 / expected).sum() < limit(size * items)
    if size == 1:
        return
    member = np.zeros((count, items), bool)
    np.put_along_axis(member, table, True, axis=1)
    pairs = np.array(
        [(member[:, a] & member[:, b]).sum() for a, b in combinations(range(items), 2)]
    )
    expected = count * size * (size - 1) / (items * (items - 1))
    assert ((pairs - expected) ** 2 / expected).sum() < limit(len(pairs))


@given(st.integers(1, 12), st.data())
def test_earlier_hands_are_counted(items, data):
    """As by going through them."""
    size = data.draw(st.integers(1, items))
    deck, seen = Deck(items, size, (data.draw(st.integers(0, 99)),)), np.zeros(items, np.int64)
    for hand in range(40):
        hands, places = np.full(size, hand), np.arange(size)
        dealt, times = deck.deal(hands, places)
        assert times.tolist() == seen[dealt].tolist()
        everyone = np.arange(items)
        assert deck.before(np.full(items, hand), everyone).tolist() == seen.tolist()
        seen[dealt] += 1


def test_one_deck_per_row_deals_as_each_alone():
    items, hands, places = np.array([4, 7, 5]), np.array([9, 30, 2]), np.array([1, 0, 1])
    together = Deck(items, 2, (3, np.array([0, 1, 2]))).deal(hands, places)
    for row in range(3):
        part = slice(row, row + 1)
        alone = Deck(int(items[row]), 2, (3, row)).deal(hands[part], places[part])
        assert [column[row] for column in together] == [column[0] for column in alone]


def test_a_class_goes_through_its_samples_before_any_comes_again():
    source = Rows(24, labels=np.arange(24) % 2)
    plan = Plan(24, 8, shuffle=ClassBatches(2, 4, length=48).bind(source))
    ids, occurrences = served(plan)
    assert sorted(ids[:24].tolist()) == list(range(24))
    assert occurrences.tolist() == [0] * 24 + [1] * 24


def test_golden_order():
    """Never changes: saved states name positions in it."""
    labels = [5, 0, 5, 2, 5, 2, 0, 5]
    plan = Plan(8, 4, seed=7, shuffle=ClassBatches(2, 2).bind(Rows(8, labels=labels)))
    visits = served(plan, 3)
    assert visits.ids.tolist() == GOLDEN
    assert visits.occurrences.tolist() == GOLDEN_TURNS


GOLDEN = [3, 5, 0, 7, 5, 3, 1, 6]
GOLDEN_TURNS = [0, 0, 0, 0, 1, 1, 0, 0]


def test_ranks_have_whole_classes():
    labels = np.arange(200) % 20
    source = ff.Arrays(np.zeros((200, 1, 1, 3), np.uint8), labels)
    for rank in range(4):
        order = ClassBatches(4, 2)
        with ff.Feed(source, [], batch=8, world=ff.World(rank, 4), shuffle=order) as feed:
            for batch in feed:
                assert sorted(np.bincount(batch.labels, minlength=20))[-4:] == [2] * 4


def test_prints_as_written_once_bound():
    bound = ClassBatches(1, 2).bind(Rows(2, labels=[0, 0]))
    assert repr(bound) == "ClassBatches(classes=1, per_class=2, length=None)"
    assert bound == ClassBatches(1, 2)


class Named(Rows):
    classes = ("cat", "dog", "eel")

    def __repr__(self) -> str:
        return "Named()"


LABELS = [0, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda: ClassBatches(0), "ClassBatches.classes must be an integer >= 1, got 0"),
        (
            lambda: ClassBatches(4, 2, length=12),
            "ClassBatches.length must be a multiple of classes x per_class = 8, got 12",
        ),
        (
            lambda: ClassBatches(4, 1).bind(Named(6, labels=LABELS)),
            "ClassBatches(classes=4) needs as many classes with samples, got 3 in Named(); pass"
            " classes=3 or fewer",
        ),
        (
            lambda: ClassBatches(2, 3).bind(Named(6, labels=LABELS)),
            "ClassBatches(per_class=3) needs as many samples of every class, got 1 of class 'cat'"
            " and 1 more such classes; pass a lower per_class, or leave small classes out:"
            " ff.where(source, lambda columns: np.bincount(columns['label'])[columns['label']] >= 3)",
        ),
        (
            lambda: Plan(6, 4, shuffle=ClassBatches(2, 1)),
            "ClassBatches() takes its classes from the labels of a source and is not bound to one;"
            " create a Feed with it, or call its bind(source)",
        ),
        (
            lambda: Plan(6, 3, shuffle=ClassBatches(2, 1).bind(Named(6, labels=LABELS))),
            "ClassBatches(classes=2, per_class=1, length=None) needs a global batch that is a"
            " multiple of 2, got 3 samples per step; pass global_batch=2, or a multiple",
        ),
    ],
)
def test_refuses(do, text):
    with pytest.raises(ConfigError) as error:
        do()
    assert str(error.value) == text


def test_what_the_refusal_advises_leaves_small_classes_out():
    source = ff.Arrays(np.zeros((6, 1, 1, 3), np.uint8), LABELS)
    kept = ff.where(source, lambda c: np.bincount(c["label"])[c["label"]] >= 2)
    with ff.Feed(kept, [], batch=4, shuffle=ClassBatches(2, 2)) as feed:
        assert sorted(next(iter(feed)).labels.tolist()) == [1, 1, 2, 2]
