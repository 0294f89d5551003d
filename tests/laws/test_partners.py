"""Partners of MixUp, CutMix and Mosaic: any two samples of a global batch, whatever the order
relates in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.plans import limit
from helpers.products import in_turn

from fastfeed.distributed.world import World
from fastfeed.feed.feed import Feed
from fastfeed.ops import CutMix, MixUp, Mosaic
from fastfeed.sampling import (
    Balanced,
    Blocks,
    Buckets,
    CustomOrder,
    Repeated,
    Weighted,
)
from fastfeed.sampling.plan import Plan
from fastfeed.sources import Arrays, Mixture

N, BATCH = 512, 64
IMAGES = np.zeros((N, 2, 2, 3), np.uint8)
CLASSES = np.arange(N) % 2
SOURCE = Arrays(IMAGES, CLASSES, classes=("a", "b"))
SHARDS = np.arange(N) // 16


def mixture(share: float) -> Mixture:
    return Mixture({"a": SOURCE, "b": SOURCE}, {"a": share, "b": 1 - share})


PART = np.repeat([0, 1], N)
CASES: dict[str, tuple[Any, Any, np.ndarray]] = {  # source, order, what the order may relate
    "full": (SOURCE, "full", CLASSES),
    "as stored": (SOURCE, "none", SHARDS),
    "balanced": (SOURCE, Balanced(), CLASSES),
    "buckets": (SOURCE, Buckets(CLASSES, BATCH), SHARDS),
    "weighted": (SOURCE, Weighted(1 + CLASSES), CLASSES),
    "even mixture": (mixture(0.5), "full", PART),
    "uneven mixture": (mixture(0.7), "full", PART),
    "mixture of blocks": (mixture(0.5), Blocks(16, window=2, lanes=4), PART),
    "blocks": (SOURCE, Blocks(16, window=2, lanes=4), SHARDS),
    "one lane": (SOURCE, Blocks(16, window=4, lanes=1), SHARDS),
    "repeated": (SOURCE, Repeated(4, together=True), CLASSES),
}


@pytest.mark.parametrize(("name", "op"), in_turn(CASES, [MixUp(), CutMix(), Mosaic()]), ids=repr)
def test_partners_are_as_alike_as_any_two_of_the_batch(name, op):
    """Chi-square of one degree of freedom: pairs of one kind, against those of all pairs of their
    global batches.
    """
    source, order, kinds = CASES[name]
    alike, expected, variance = 0.0, 0.0, 0.0
    with Feed(source, [op], batch=BATCH, shuffle=order, threads=1) as feed:
        for number in range(160):
            of_batch = kinds[feed.plan.ids(*divmod(number, feed.plan.steps))]
            groups = of_batch.reshape(-1, op.group)
            alike += (groups[:, 0] == groups[:, 1]).sum()
            counts = np.unique(of_batch, return_counts=True)[1]
            p = (counts * (counts - 1)).sum() / (BATCH * (BATCH - 1))
            expected += p * len(groups)
            variance += p * (1 - p) * len(groups)
    assert (alike - expected) ** 2 / max(variance, 1e-9) < 15.1, (
        f"{alike:g} alike, {expected:.0f} expected"
    )  # p 1e-4


@pytest.mark.parametrize("order", ["full", Balanced(), Blocks(16)], ids=str)
def test_a_row_meets_every_other_row(order):
    """Chi-square over the distance of two partners in the order without mixing."""
    with Feed(SOURCE, [MixUp()], batch=16, shuffle=order, threads=1) as feed:
        with Feed(SOURCE, [], batch=16, shuffle=order, threads=1) as plain:
            counts = np.zeros(16)
            for number in range(320):
                at = divmod(number, feed.plan.steps)
                (mixed, mixed_turns), (alone, turns) = feed.plan.visits(*at), plain.plan.visits(*at)
                keys = (mixed << 8 | mixed_turns).tolist()
                assert sorted(keys) == sorted((alone << 8 | turns).tolist()), "the same samples"
                rows = {key: row for row, key in enumerate((alone << 8 | turns).tolist())}
                for a, b in zip(keys[::2], keys[1::2], strict=True):
                    counts[abs(rows[a] - rows[b])] += 1
    expected = (16 - np.arange(1, 16)) / 120 * counts.sum()
    assert counts[0] == 0
    assert ((counts[1:] - expected) ** 2 / expected).sum() < 42.6, (
        counts
    )  # 14 degrees of freedom, p 1e-4


RARE = np.minimum(np.arange(N), 6)  # classes of one sample, and a large one
REPEATING = {
    "repeated": Repeated(4, together=True),
    "rare": Balanced(),
    "weighted": Weighted(np.where(np.arange(N) < 6, 80, 1)),
    "custom": CustomOrder(lambda epoch, positions: positions % 60 * 3, resampling=True),
}


@pytest.mark.parametrize("op", [MixUp(), Mosaic()], ids=lambda op: type(op).__name__)
@pytest.mark.parametrize("name", REPEATING)
def test_partners_are_different_samples(name, op):
    """And the batch holds what it holds without mixing."""
    source = Arrays(IMAGES, RARE, classes=[str(i) for i in range(7)])
    order = REPEATING[name]
    with Feed(source, [op], batch=BATCH, shuffle=order, threads=1, tail="pad") as feed:
        with Feed(source, [], batch=BATCH, shuffle=order, threads=1, tail="pad") as plain:
            for number in range(24):
                ids, there = (each.plan.ids(*divmod(number, 8)) for each in (feed, plain))
                assert sorted(ids) == sorted(there) and len(np.unique(ids)) < BATCH
                groups = np.sort(ids.reshape(-1, op.group), axis=1)
                assert (groups[:, 1:] != groups[:, :-1]).all()


def test_a_repeated_sample_meets_every_row_of_others():
    """Chi-square over pairs of samples of a batch, and over occurrences that meet."""
    order = Repeated(4, together=True)
    met, turns = np.zeros((6, 6)), np.zeros((4, 4))
    with Feed(SOURCE, [MixUp()], batch=24, shuffle=order, threads=1) as feed:
        with Feed(SOURCE, [], batch=24, shuffle=order, threads=1) as plain:
            for number in range(500):
                at = divmod(number, feed.plan.steps)
                place = {id: i // 4 for i, id in enumerate(plain.plan.ids(*at).tolist())}
                ids, occurrences = feed.plan.visits(*at)
                places = np.array([place[id] for id in ids.tolist()]).reshape(-1, 2)
                np.add.at(met, tuple(np.sort(places, axis=1).T), 1)
                np.add.at(turns, tuple(occurrences.reshape(-1, 2).T), 1)
    assert not np.diag(met).any()
    pairs = met[np.triu_indices(6, 1)]
    for counts in (pairs, turns):
        expected = counts.sum() / counts.size
        assert ((counts - expected) ** 2 / expected).sum() < limit(counts.size), counts


def test_a_mixed_batch_is_the_same_at_every_world_size_if_samples_repeat():
    order = Repeated(3, together=True)
    alone = Plan(50, 24, shuffle=order, mixed=2)
    for size in (2, 3, 4):
        ranks = [Plan(50, 24, world=World(r, size), shuffle=order, mixed=2) for r in range(size)]
        for step in range(alone.steps):
            here = np.concatenate([plan.visits(1, step).keys for plan in ranks])
            assert here.tolist() == alone.visits(1, step).keys.tolist()


def test_what_is_mixed_are_the_neighbors_of_the_plan_at_every_world_size():
    """By the labels: every sample has a class of its own."""
    classes = Arrays(IMAGES[:48], np.arange(48), classes=[str(i) for i in range(48)])
    alone: dict[int, set[int]] = {}
    for size in (1, 2, 3, 4):
        partners: dict[int, set[int]] = {}
        for rank in range(size):
            options = {"global_batch": 24, "world": World(rank, size), "shuffle": Balanced()}
            with Feed(classes, [MixUp(1.0)], **options) as feed:
                for batch in feed:
                    for id, label in zip(batch.ids.tolist(), batch.labels, strict=True):
                        partners[id] = set(np.flatnonzero(label).tolist()) - {id}
        if size == 1:
            alone = partners
            with Feed(classes, [MixUp(1.0)], batch=24, shuffle=Balanced()) as feed:
                pairs = (
                    np.concatenate([feed.plan.ids(0, step) for step in range(2)])
                    .reshape(-1, 2)
                    .tolist()
                )
            assert partners == {a: {b} for pair in pairs for a, b in (pair, pair[::-1])}
        assert partners == alone


def test_padding_stays_behind_the_samples():
    with Feed(Arrays(IMAGES[:21], np.arange(21) % 2), [], batch=16, tail="pad") as plain:
        weights = [plain.plan.weights(step) for step in range(2)]
    source = Arrays(IMAGES[:21], np.arange(21) % 2, classes=("a", "b"))
    with Feed(source, [MixUp()], batch=16, tail="pad") as feed:
        for step, batch in enumerate(feed):
            assert batch.weights.tolist() == weights[step].tolist()
        assert sorted(np.concatenate([feed.plan.ids(1, 0), feed.plan.ids(1, 1)[:5]])) == list(
            range(21)
        )
