"""Standing: from times of files alone, does a job run, and when will it be done?"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from helpers.small_jobs import InlineEngine, finished_job, recipe, source

from fastfeed.preprocess import Selection, open_input, run
from fastfeed.preprocess.planning.survey import SurveyTask
from fastfeed.preprocess.reports.status import count_surveyed, job_status, shard_pace
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.lock import temporary_name
from fastfeed.preprocess.targets.target import open_target

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("times", "each", "last"),
    [
        ([], None, None),
        ([50.0], None, 50.0),
        ([0, 20, 10, 30], 10, 30),  # in any order
        ([0, 1, 2, 3, 5000, 5004, 5008], 4, 5008),  # another run, slower
        ([0, 1, 2, 3, 5000], None, 5000),  # it has just begun again
        ([0, 10, 20, 59, 69], 17.25, 69),  # a slow shard is no pause
    ],
)
def test_pace(times, each, last):
    assert shard_pace(times) == (each, last)


@pytest.fixture
def job(tmp_path):
    """Three of four shards, ten seconds apart; the last one at NOW."""
    job = finished_job(tmp_path)
    job.target.remove("__job/records/shard-000003.json")
    for k in range(3):
        os.utime(
            tmp_path / "shards" / f"__job/records/shard-{k:06d}.json", (NOW, NOW - 20 + 10 * k)
        )
    return open_job(job.target)


def rows(job, now):
    return dict(job_status(job, now).rows())


def test_a_job_of_other_machines(job):
    found = job_status(job, NOW + 5)
    assert (found.done, found.todo, found.images, found.planned) == (3, 1, 15, 21)
    assert found.running and found.writers == 0 and found.seconds_left == 10 and found.last_s == 5
    said = rows(job, NOW + 5)
    assert said["state"] == "running on another machine, or just stopped, the last shard 5 s ago"
    assert (
        said["left"] == "about 10 s, at the speed of the last shards"
        and said["shards"] == "3 of 4 done, 75.0%"
    )


def test_a_job_that_has_stopped(job):
    found = job_status(job, NOW + 3600)
    assert not found.running and found.seconds_left is None
    assert rows(job, NOW + 3600)["state"].startswith(
        "not running, as far as this machine can tell, the last shard 1:00:00"
    )


def test_a_job_that_writes_here(job, tmp_path):
    temporary = tmp_path / "shards" / "__tmp" / temporary_name()
    temporary.mkdir(parents=True)
    found = job_status(job, NOW + 3600)
    assert found.running and found.writers == 1
    assert rows(job, NOW + 3600)["state"].startswith(
        "running, 1 process writes on this machine, the last shard"
    )


def test_a_job_that_has_no_plan_yet(tmp_path):
    found = open_input(str(source(tmp_path / "source", 30)))
    target = open_target(tmp_path / "shards")
    assert count_surveyed(target) == 0
    list(InlineEngine().run(SurveyTask(found.source, target, np.array([0, 40, 63]), False), [0, 1]))
    assert 45 <= count_surveyed(target) <= 63
    run(
        str(tmp_path / "source"),
        tmp_path / "shards",
        replace(recipe(), choice=Selection(dedupe="exact")),
        engine=InlineEngine(),
    )
    assert count_surveyed(target) == 0


def test_a_job_that_is_complete(tmp_path):
    job = finished_job(tmp_path)
    assert rows(job, NOW)["state"] == "complete" and "left" not in rows(job, NOW)
    assert job_status(job).document()["running"] is False
