"""Splits of any names: shares, groups that stay together, classes, and growth that moves none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from helpers.preprocess.surveying import make_survey
from hypothesis import example, given
from hypothesis import strategies as st

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.recipe import Recipe, Selection
from fastfeed.preprocess.planning.select import PlannedGroups, select
from fastfeed.preprocess.planning.split import ColumnGroups
from fastfeed.sources.splitting import sides_by_class

SPLIT = {"train": 0.7, "holdout": 0.2, "test": 0.1}


def grouped(values: Sequence[str]) -> ColumnGroups:
    """A column of these values; "" is none."""
    known = sorted({*values} - {""})
    of = [known.index(value) if value else -1 for value in values]
    return ColumnGroups("photographer", known, np.array(of, np.int64))


def chosen(
    length: int,
    hashes: Sequence[int] | None = None,
    labels: Sequence[int] | None = None,
    column: Sequence[str] | None = None,
    sides: np.ndarray | None = None,
    contents: Sequence[int] | None = None,
    **choice: Any,
) -> PlannedGroups:
    survey = None if hashes is None else make_survey(contents or range(length), hashes)
    return select(
        Recipe(choice=Selection(**{"split": SPLIT, **choice})),
        length,
        np.full(length, -1) if labels is None else np.array(labels),
        survey,
        "/photos/{}.jpg".format,
        sides,
        None if column is None else grouped(column),
    )


def places(found: PlannedGroups) -> dict[int, str]:
    return {id: name for name, members in found.groups for id in members.tolist()}


def placed(found: PlannedGroups, length: int) -> np.ndarray:
    """Splits of a job's images, as its plan has them."""
    sides = np.full(length, -1)
    names = list(SPLIT)
    for id, name in places(found).items():
        sides[id] = names.index(name)
    return sides


def random_hashes(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64).tolist()


@pytest.mark.parametrize("surveyed", [False, True])
def test_each_split_has_its_share(surveyed: bool) -> None:
    n = 20_000
    found = chosen(n, random_hashes(n) if surveyed else None)
    assert [name for name, _ in found.groups] == ["holdout", "test", "train"]
    for name, share in SPLIT.items():
        count = found.shares["images"][name]
        assert count == len(dict(found.groups)[name])
        assert abs(count - n * share) < 4 * (n * share * (1 - share)) ** 0.5


def test_val_is_short_for_a_split() -> None:
    hashes = random_hashes(400)
    short = chosen(400, hashes, split=(), val=0.3)
    assert places(short) == places(chosen(400, hashes, split={"val": 0.3, "train": 0.7}))


def test_the_split_is_that_of_ff_split_by_the_same_names(tmp_path: Any) -> None:
    from helpers.photos import folder

    source = ff.ImageFolder(folder(tmp_path / "photos", {"cat": 30, "dog": 30}, (8, 8)))
    recipe = Recipe(choice=Selection(split=SPLIT, split_by="names", split_seed=3))
    labels = source.label(np.arange(60))
    found = select(recipe, 60, labels, None, source.uri)
    by_name = ff.split(source, SPLIT, seed=3)
    for name, members in found.groups:
        assert [source.uri(i) for i in members] == [
            by_name[name].uri(i) for i in range(len(by_name[name]))
        ]


@given(seed=st.integers(0, 99), dedupe=st.sampled_from(["none", "exact", "near"]))
def test_a_group_and_what_looks_alike_is_in_one_split(seed: int, dedupe: str) -> None:
    rng = np.random.default_rng(seed)
    n = 80
    contents = rng.integers(0, 60, n)
    hashes = np.array(random_hashes(60, seed), np.uint64)[contents] ^ rng.integers(0, 8, n).astype(
        np.uint64
    )
    column = [f"p{k}" if k else "" for k in rng.integers(0, 30, n).tolist()]
    split = {"a": 0.5, "b": 0.5}
    try:
        found = chosen(
            n, hashes.tolist(), None, column, None, contents.tolist(), split=split, dedupe=dedupe
        )
    except ConfigError as error:
        assert "more than the share of" in str(error)
        return
    sides = places(found)
    look_alikes = 0
    for i, one in sides.items():
        for j, other in sides.items():
            if column[i] and column[i] == column[j]:
                assert one == other
            alike = contents[i] == contents[j] or int(hashes[i] ^ hashes[j]).bit_count() <= 4
            look_alikes += alike and one != other
    assert bool(look_alikes) == ("look_alikes" in found.shares)
    assert not look_alikes or dedupe != "near"


@given(seed=st.integers(0, 99), by_name=st.booleans(), has_groups=st.booleans())
def test_neither_more_nor_fewer_images_move_any(seed: int, by_name: bool, has_groups: bool) -> None:
    rng = np.random.default_rng(seed)
    hashes = None if by_name else random_hashes(200, seed)
    column = [f"p{k}" if k else "" for k in rng.integers(0, 150, 200)] if has_groups else None
    split = {"a": 0.5, "b": 0.3, "c": 0.2}
    few = chosen(150, hashes and hashes[:150], None, column and column[:150], split=split)
    more = chosen(200, hashes, None, column, split=split)
    assert places(few) == {id: name for id, name in places(more).items() if id < 150}


@given(
    seed=st.integers(0, 99),
    stratify=st.booleans(),
    has_groups=st.booleans(),
    dedupe=st.sampled_from(["none", "exact", "near"]),
)
@example(seed=75, stratify=False, has_groups=False, dedupe="exact")
def test_appended_images_move_none_and_no_group_is_in_two_splits(
    seed: int, stratify: bool, has_groups: bool, dedupe: str
) -> None:
    rng = np.random.default_rng(seed)
    contents = rng.integers(0, 60, 120)
    bits = (
        rng.integers(0, 16, 60).astype(np.uint64)
        ^ np.array(random_hashes(20, seed), np.uint64)[rng.integers(0, 20, 60)]
    )
    hashes = bits[contents].tolist()
    column = [f"p{k}" if k else "" for k in rng.integers(0, 40, 120)] if has_groups else None
    labels = rng.integers(0, 3, 120).tolist()
    choice = {
        "stratify": stratify,
        "dedupe": dedupe,
        "split": {"train": 0.6, "holdout": 0.3, "test": 0.1},
    }
    sides = np.zeros(0, np.int64)
    job: dict[int, str] = {}
    for length in (60, 90, 120):
        try:
            found = chosen(
                length,
                hashes[:length],
                labels[:length],
                column and column[:length],
                sides if len(sides) else None,
                contents[:length].tolist(),
                **choice,
            )
        except ConfigError as error:
            assert "more than the share of" in str(error) and not len(sides)
            return
        new = places(found)
        assert all(id >= len(sides) for id in new)
        sides = np.concatenate([sides, placed(found, length)[len(sides) :]])
        job |= new
    assert sum(found.shares["images"].values()) == len(job)
    parted = False
    for i, one in job.items():
        for j, other in job.items():
            if column is not None and column[i] and column[i] == column[j]:
                assert one == other
            alike = contents[i] == contents[j] or (hashes[i] ^ hashes[j]).bit_count() <= 4
            parted |= alike and one != other
    assert parted == ("look_alikes" in found.shares)
    assert not parted or dedupe != "near" or has_groups  # a ninth look-alike may be cut off


def test_an_appended_copy_between_two_groups_is_left_out_alone() -> None:
    hashes = random_hashes(40)
    column = ["ann"] * 10 + ["bob"] * 10 + ["eve"] * 20
    split = {"train": 0.5, "holdout": 0.5}
    seeds = (chosen(40, hashes, None, column, split=split, split_seed=k) for k in range(9))
    first = next(found for found in seeds if places(found)[0] != places(found)[10])
    sides = placed(first, 40)
    # 40 and 41 are ann's; 40 looks like one of bob's
    more = [*hashes, hashes[10], *random_hashes(1, 5)]
    found = chosen(42, more, None, [*column, "ann", "ann"], sides, split=split)
    assert places(found) == {41: places(first)[0]}
    assert found.left_out == {"between_splits": 1}


def test_a_group_larger_than_its_split_is_refused() -> None:
    column = ["ann"] * 30 + [f"p{k}" for k in range(70)]
    drawn = set()
    for seed in range(40):
        try:
            drawn.add(places(chosen(100, None, None, column, split_seed=seed))[0])
        except ConfigError as error:
            drawn.add("refused")
            assert "group: photographer ann has 30 of 100 images, more than the share of" in str(
                error
            )
            assert "--split-seed" in str(error)
    assert drawn == {"train", "refused"}


def test_images_without_a_group_are_drawn_alone_and_reported() -> None:
    found = chosen(200, None, None, [""] * 100 + [f"p{k}" for k in range(100)])
    assert found.shares["ungrouped"] == ["photographer", 100]
    assert {side for id, side in places(found).items() if id < 100} == set(SPLIT)


@pytest.mark.parametrize("surveyed", [False, True])
def test_stratified_classes_have_their_shares_to_an_image(surveyed: bool) -> None:
    labels = np.repeat(np.arange(40), np.random.default_rng(0).integers(1, 60, 40)).tolist()
    n = len(labels)
    found = chosen(n, random_hashes(n) if surveyed else None, labels, stratify=True)
    for label, *counts in found.shares["by_label"]:
        for name, count in zip(sorted(SPLIT), counts, strict=True):
            assert abs(count - SPLIT[name] * labels.count(label)) < 1
    for name, share in SPLIT.items():
        assert abs(found.shares["images"][name] - share * n) < 1.5
    if not surveyed:
        other = chosen(n, None, labels, stratify=True, split_seed=1)
        assert places(found) != places(other)


def test_stratified_units_and_appended_images_even_out() -> None:
    rng = np.random.default_rng(3)
    n = 3000
    groups = rng.integers(0, 300, n)
    labels = (groups % 5).tolist()
    column = [f"p{k}" for k in groups.tolist()]
    first = chosen(1000, None, labels[:1000], column[:1000], stratify=True)
    found = chosen(n, None, labels, column, placed(first, 1000), stratify=True)
    largest = max(np.bincount(groups))
    for _, *counts in found.shares["by_label"]:
        for name, count in zip(sorted(SPLIT), counts, strict=True):
            assert abs(count - SPLIT[name] * sum(counts)) < 2 * largest


def test_a_larger_source_moves_few_when_stratified_again() -> None:
    labels = (np.arange(5000) % 4).tolist()
    few = places(chosen(4000, None, labels[:4000], stratify=True))
    more = places(chosen(5000, None, labels, stratify=True))
    moved = sum(more[id] != side for id, side in few.items())
    assert 0 < moved < 4000 * 0.03


@pytest.mark.parametrize("each", [1, 4])
def test_classes_of_whole_units_do_not_starve_a_split(each: int) -> None:
    # 3 units in each class are less than a tenth of ten
    classes = np.repeat(np.arange(200), 3)
    fractions = np.random.default_rng(0).random(600)
    sides = sides_by_class(classes, fractions, (0.1, 0.9), np.full(600, each))
    assert abs((sides == 0).sum() - 60) <= 1


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ({"split": {"train": 0.8, "val": 0.1}}, "shares must sum to 1, got 0.9"),
        ({"split": {"train": 1.0}}, "two or more names"),
        ({"split": {"train": 0.8, "../x": 0.2}}, "names of folders"),
        ({"split": {"train": 0.8, "512x768": 0.2}}, "names of folders"),
        ({"split": {"train": 0.8, "__job": 0.2}}, "names of folders"),
        ({"split": {"train": 0.8, "": 0.2}}, "names of folders"),
        ({"split": {"train": 0.8, "Train": 0.2}}, "differ in more than case"),
        ({"split": SPLIT, "val": 0.1}, "pass either val or split"),
        ({"split": (), "group": "product"}, "group is for a split"),
        ({"split": (), "stratify": True}, "stratify is for a split"),
    ],
)
def test_what_cannot_be_a_split_is_refused(choice: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        chosen(9, **choice)


def test_stratified_without_labels_is_refused() -> None:
    with pytest.raises(ConfigError, match="the source has no labels"):
        chosen(9, stratify=True)
