"""Images that are similar by their embeddings: the rule itself, NumPy and faiss by it."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from helpers.needs import needs
from helpers.preprocess.surveying import make_survey

from fastfeed.errors import ConfigError, MissingExtra
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.inputs.plan_ids import PlanIds
from fastfeed.preprocess.model.recipe import Recipe, Selection
from fastfeed.preprocess.planning import semantic
from fastfeed.preprocess.planning.select import select
from fastfeed.preprocess.planning.semantic import read_vectors, similar_to_kept
from fastfeed.preprocess.planning.shares import sentences


def copies(count: int, numbers: int, spread: float, seed: int = 0) -> np.ndarray:
    """Directions at random, every third one near the one before it, and some equal."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, numbers))
    vectors[2::3] = vectors[1 : count - 1 : 3][: len(vectors[2::3])]
    vectors[2::6] += spread * rng.normal(size=vectors[2::6].shape)
    vectors = rng.permutation(vectors)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def by_the_rule(vectors, similarity, stays, keeps):
    """One at a time, as the module's docstring has it."""
    kept: list[int] = []
    nearest = np.full(len(vectors), -1)
    for i, vector in enumerate(vectors.astype(np.float64)):
        cosines = [float(vector @ vectors[k]) for k in kept]
        if cosines and max(cosines) >= similarity and not stays[i]:
            nearest[i] = kept[int(np.argmax(cosines))]
        elif keeps[i]:
            kept.append(i)
    return nearest


@pytest.mark.parametrize("block", [1, 7, 1024])
def test_each_is_dropped_in_favor_of_the_most_similar_kept_one(monkeypatch, block) -> None:
    monkeypatch.setattr(semantic, "_BLOCK", block)
    monkeypatch.setattr(semantic, "_KEPT_AT_ONCE", 50)
    vectors = copies(240, 5, 0.1)
    rng = np.random.default_rng(1)
    stays = rng.random(240) < 0.1
    keeps = rng.random(240) < 0.9
    ids = rng.permutation(240)
    nearest, cosines = similar_to_kept(vectors, ids, 0.9, stays, keeps)
    places = by_the_rule(vectors[ids], 0.9, stays, keeps)
    expected = np.where(places >= 0, ids[places], -1)
    assert 60 < np.count_nonzero(expected >= 0) < 200
    assert np.array_equal(nearest, expected)
    dropped = np.flatnonzero(nearest >= 0)
    exact = (vectors[ids[dropped]] * vectors[nearest[dropped]]).sum(axis=1)
    assert np.allclose(cosines[dropped], exact, atol=1e-6) and not stays[dropped].any()


@needs("faiss")
def test_an_index_of_faiss_finds_what_numpy_finds() -> None:
    vectors = copies(3000, 32, 0.05)
    ids = np.arange(3000)
    every = np.ones(3000, bool)
    exact, _ = similar_to_kept(vectors, ids, 0.95, ~every, every)
    fast, _ = similar_to_kept(vectors, ids, 0.95, ~every, every, exact=0)
    assert np.count_nonzero(exact >= 0) > 750
    assert (fast[exact >= 0] >= 0).mean() > 0.99 and (fast[exact < 0] < 0).all()


def test_many_images_need_faiss(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    every = np.ones(3, bool)
    with pytest.raises(MissingExtra, match=r'"semantic" of 3 images.*fastfeed\[faiss\]'):
        similar_to_kept(np.eye(3, dtype=np.float32), np.arange(3), 0.9, ~every, every, exact=2)


class Columns:
    """A source whose one column holds these values, as they come from JSON."""

    spec = None
    classes = ()

    def __init__(self, values: list[object]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def uri(self, i: int) -> str:
        return f"{i}.jpg"

    def extra_columns(self, ids: list[int]) -> list[dict[str, object]]:
        return [{"clip": self._values[i]} for i in ids]


def opened(values: list[object]) -> Input:
    return Input(Columns(values), "the source", columns=("clip",))  # type: ignore[arg-type]


def test_embeddings_have_length_1_and_none_has_length_0() -> None:
    rows = [[3.0, 4.0], [0.0, 0.0], [float("nan"), 1.0], [1e300, 0.0], [-2.0, 0.0]]
    expected = [[0.6, 0.8], [0, 0], [0, 0], [1, 0], [-1, 0]]
    assert np.allclose(read_vectors(opened(rows), "clip"), expected)


def test_images_that_are_gone_have_no_embedding() -> None:
    source = Columns([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    planned = PlanIds(source, np.array([2, -1, 1, -1]), ())  # type: ignore[arg-type]
    vectors = read_vectors(Input(planned, "the source"), "clip")
    assert vectors.tolist() == [[1, 0], [0, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([None, None], "no image of the source has a value of 'clip'"),
        ([[0.0, 0.0]], "no image of the source has a value of 'clip'"),
        ([[1.0, 0.0], [1.0]], r"'clip' of 1\.jpg has 1 numbers, those above have 2"),
        ([[1.0], "far"], r"'clip' of 1\.jpg must be a list of numbers, got 'far'"),
        ([0.5], r"'clip' of 0\.jpg must be a list of numbers, got 0\.5"),
        ([[]], r"'clip' of 0\.jpg must be a list of numbers, got \[\]"),
        ([["a"]], r"'clip' of 0\.jpg must be a list of numbers, got \['a'\]"),
        ([[[1.0], [2.0, 3.0]]], r"must be a list of numbers, got \[\[1\.0\], \[2\.0, 3\.0\]\]"),
    ],
)
def test_what_is_no_embedding(values, message) -> None:
    with pytest.raises(ConfigError, match=message):
        read_vectors(opened(values), "clip")


def test_images_of_the_job_stay_and_appended_ones_that_are_like_them_are_dropped() -> None:
    angles = np.array([0.0, 0.05, 2.0, 0.02, 2.05, 1.0, 1.02])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    choice = Selection(dedupe="semantic", embedding="clip", similarity=0.99)
    survey = make_survey(range(7), [1 << i for i in range(7)])
    placed = np.array([0, 0, -1])  # the third was left out
    labels = np.array([0, 0, 0, 1, 1, 1, 1])
    planned = select(Recipe(choice=choice), 7, labels, survey, str, sides=placed, vectors=vectors)
    ((_, members),) = planned.groups
    assert members.tolist() == [4, 5]
    pairs = [(pair.kept, pair.dropped, pair.reason, pair.conflict) for pair in planned.pairs]
    assert pairs == [(0, 3, "duplicate_semantic", True), (5, 6, "duplicate_semantic", False)]
    assert planned.shares["other_label"] == {"duplicate_semantic": 1}
    (sentence,) = sentences(planned.shares, ("a", "b"))
    assert "1 semantic duplicates had another label" in sentence
    assert "a larger similarity (--similarity) keeps them" in sentence
