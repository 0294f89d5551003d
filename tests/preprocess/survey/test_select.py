"""What is chosen: who stays of duplicates, who is on which side, in which bucket, in which
order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.preprocess.surveying import make_survey
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.recipe import Recipe, Scaling, Selection
from fastfeed.preprocess.planning.near_duplicates import mirror
from fastfeed.preprocess.planning.select import DuplicatePair, PlannedGroups, select
from fastfeed.preprocess.planning.survey import BAD, GOOD, PLAIN, Survey

BUCKETS = ((512, 512), (512, 768), (768, 512))


def chosen(
    choice: Selection,
    survey: Survey | None,
    length: int | None = None,
    labels: list[int] | None = None,
    uris: Callable[[int], str] = "/photos/{}.jpg".format,
    buckets: tuple[tuple[int, int], ...] = (),
) -> PlannedGroups:
    scaling = Scaling(mode="buckets", buckets=buckets) if buckets else Scaling()
    length = len(survey) if survey is not None and length is None else length or 0
    classes = np.full(length, -1) if labels is None else np.array(labels)
    return select(Recipe(scaling, choice=choice), length, classes, survey, uris)


def ids(found: PlannedGroups) -> dict[str, list[int]]:
    return {folder: members.tolist() for folder, members in found.groups}


def side(found: PlannedGroups, id: int) -> str:
    return next(folder for folder, members in found.groups if id in members)


def random_hashes(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64).tolist()


def test_all_in_the_source_s_order() -> None:
    found = chosen(Selection(), None, 5)
    assert ids(found) == {"": [0, 1, 2, 3, 4]}
    assert (found.left_out, found.pairs) == ({}, [])


def test_of_the_same_bytes_the_first_stays() -> None:
    survey = make_survey([7, 8, 7, 9, 8, 7], [1 << i for i in range(6)])
    found = chosen(Selection(dedupe="exact"), survey, labels=[0, 0, 1, 0, -1, 0])
    assert ids(found) == {"": [0, 1, 3]}
    assert found.left_out == {"duplicate_exact": 3}
    assert found.pairs == [
        DuplicatePair(0, 2, "duplicate_exact", conflict=True),
        DuplicatePair(1, 4, "duplicate_exact"),
        DuplicatePair(0, 5, "duplicate_exact"),
    ]


def test_chains_are_not_followed() -> None:
    # 0 ~ 1 ~ 2 ~ 3, three bits each
    survey = make_survey(range(4), [0b0, 0b111, 0b111111, 0b111111111])
    found = chosen(Selection(dedupe="near"), survey)
    assert ids(found) == {"": [0, 2]}
    assert found.pairs == [
        DuplicatePair(0, 1, "duplicate_near", 3),
        DuplicatePair(2, 3, "duplicate_near", 3),
    ]
    assert ids(chosen(Selection(dedupe="near", distance=6), survey)) == {"": [0, 3]}
    assert ids(chosen(Selection(dedupe="near", distance=2), survey)) == {"": [0, 1, 2, 3]}


def test_copies_of_one_that_is_left_out_go_with_it() -> None:
    survey = make_survey([0, 1, 1, 3], [0b0, 0b11, 0b11, 0b11])  # 2 has the bytes of 1, 3 its hash
    found = chosen(Selection(dedupe="near"), survey)
    assert found.pairs == [DuplicatePair(0, id, "duplicate_near", 2) for id in (1, 2, 3)]
    assert found.left_out == {"duplicate_near": 3}
    assert chosen(Selection(dedupe="near", distance=1), survey).pairs == [
        DuplicatePair(1, 2, "duplicate_exact"),
        DuplicatePair(1, 3, "duplicate_near"),
    ]


def test_bad_ones_stay_and_plain_ones_go_by_their_bytes() -> None:
    survey = make_survey([1, 1, 2, 2, 3, 4], [0] * 6, [BAD, BAD, PLAIN, PLAIN, PLAIN, GOOD])
    found = chosen(Selection(dedupe="near"), survey)
    assert ids(found) == {"": [0, 1, 2, 4, 5]}
    assert found.pairs == [DuplicatePair(2, 3, "duplicate_exact")]


@given(
    contents=st.lists(st.integers(0, 12), min_size=1, max_size=40),
    seed=st.integers(0, 99),
    distance=st.integers(0, 6),
    val=st.sampled_from([0.0, 0.3]),
)
def test_laws_of_near_duplicates(contents: list[int], seed: int, distance: int, val: float) -> None:
    rng = np.random.default_rng(seed)
    centers = rng.integers(0, 2**64, 3, dtype=np.uint64)
    of_content = [int(centers[rng.integers(3)]) ^ int(rng.integers(0, 256)) for _ in range(13)]
    hashes = [of_content[content] for content in contents]
    survey = make_survey(contents, hashes)
    found = chosen(Selection(dedupe="near", distance=distance, val=val), survey)
    stay = sorted(id for members in ids(found).values() for id in members)
    assert sorted(stay + [pair.dropped for pair in found.pairs]) == list(range(len(contents)))
    assert sum(found.left_out.values()) == len(found.pairs)
    for pair in found.pairs:  # everybody left out has a likeness that stays, and came before it
        assert pair.kept in stay
        assert pair.kept < pair.dropped
        assert (hashes[pair.kept] ^ hashes[pair.dropped]).bit_count() == pair.bits <= distance
        assert pair.reason == (
            "duplicate_exact" if contents[pair.kept] == contents[pair.dropped] else "duplicate_near"
        )
    for i in stay:
        assert all((hashes[i] ^ hashes[j]).bit_count() > distance for j in stay if i != j)


@given(
    seed=st.integers(0, 99),
    dedupe=st.sampled_from(["none", "exact", "near"]),
    distance=st.integers(0, 5),
)
def test_what_is_alike_is_on_one_side(seed: int, dedupe: str, distance: int) -> None:
    rng = np.random.default_rng(seed)
    contents = rng.integers(0, 60, 70)
    of_content = rng.integers(0, 2**64, 8, dtype=np.uint64)[rng.integers(0, 8, 60)] ^ rng.integers(
        0, 2**10, 60
    ).astype(np.uint64)
    hashes = of_content[contents]
    found = chosen(
        Selection(dedupe=dedupe, distance=distance, val=0.5),
        make_survey(contents.tolist(), hashes.tolist()),
    )
    sides = {id: folder for folder, members in ids(found).items() for id in members}
    for i in sides:
        for j in sides:
            if contents[i] == contents[j] or int(hashes[i] ^ hashes[j]).bit_count() <= distance:
                assert sides[i] == sides[j]


@pytest.mark.parametrize("surveyed", [False, True])
@pytest.mark.parametrize("val", [0.05, 0.5])
def test_the_share_is_what_chance_gives(surveyed: bool, val: float) -> None:
    n = 20_000
    survey = make_survey(range(n), random_hashes(n)) if surveyed else None
    count = len(ids(chosen(Selection(val=val), survey, n))["val"])
    assert abs(count - n * val) < 4 * (n * val * (1 - val)) ** 0.5


@pytest.mark.parametrize("surveyed", [False, True])
def test_more_photographs_move_none_of_the_others(surveyed: bool) -> None:
    hashes, more = random_hashes(400), random_hashes(300, 1)
    place = np.random.default_rng(2).permutation(700)  # where the old and the new ones lie then
    before = chosen(Selection(val=0.3), make_survey(range(400), hashes) if surveyed else None, 400)
    contents = [0] * 700
    bits = [0] * 700
    for old, (new, bit) in enumerate(zip(place.tolist(), hashes + more, strict=True)):
        contents[new], bits[new] = old, bit
    was = np.argsort(place)
    after = chosen(
        Selection(val=0.3),
        make_survey(contents, bits) if surveyed else None,
        700,
        uris=lambda i: f"/photos/{was[i]}.jpg",
    )
    assert [side(before, id) for id in range(400)] == [side(after, place[id]) for id in range(400)]
    assert {"train", "val"} == set(ids(before))


def test_names_count_where_there_is_no_survey_but_not_where_they_lie() -> None:
    one = chosen(Selection(val=0.3), None, 200, uris="/here/roses/{}.jpg".format)
    other = chosen(Selection(val=0.3), None, 200, uris="s3://there/all/roses/{}.jpg".format)
    tulips = chosen(Selection(val=0.3), None, 200, uris="/here/tulips/{}.jpg".format)
    assert ids(one) == ids(other) != ids(tulips)
    chosen(Selection(val=0.3), None, 1, uris=lambda _: "not \udcff UTF-8.jpg")


def test_another_seed_is_another_split() -> None:
    survey = make_survey(range(300), random_hashes(300))
    one, same, other = (chosen(Selection(val=0.3, split_seed=seed), survey) for seed in (1, 1, 2))
    assert ids(one) == ids(same) != ids(other)


def test_split_and_order_are_the_same_everywhere() -> None:
    survey = make_survey(range(12), [0] * 12, [PLAIN] * 12)
    assert ids(chosen(Selection(val=0.4, shuffle=3), survey)) == {
        "train": [11, 4, 5, 2, 1, 8, 3],
        "val": [7, 9, 10, 0, 6],
    }
    assert ids(chosen(Selection(val=0.4), None, 12)) == {
        "train": [0, 4, 5, 6, 7, 8, 9, 11],
        "val": [1, 2, 3, 10],
    }


def test_unreadable_ones_are_split_by_name() -> None:
    survey = make_survey(range(200), [0] * 200, [BAD] * 200)
    survey.rows["sha"] = 0
    groups = ids(chosen(Selection(val=0.5), survey))
    assert groups == ids(chosen(Selection(val=0.5), None, 200))


def test_the_order_is_a_permutation_of_each_group() -> None:
    survey = make_survey(range(500), random_hashes(500))
    plain, shuffled, again = (
        ids(chosen(Selection(val=0.2, shuffle=seed), survey)) for seed in (None, 5, 6)
    )
    for folder, members in plain.items():
        assert sorted(shuffled[folder]) == members
        assert shuffled[folder] != members
        assert shuffled[folder] != again[folder]


def test_buckets_by_shape_and_bad_ones_in_the_first() -> None:
    survey = make_survey(range(5), random_hashes(5), [GOOD, GOOD, GOOD, BAD, PLAIN])
    survey.rows["height"] = [100, 3000, 500, 0, 499]
    survey.rows["width"] = [150, 2000, 510, 0, 500]
    found = chosen(Selection(), survey, buckets=BUCKETS)
    assert ids(found) == {"512x512": [2, 3, 4], "512x768": [0], "768x512": [1]}
    split = chosen(Selection(val=0.5), survey, buckets=BUCKETS)
    assert list(ids(split)) == [f"{side}/{h}x{w}" for side in ("train", "val") for h, w in BUCKETS]
    assert sorted(id for members in ids(split).values() for id in members) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("choice", "needed"),
    [
        (Selection(), False),
        (Selection(dedupe="exact"), False),
        (Selection(dedupe="near"), True),
        (Selection(val=0.1), True),
    ],
)
def test_pixels_are_needed_for_near_duplicates_and_to_keep_them_on_one_side(
    choice: Selection, needed: bool
) -> None:
    assert choice.compares is needed


@pytest.mark.parametrize(
    ("keep", "stays"), [("largest", [2, 4]), ("first", [0, 4]), ("newest", [3, 5])]
)
def test_which_copy_stays_is_a_rule(keep: str, stays: list[int]) -> None:
    survey = make_survey([0, 1, 2, 3, 4, 4], [0, 1, 2, 4, 255 << 40, 255 << 40])
    survey.rows["height"][:4] = [100, 200, 300, 250]
    recipe = Recipe(choice=Selection(dedupe="near", keep=keep))
    times = np.array([3, 1, 2, 9, 5, 6]) if keep == "newest" else None
    found = select(recipe, 6, np.full(6, -1), survey, str, times=times)
    assert ids(found) == {"": stays}
    assert found.left_out == {"duplicate_exact": 1, "duplicate_near": 3}
    # what the job has stays, whatever comes later
    sides = np.where(np.isin(np.arange(6), stays), 0, -1)
    more = make_survey([0, 1, 2, 3, 4, 4, 4, 7], [0, 1, 2, 4, 255 << 40, 255 << 40, 255 << 40, 1])
    more.rows["height"][6:] = 900
    times = np.array([3, 1, 2, 9, 5, 6, 99, 99]) if keep == "newest" else None
    grown = select(recipe, 8, np.full(8, -1), more, str, sides, times=times)
    assert ids(grown) == {"": []}


def test_flipped_copies_are_dropped_and_stay_together_where_they_count() -> None:
    hashes = random_hashes(40)
    flipped = mirror(np.array(hashes, np.uint64)) ^ np.uint64(3)
    survey = make_survey(range(80), [*hashes, *flipped.tolist()])
    for mirrored, dropped in ((False, 0), (True, 40)):
        found = chosen(Selection(dedupe="near", mirrored=mirrored), survey)
        assert [pair.dropped for pair in found.pairs] == list(range(40, 40 + dropped))
        sides = chosen(Selection(val=0.5, mirrored=mirrored), survey)
        together = sum(side(sides, id) == side(sides, id + 40) for id in range(40))
        assert together == 40 if mirrored else 5 < together < 35


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ({"keep": "oldest", "dedupe": "near"}, "keep must be .*newest"),
        ({"keep": "first"}, "keep is for duplicates"),
        ({"mirrored": True}, "mirrored is for images that are compared"),
        ({"mirrored": True, "val": 0.1, "split_by": "names"}, "mirrored is for images"),
    ],
)
def test_what_has_no_effect_is_refused(choice: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Selection(**choice)
