"""Weights that are set between epochs, and saved with the position."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from helpers.feeds import NUMBERS, equal, feed, joined

import fastfeed as ff
from fastfeed.distributed.world import World
from fastfeed.errors import ConfigError, FeedClosed, StateError

SOURCE = ff.Arrays(NUMBERS, np.arange(50))
HARD, HARDER = np.arange(50) % 7 / 3, np.arange(50) ** 2


def weighted(weights: Any = None, **more: Any) -> ff.Feed:
    order = ff.Weighted(np.ones(50) if weights is None else np.asarray(weights, np.float32))
    return feed(SOURCE, **({"global_batch": 10, "shuffle": order, "seed": 3} | more))


@pytest.mark.parametrize(
    "how",
    [
        {"prefetch": 0},
        {"prefetch": 3},
        pytest.param({"side_process": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_following_epochs_are_those_of_a_feed_with_these_weights(how):
    with weighted(**how) as changing, weighted() as even:
        assert equal(list(changing), list(even))
        for weights in (HARD, HARDER):
            changing.set_weights(weights)
            epoch = changing.state()["epoch"]
            with weighted(weights) as fixed:
                assert changing.plan.ids(epoch, 0).tolist() == fixed.plan.ids(epoch, 0).tolist()
                assert equal(list(changing), list(fixed.batches(epoch)))


def test_weights_set_in_the_loop_after_the_last_batch():
    with weighted() as changing, weighted(HARD) as fixed:
        for batch in changing:
            if batch.step == len(changing) - 1:
                changing.set_weights(HARD)
        assert equal(list(changing), list(fixed.batches(1)))


def test_batches_that_were_begun_keep_their_weights():
    with weighted() as changing, weighted() as even:
        begun = changing.batches(5)
        first = next(begun)
        changing.set_weights(HARD)
        assert equal([first, *begun], list(even.batches(5)))


def test_a_saved_state_has_the_weights_at_any_world_size():
    with weighted() as one:
        list(one)
        before = json.loads(json.dumps(one.state()))
        one.set_weights(HARD)
        rest = iter(one)
        for _ in range(2):
            next(rest)
        saved = json.loads(json.dumps(one.state()))
        want = [list(rest), list(one)]
    ranks = []
    for rank in range(2):
        with weighted(world=World(rank, 2)) as other:
            other.restore(saved)
            assert other.state() == saved
            ranks.append([list(other), list(other)])
    for epoch in range(2):
        assert joined([got[epoch] for got in ranks]) == joined([want[epoch]])
    with weighted() as other, weighted() as even:
        other.restore(saved)
        other.restore(before)
        assert other.state() == before
        assert equal(list(other), list(even.batches(1))), "saved before the weights were set"


def test_states_without_set_weights_are_as_before():
    with weighted() as one:
        assert "weights" not in one.state()
        one.set_weights(HARD)
        saved = one.state()
    with feed(SOURCE, batch=10, seed=3) as full:
        with pytest.raises(StateError, match="shuffle was 'Weighted"):
            full.restore(saved)


@pytest.mark.parametrize("text", ["", "AAAA", "?", 3, None])
def test_damaged_weights_are_refused(text):
    with weighted() as one:
        one.set_weights(HARD)
        saved = one.state() | {"weights": text}
        with pytest.raises(StateError, match="weights must be those of 50 samples"):
            one.restore(saved)


def test_weights_of_another_order_than_the_state_are_refused():
    with weighted() as one, weighted() as other:
        one.set_weights(HARD)
        other.set_weights(HARDER)
        with pytest.raises(StateError, match="shuffle was"):
            one.restore(one.state() | {"weights": other.state()["weights"]})


def test_refuses():
    with weighted() as one:
        for weights, text in (
            (np.ones(3), "weights must be one per sample: 50, got 3"),
            (np.full(50, -1), "weights must be finite and >= 0, got -1.0 for sample 0"),
            ("many", "weights must be numbers, one per sample, got 'many'"),
        ):
            with pytest.raises(ConfigError, match=text):
                one.set_weights(weights)
        next(iter(one))
        text = (
            r"set_weights is for the beginning of an epoch, and this feed is at epoch 0, step 1;"
            r" call it after the loop over the epoch, or feed.seek\(1\) first"
        )
        with pytest.raises(ConfigError, match=text):
            one.set_weights(HARD)
        one.seek(1)
        one.set_weights(HARD)
        with weighted(HARD) as fixed:
            assert equal(list(one), list(fixed.batches(1)))
    with feed(SOURCE, batch=10) as full:
        with pytest.raises(ConfigError, match="set_weights needs a feed with shuffle"):
            full.set_weights(HARD)


@pytest.mark.parametrize("how", [{}, {"side_process": True}], ids=str)
def test_a_closed_feed_takes_no_weights(how):
    one = weighted(**how)
    with weighted() as other:
        other.set_weights(HARD)
        saved = other.state()
    before = one.state()
    one.close()
    for use in (lambda: one.set_weights(HARD), lambda: one.restore(saved)):
        with pytest.raises(FeedClosed, match="this feed is closed; create a new one"):
            use()
    assert one.state() == before
