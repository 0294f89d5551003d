"""MixtureOrder: parts in their shares, evenly spread, each in its own order that continues across
epochs.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.mixing import opened
from helpers.plans import Rows, mixed, plans, served
from hypothesis import given

from fastfeed.errors import ConfigError
from fastfeed.sampling import Blocks, MixtureOrder, MixturePart, bind
from fastfeed.sampling.plan import Plan


def part_of(order: MixtureOrder, ids: np.ndarray) -> np.ndarray:
    return np.searchsorted([part.first for part in order.parts], ids, side="right") - 1


@given(plans(mixed))
def test_parts_have_their_shares_and_samples_take_turns(plan):
    order: MixtureOrder = plan.shuffle
    weights = np.array([part.weight for part in order.parts])
    used = np.zeros(plan.samples, np.int64)
    for epoch in range(5):
        ids, occurrences = served(plan, epoch)
        assert occurrences.min() >= 0
        found = part_of(order, ids)
        share = np.cumsum(found[:, None] == np.arange(len(weights)), axis=0)
        expected = np.arange(1, len(ids) + 1)[:, None] * weights / weights.sum()
        assert np.abs(share - expected).max() < 4
        used += np.bincount(ids, minlength=plan.samples)
        for part in order.parts:
            assert np.ptp(used[part.first : part.first + part.length]) <= 1
    total = np.array([used[part.first : part.first + part.length].sum() for part in order.parts])
    assert np.abs(total - 5 * len(ids) * weights / weights.sum()).max() < 2


def test_shares_as_lengths_are_plain_epochs():
    order = MixtureOrder(
        (
            MixturePart(0, 30, 30),
            MixturePart(30, 50, 50, Blocks(10, 1)),
            MixturePart(80, 21, 21, "none"),
        )
    )
    for epoch in range(3):
        ids = served(Plan(101, 8, shuffle=order, tail="pad"), epoch).ids
        assert sorted(ids) == list(range(101))
        assert [id for id in ids if id >= 80] == list(range(80, 101))


def test_every_batch_has_its_share():
    plan = Plan(
        1000, 50, shuffle=MixtureOrder((MixturePart(0, 100, 0.7), MixturePart(100, 900, 0.3)))
    )
    for step in range(plan.steps):
        assert (plan.ids(0, step) < 100).sum() == 35


def test_a_part_is_walked_through_before_it_begins_again():
    plan = Plan(40, 10, shuffle=MixtureOrder((MixturePart(0, 10, 0.5), MixturePart(10, 30, 0.5))))
    ids, occurrences = served(plan)
    small, times = ids[ids < 10], occurrences[ids < 10]
    assert times.tolist() == [0] * 10 + [1] * 10
    assert sorted(small[:10]) == sorted(small[10:]) == list(range(10))
    assert small[:10].tolist() != small[10:].tolist()
    large = [served(plan, epoch) for epoch in (0, 1)]
    walk = np.concatenate([ids[ids >= 10] for ids, _ in large])
    assert sorted(walk[:30]) == list(range(10, 40))
    assert large[1].occurrences[large[1].ids >= 10].tolist() == [0] * 10 + [1] * 10, (
        "counted within the epoch"
    )


@pytest.mark.parametrize("size", [1, 8, 64])
@pytest.mark.parametrize("share", [0.7, 0.03])
def test_a_rank_has_few_shards_of_each_part_open(size, share):
    """Those of its lanes, of the lane for what does not fit into rows, and of the next pass where
    passes meet.
    """
    bounds = np.arange(0, 64_001, 100)
    order = MixtureOrder(
        (
            MixturePart(0, 32_000, share, Blocks(100)),
            MixturePart(32_000, 32_000, 1 - share, Blocks(100)),
        )
    )
    for rank in {0, size // 3, size - 1}:
        now, _ = opened(Plan(64_000, 256, shuffle=order), bounds, rank, size, epoch=1)
        assert now.mean() <= 2 * (4 * max(1, 64 // size) + 4)


def test_order_within_shards_of_a_part():
    """A part in Blocks that is read by one lane has one window open at a time, whatever comes
    between.
    """
    order = MixtureOrder(
        (MixturePart(0, 400, 1.0, Blocks(10, 2, lanes=1)), MixturePart(400, 100, 1.0))
    )
    ids = served(Plan(500, 2, shuffle=order)).ids
    seen = ids[ids < 400] // 10
    assert len(seen) == 250
    when = [np.flatnonzero(seen == block) for block in np.unique(seen)]
    open_now = sum((np.arange(250) >= at[0]) & (np.arange(250) <= at[-1]) for at in when)
    assert open_now.max() <= 4, "two of the lane and two of the rest"


def test_golden_order():
    """Never changes: saved states name positions in it."""
    order = MixtureOrder(
        (
            MixturePart(0, 5, 0.5),
            MixturePart(5, 9, 0.3, Blocks(2, 2, 2)),
            MixturePart(14, 3, 0.2, "none"),
        ),
        12,
    )
    visits = served(Plan(17, 6, seed=7, shuffle=order), 3)
    assert visits.ids.tolist() == GOLDEN
    assert visits.occurrences.tolist() == GOLDEN_TURNS


GOLDEN = [15, 2, 10, 1, 8, 0, 16, 4, 5, 1, 14, 2]
GOLDEN_TURNS = [0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 1, 1]


# -- what a mixture of sources becomes


class Mixture(Rows):
    starts, shares, length = np.array([0, 40, 100]), (0.7, 0.3), 50


@pytest.mark.parametrize(
    ("given", "within"), [(True, "full"), ("none", "none"), (Blocks(5), Blocks(5))], ids=str
)
def test_a_mixture_has_its_shares(given, within):
    assert bind(given, Mixture(100)) == MixtureOrder(
        (MixturePart(0, 40, 0.7, within), MixturePart(40, 60, 0.3, within)), 50
    )


def test_shards_of_a_mixture_are_those_of_its_sources():
    order = bind(Blocks(), Mixture(100, bounds=[0, 15, 40, 70, 100]))
    assert [part.order.units.bounds.tolist() for part in order.parts] == [[0, 15, 40], [0, 30, 60]]
    cut = MixtureOrder((MixturePart(10, 20, 1, Blocks()),)).bind(
        Rows(100, bounds=[0, 15, 40, 70, 100])
    )
    assert cut.parts[0].order.units.bounds.tolist() == [0, 5, 20]


def test_other_orders_choose_among_all_samples_of_a_mixture():
    from fastfeed.sampling import Balanced

    assert bind(Balanced(), Mixture(100, labels=np.arange(100) % 2)) == Balanced()


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda: MixtureOrder(()), "Mixed needs at least one part, got none"),
        (
            lambda: MixtureOrder((MixturePart(0, 1, 1),), 0),
            "Mixed.length must be an integer >= 1, got 0",
        ),
        (lambda: MixturePart(-1, 1, 1), "Part.first must be >= 0, got -1"),
        (lambda: MixturePart(0, 0, 1), "Part.length must be an integer >= 1, got 0"),
        (
            lambda: MixturePart(0, 1, 0),
            "Part.weight must be finite and above 0, got 0; leave the part out instead",
        ),
        (
            lambda: MixturePart(0, 1, float("nan")),
            "Part.weight must be finite and above 0, got nan; leave the part out instead",
        ),
        (
            lambda: MixturePart(0, 1, 1, "random"),
            'Part.order must be "full", "none" or Blocks(...), got \'random\'',
        ),
        (
            lambda: MixtureOrder((MixturePart(5, 5, 1), MixturePart(0, 6, 1))),
            (
                "parts must not overlap, got Part(first=0, length=6, weight=1, order='full') and "
                "Part(first=5, length=5, weight=1, order='full')"
            ),
        ),
        (
            lambda: Plan(9, 1, shuffle=MixtureOrder((MixturePart(5, 5, 1),))),
            (
                "parts must lie in the source's 9 samples, got Part(first=5, length=5, weight=1,"
                " order='full')"
            ),
        ),
        (
            lambda: Plan(9, 1, shuffle=MixtureOrder((MixturePart(0, 9, 1, Blocks()),))),
            (
                "Blocks() takes its blocks from the shards of a source and is not bound to one;"
                " create a Feed with it, call its bind(source), or say how many samples lie"
                " together, as in Blocks(1024)"
            ),
        ),
    ],
)
def test_refuses(do, text):
    with pytest.raises(ConfigError) as error:
        do()
    assert str(error.value) == text
