"""Weighted: as often as the weight says, rounded up or down, in one epoch and over many."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.plans import Rows, served, weights
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError
from fastfeed.sampling import Weighted
from fastfeed.sampling.plan import Plan

SLACK = 1e-9  # an expected count may miss a whole number by what doubles lose


def counts(plan: Plan, epoch: int) -> np.ndarray:
    return np.bincount(served(plan, epoch).ids, minlength=plan.samples)


def check(counts: np.ndarray, expected: np.ndarray) -> None:
    assert (counts >= np.floor(expected - SLACK)).all()
    assert (counts <= np.ceil(expected + SLACK)).all()


@given(st.data(), st.integers(1, 300), st.integers(1, 700), st.integers(0, 2**64 - 1), st.sampled_from(["drop", "pad"]))
def test_each_sample_as_often_as_expected(data, samples, length, seed, tail):
    given = data.draw(weights(samples))
    plan = Plan(samples, data.draw(st.integers(1, length)), seed, shuffle=Weighted(given, length), tail=tail)
    expected = given / given.sum() * len(served(plan).ids)
    per_epoch = np.stack([counts(plan, epoch) for epoch in range(16)])
    assert (per_epoch[:, given == 0] == 0).all()
    for epochs in (1, 2, 4, 8, 16):
        for some in per_epoch.reshape(-1, epochs, samples):
            check(some.sum(axis=0), expected * epochs)


@pytest.mark.parametrize("kind", [float, np.float32, np.int64])
def test_weights_are_in_any_unit(kind):
    """1 : 2 : 3 over 600 positions."""
    weights = np.tile(np.array([1, 2, 3, 0], kind), 50)
    for epoch in range(3):
        assert counts(Plan(200, 7, shuffle=Weighted(weights, 600), tail="pad"), epoch).tolist() == [2, 4, 6, 0] * 50


def test_equal_weights_are_a_full_shuffle():
    plan = Plan(1000, 7, shuffle=Weighted(np.full(1000, 0.1)), tail="pad")
    for epoch in range(5):
        assert (counts(plan, epoch) == 1).all()
    order = served(plan).ids
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 5 / np.sqrt(1000)


def test_turns_count_the_times_of_a_sample():
    ids, occurrences = served(Plan(3, 10, shuffle=Weighted([5, 0, 2.5], 30)))
    for id, times in ((0, 20), (2, 10)):
        assert sorted(occurrences[ids == id]) == list(range(times))


def test_a_pattern_in_storage_is_none_in_an_epoch():
    """Half of the samples per epoch, every second one a cat: a comb over storage would take all cats, then all dogs."""
    plan = Plan(20_000, 100, shuffle=Weighted(np.ones(20_000), 10_000))
    for epoch in range(4):
        cats = (served(plan, epoch).ids % 2 == 0).mean()
        assert abs(cats - 0.5) < 5 * 0.5 / np.sqrt(10_000)


def test_rare_samples_take_turns():
    """Half of the samples are seven times as heavy as the others, which come a quarter of the epochs each."""
    plan = Plan(1000, 10, shuffle=Weighted(np.tile([1, 7], 500)), tail="pad")
    rare = np.stack([counts(plan, epoch)[::2] for epoch in range(8)])
    assert (rare[:4].sum(axis=0) == 1).all() and (rare[4:].sum(axis=0) == 1).all()


def test_tiny_and_huge_weights():
    for unit in (1e-300, 1e300):
        assert counts(Plan(4, 1, shuffle=Weighted(np.array([1, 2, 0, 1]) * unit)), 0).tolist() == [1, 2, 0, 1]


def test_golden_order():
    """Never changes: saved states name positions in it."""
    visits = served(Plan(6, 4, seed=7, shuffle=Weighted([1, 0, 3, 1, 0.5, 2], 10), tail="pad"), 3)
    assert visits.ids.tolist() == GOLDEN
    assert visits.occurrences.tolist() == GOLDEN_TURNS


GOLDEN = [0, 3, 0, 5, 2, 5, 2, 2, 2, 3]
GOLDEN_TURNS = [0, 1, 1, 1, 3, 0, 0, 1, 2, 0]


def test_weights_of_the_source():
    weights = np.array([1, 0, 2], np.float32)
    bound = Weighted(length=12).bind(Rows(3, weights=weights))
    assert bound == Weighted(weights, 12) and hash(bound) == hash(Weighted(weights, 12))
    assert counts(Plan(3, 4, shuffle=bound), 0).tolist() == [4, 0, 8]


def test_prints_what_tells_weights_apart():
    assert repr(Weighted()) == "Weighted(weights=None, length=None)"
    assert repr(Weighted([1, 2], 5)) == "Weighted(weights=<2 weights, dc91ce9a50dd>, length=5)"
    assert repr(Weighted([1, 2.000001])) != repr(Weighted([1, 2]))
    assert repr(Weighted(np.float32([1, 2]))) == repr(Weighted([1, 2]))


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda: Weighted([1], 0), "Weighted.length must be an integer >= 1, got 0"),
        (lambda: Weighted([1], 2**31), "Weighted.length must be at most 2147483647, got 2147483648"),
        (lambda: Weighted(["a"]), "weights must be numbers, one per sample, got ['a']"),
        (lambda: Weighted([[1, 2]]), "weights must be one number per sample, got an array of shape (1, 2)"),
        (lambda: Weighted([]), "weights must be one number per sample, got an array of shape (0,)"),
        (lambda: Weighted([1, -2, 3]), "weights must be finite and >= 0, got -2.0 for sample 1"),
        (lambda: Weighted([1, np.nan, -1]), "weights must be finite and >= 0, got nan for sample 1 and 1 more such"),
        (lambda: Weighted([np.inf]), "weights must be finite and >= 0, got inf for sample 0"),
        (lambda: Weighted([0, 0]), "some weight must be above 0, all 2 are 0"),
        (lambda: Plan(3, 1, shuffle=Weighted([1, 2])), "weights must be one per sample: 3, got 2"),
        (lambda: Weighted([1, 2]).bind(Rows(3)), "weights must be one per sample: 3, got 2"),
        (
            lambda: Weighted().bind(Rows(3)),
            "Weighted() takes the weights of the source, and Rows has none; "
            "pass one per sample, as in Weighted(weights)",
        ),
        (
            lambda: Plan(3, 1, shuffle=Weighted()),
            "Weighted() takes the weights of a source and is not bound to one; create a Feed with it, "
            "call its bind(source), or pass one per sample, as in Weighted(weights)",
        ),
    ],
)
def test_refuses(do, text):
    with pytest.raises(ConfigError) as error:
        do()
    assert str(error.value) == text
