"""Weighted: as often as the weight says, rounded up or down in every epoch, and samples
independently of each other.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.plans import Rows, served, weights
from hypothesis import given
from hypothesis import strategies as st

import fastfeed.sampling.orders.weighted
from fastfeed.errors import ConfigError, StateError
from fastfeed.sampling import Weighted
from fastfeed.sampling.plan import Plan

SLACK = 1e-9  # an expected count may miss a whole number by what doubles lose


def counts(plan: Plan, epoch: int) -> np.ndarray:
    return np.bincount(served(plan, epoch).ids, minlength=plan.samples)


def check(counts: np.ndarray, expected: np.ndarray) -> None:
    assert (counts >= np.floor(expected - SLACK)).all()
    assert (counts <= np.ceil(expected + SLACK)).all()


@pytest.mark.parametrize("columns", [5, 1 << 18])
@given(
    st.data(),
    st.integers(1, 300),
    st.integers(1, 700),
    st.integers(0, 2**64 - 1),
    st.sampled_from(["drop", "pad"]),
)
def test_each_sample_as_often_as_expected(columns, data, samples, length, seed, tail):
    given = data.draw(weights(samples))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fastfeed.sampling.orders.weighted, "_COLUMNS", columns)
        plan = Plan(
            samples,
            data.draw(st.integers(1, length)),
            seed,
            shuffle=Weighted(given, length),
            tail=tail,
        )
        expected = given / given.sum() * len(served(plan).ids)
        for epoch in (0, 1, 2, 3, 12):
            got = counts(plan, epoch)
            assert (got[given == 0] == 0).all()
            check(got, expected)
            ids, occurrences = served(plan, epoch)
            assert (
                len(np.unique(ids << 20 | occurrences)) == len(ids)
                and (occurrences < got[ids]).all()
            )


def inclusion(shares: np.ndarray, length: int, epochs: int, seed: int = 0) -> np.ndarray:
    """Which sample is in which epoch: bool (epochs, samples)."""
    plan = Plan(len(shares), 1, seed, shuffle=Weighted(shares, length))
    return np.stack([counts(plan, epoch) > 0 for epoch in range(epochs)])


@pytest.mark.parametrize("columns", [pytest.param(64, marks=pytest.mark.slow), 1 << 18])
@pytest.mark.parametrize(
    ("shares", "length"),
    [
        (np.ones(400), 200),
        (np.ones(400), 133),
        (np.ones(400), 100),
        (np.where(np.arange(400) % 10, 1.0, 9.0), 400),
        (np.random.default_rng(0).random(400), 150),
    ],
    ids=["half", "a third", "a quarter", "nine to one", "random"],
)
def test_pairs_come_as_by_independent_draws(shares, length, columns, monkeypatch):
    """Within noise, and each sample as often as its weight says."""
    monkeypatch.setattr(fastfeed.sampling.orders.weighted, "_COLUMNS", columns)
    epochs = 256
    is_in = inclusion(shares, length, epochs).astype(float)
    p = np.minimum(shares / shares.sum() * length, 1)
    noise = np.sqrt(p * (1 - p) / epochs)
    assert (np.abs(is_in.mean(axis=0) - p) <= 4.9 * noise + 1e-9).all()
    first, second = np.triu_indices(400, 1)
    if columns == 64:  # samples of one column stay together
        apart = first % columns != second % columns
        first, second = first[apart], second[apart]
    joint = p[first] * p[second]
    error = (is_in.T @ is_in / epochs)[first, second] - joint
    noise = np.sqrt(joint * (1 - joint) / epochs)
    often = (joint * epochs > 5) & (noise > 0)
    error, noise = error[often], noise[often]
    assert len(error) > 20_000 and (np.abs(error) <= 6 * noise).all()
    assert 0.5 < (error / noise).std() < 1.15 and abs((error / noise).mean()) < 0.2


def test_short_epochs_are_no_folds():
    """Another subset in every epoch, for every seed; and epochs of half (a quarter) of the samples
    take turns.
    """
    for length, turns in ((500, 2), (250, 4)):
        epochs = [inclusion(np.ones(1000), length, 64, seed) for seed in range(3)]
        assert len({row.tobytes() for rows in epochs for row in rows}) == 3 * 64
        for rows in epochs:
            assert (rows.reshape(-1, turns, 1000).sum(axis=1) == 1).all()


def test_a_state_of_another_order_is_refused():
    """The order before samples were drawn per epoch."""
    plan = Plan(2, 1, shuffle=Weighted([1, 2]))
    saved = plan.state(0, 1, "abc") | {
        "shuffle": "Weighted(weights=<2 weights, dc91ce9a50dd>, length=None)"
    }
    with pytest.raises(StateError, match="shuffle was"):
        plan.position(saved, "abc")


@pytest.mark.parametrize("kind", [float, np.float32, np.int64])
def test_weights_are_in_any_unit(kind):
    """1 : 2 : 3 over 600 positions."""
    weights = np.tile(np.array([1, 2, 3, 0], kind), 50)
    for epoch in range(3):
        assert (
            counts(Plan(200, 7, shuffle=Weighted(weights, 600), tail="pad"), epoch).tolist()
            == [2, 4, 6, 0] * 50
        )


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
    """Half of the samples per epoch, every second one a cat: a comb over storage would take all
    cats, then all dogs.
    """
    plan = Plan(20_000, 100, shuffle=Weighted(np.ones(20_000), 10_000))
    for epoch in range(4):
        cats = (served(plan, epoch).ids % 2 == 0).mean()
        assert abs(cats - 0.5) < 5 * 0.5 / np.sqrt(10_000)


def test_tiny_and_huge_weights():
    for unit in (1e-300, 1e300):
        assert counts(Plan(4, 1, shuffle=Weighted(np.array([1, 2, 0, 1]) * unit)), 0).tolist() == [
            1,
            2,
            0,
            1,
        ]


def test_golden_order():
    """Never changes: saved states name positions in it."""
    visits = served(Plan(6, 4, seed=7, shuffle=Weighted([1, 0, 3, 1, 0.5, 2], 10), tail="pad"), 3)
    assert visits.ids.tolist() == GOLDEN
    assert visits.occurrences.tolist() == GOLDEN_TURNS


GOLDEN = [2, 5, 2, 2, 4, 2, 5, 0, 3, 5]
GOLDEN_TURNS = [0, 1, 1, 3, 0, 2, 2, 0, 0, 0]


def test_weights_of_the_source():
    weights = np.array([1, 0, 2], np.float32)
    bound = Weighted(length=12).bind(Rows(3, weights=weights))
    assert bound == Weighted(weights, 12) and hash(bound) == hash(Weighted(weights, 12))
    assert counts(Plan(3, 4, shuffle=bound), 0).tolist() == [4, 0, 8]


def test_prints_what_tells_weights_apart():
    assert repr(Weighted()) == "Weighted(weights=None, length=None)"
    assert (
        repr(Weighted([1, 2], 5))
        == "Weighted(weights=<2 weights, dc91ce9a50dd, drawn per epoch>, length=5)"
    )
    assert repr(Weighted([1, 2.000001])) != repr(Weighted([1, 2]))
    assert repr(Weighted(np.float32([1, 2]))) == repr(Weighted([1, 2]))


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda: Weighted([1], 0), "Weighted.length must be an integer >= 1, got 0"),
        (
            lambda: Weighted([1], 2**31),
            "Weighted.length must be at most 2147483647, got 2147483648",
        ),
        (lambda: Weighted(["a"]), "weights must be numbers, one per sample, got ['a']"),
        (
            lambda: Weighted([[1, 2]]),
            "weights must be one number per sample, got an array of shape (1, 2)",
        ),
        (lambda: Weighted([]), "weights must be one number per sample, got an array of shape (0,)"),
        (lambda: Weighted([1, -2, 3]), "weights must be finite and >= 0, got -2.0 for sample 1"),
        (
            lambda: Weighted([1, np.nan, -1]),
            "weights must be finite and >= 0, got nan for sample 1 and 1 more such",
        ),
        (lambda: Weighted([np.inf]), "weights must be finite and >= 0, got inf for sample 0"),
        (lambda: Weighted([0, 0]), "some weight must be above 0, all 2 are 0"),
        (lambda: Plan(3, 1, shuffle=Weighted([1, 2])), "weights must be one per sample: 3, got 2"),
        (lambda: Weighted([1, 2]).bind(Rows(3)), "weights must be one per sample: 3, got 2"),
        (
            lambda: Weighted().bind(Rows(3)),
            (
                "Weighted() takes the weights of the source, and Rows has none; "
                "pass one per sample, as in Weighted(weights)"
            ),
        ),
        (
            lambda: Plan(3, 1, shuffle=Weighted()),
            (
                "Weighted() takes the weights of a source and is not bound to one; create a Feed"
                " with it, call its bind(source), or pass one per sample, as in Weighted(weights)"
            ),
        ),
    ],
)
def test_refuses(do, text):
    with pytest.raises(ConfigError) as error:
        do()
    assert str(error.value) == text
