"""Estimates: a sample that is really made says what all of it will be; nothing is written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from helpers.small_jobs import IN_TURN, InlineEngine, finished_job, recipe, source
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import TargetError
from fastfeed.preprocess import Encoding, Recipe, Scaling, open_input
from fastfeed.preprocess.model.report import Reporter
from fastfeed.preprocess.planning.estimate import (
    JobEstimate,
    check_space,
    estimate,
    sample_positions,
    surely_fits,
)
from fastfeed.preprocess.planning.planning import check_free_space


@given(st.integers(0, 10**9), st.integers(1, 300))
def test_a_sample_is_spread_over_all_of_it(count, wanted):
    found = sample_positions(count, wanted)
    assert len(found) == min(count, wanted) and len(set(found.tolist())) == len(found)
    if count > wanted:  # one of each stretch
        edges = np.arange(wanted + 1) * count // wanted
        assert np.array_equal(
            np.searchsorted(edges, np.sort(found), "right") - 1, np.arange(wanted)
        )
    assert np.array_equal(found, sample_positions(count, wanted))


def test_any_beginning_of_a_sample_is_spread_too():
    quarters = np.bincount(sample_positions(1_000_000, 128)[:32] // 250_000, minlength=4)
    assert quarters.min() >= 7 and quarters.max() <= 9


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    return open_input(str(source(tmp_path_factory.mktemp("estimate") / "source", 40)))


@pytest.mark.parametrize("format", IN_TURN)
def test_a_sample_of_all_is_what_is_written(tmp_path, format):
    job = finished_job(tmp_path, format)
    given = open_input(str(tmp_path / "source"))
    found = estimate(given, recipe(format), InlineEngine())
    assert (found.images, found.sampled, found.shards) == (21, 21, 4)
    assert (
        found.bad == {"empty": 1, "truncated": 1, "not_image": 1}
        and found.good == 18
        and found.spread == 0
    )
    # what surrounds the samples of a file weighs much in files as small as these
    images = sum(record.tally.bytes_out for record in job.records.values())
    assert images < found.output <= 1.02 * sum(record.bytes for record in job.records.values())
    assert found.bytes_in * 18 == sum(record.tally.bytes_in for record in job.records.values())


def test_a_part_stands_for_all(photographs, tmp_path):
    whole = estimate(photographs, recipe(), InlineEngine(), sample=83)
    part = estimate(photographs, recipe(), InlineEngine(), sample=32)
    assert part.sampled == 32 and part.images == 83 and part.spread > 0
    assert part.low <= whole.output * part.good / whole.good <= part.high
    assert part.low <= whole.output <= part.high, "also where the share of bad ones is not the same"
    few = estimate(photographs, recipe(), InlineEngine(), ids=np.arange(4, 14), sample=32)
    assert (few.images, few.sampled, few.shards, few.bad.total()) == (10, 10, 2, 0)


def test_it_ends_after_a_while(photographs):
    found = estimate(photographs, recipe(), InlineEngine(), longest_s=0.0)
    assert found.sampled == 16 and found.images == 83


def test_time_is_divided_among_workers_as_far_as_there_are_shards():
    found = JobEstimate(
        1000, 100, Counter(), 1e6, 1e5, 0, {"decode": 0.03, "write": 0.01}, shards=4
    )
    assert found.seconds(1) == pytest.approx(40) and found.seconds(2) == pytest.approx(20)
    assert found.seconds(64) == pytest.approx(10)
    assert found.document(2)["seconds"] == 20 and found.document(2)["bytes"] == 100_000_000


def test_too_little_room():
    found = JobEstimate(1000, 100, Counter(corrupt=10), 1e6, 1e5, 1e4, shards=4, free=80_000_000)
    assert (found.output, found.low, found.high) == (90e6, 81e6, 99e6)
    with pytest.raises(
        TargetError,
        match=r"out has 80\.0 MB free, the shards need 90\.0 MB \(estimated from 100 images",
    ):
        check_space(found, "out")
    check_space(replace(found, free=82_000_000), "out")  # it may be enough
    check_space(replace(found, free=None), "out")


def test_where_there_is_plenty_nothing_is_made(photographs):
    class Target:
        text = "out"
        free = 0

        def free_bytes(self):
            return self.free

    class Never:
        def run(self, task, pieces):
            raise AssertionError("a sample is made")

    target, told = Target(), []
    reporter = Reporter(lambda now: told.append((now.images_done, now.images)))
    with pytest.raises(TargetError, match="out has 0 bytes free"):
        check_free_space(photographs, recipe(), InlineEngine(), target, reporter)  # type: ignore[arg-type]
    assert (
        told[0][0] == 0
        and told[-1][0] == told[-1][1] == len(photographs.source)
        and told == sorted(told)
    )
    target.free = 10**9
    check_free_space(photographs, recipe(), Never(), target, Reporter())  # type: ignore[arg-type]


def test_plenty_is_a_bound_of_what_the_recipe_can_make():
    assert surely_fits(1000, Recipe(Scaling(512)), 2 * 10**9) and not surely_fits(
        1000, Recipe(Scaling(512)), 10**9
    )
    assert not surely_fits(1000, Recipe(Scaling(512), Encoding("png")), 2 * 10**9)
    assert not surely_fits(1, Recipe(Scaling(None, "none")), 10**12)
    assert surely_fits(
        1000, Recipe(Scaling(None, "buckets", buckets=((64, 64), (32, 128)))), 20_000_000
    )
