"""Statistics: sums over records, and one sentence on what limits a job."""

from __future__ import annotations

import json

import pytest
from helpers.small_jobs import finished_job

from fastfeed.preprocess.reports.statistics import (
    RunStatistics,
    aspect,
    bins,
    bottleneck,
    megapixel,
    statistics,
    summary,
    top_rows,
)
from fastfeed.preprocess.targets.job_state import TIMES


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return finished_job(tmp_path_factory.mktemp("statistics"))


def test_sums_over_all_shards(job):
    found = statistics(job)
    assert (found.shards, found.shards_done, found.planned, found.tally.samples) == (4, 4, 21, 18)
    assert found.bad == {"empty": 1, "truncated": 1, "not_image": 1}
    assert found.tally.formats == {"JPEG": 18} and found.tally.sizes == {"24x34": 18}
    assert found.bytes == sum(
        part.bytes for record in job.records.values() for part in record.files
    )
    document = json.loads(json.dumps(found.document()))
    assert document["tally"]["megapixels"] == {"0.00195312": 18} and document["bad"]["empty"] == 1
    said = dict(summary(found))
    assert said["images"] == "18 of 21, 3 are bad (14.29%)"
    assert said["shards"] == "4 of 4, webdataset"


def test_times_of_several_runs_add_up_and_torn_lines_do_not_count(job):
    one = {
        "seconds": 10.0,
        "workers": 2,
        "stages": {"decode": 12.0, "read": 2.0},
        "images": 100,
        "bytes_in": 5,
    }
    before = job.target.read(TIMES)
    job.target.write(
        TIMES, f'{json.dumps(one)}\n{json.dumps(one)}\n[1]\n{{"seconds": 3, "sta'.encode()
    )
    took = statistics(job).took
    job.target.write(TIMES, before)
    assert took == RunStatistics(20.0, 40.0, {"read": 4.0, "decode": 24.0}, 200, 10, 0, 2)
    assert list(took.stages) == ["read", "decode"]  # in the order of the work


@pytest.mark.parametrize(
    ("stages", "workers", "words"),
    [
        (
            {"read": 1, "decode": 12, "resize": 2, "encode": 4, "write": 1},
            2,
            "the limit is the CPU: decoding 60%, resizing 10%, encoding 20%",
        ),
        ({"read": 1, "decode": 4, "encode": 14, "write": 1}, 2, "JPEG is the fastest to encode"),
        (
            {"read": 14, "decode": 4, "encode": 1, "write": 1},
            2,
            "read from: 70% of the workers' time, 200 MB/s; faster",
        ),
        (
            {"read": 1, "decode": 4, "write": 2, "commit": 13},
            2,
            "the limit is the writer: 75% of the workers' time, 30 MB/s",
        ),
        (
            {"read": 8, "decode": 4, "encode": 3, "write": 5},
            2,
            "reading costs most: 40% of the workers' time",
        ),
        (
            {"read": 0, "decode": 4, "encode": 1, "write": 0},
            2,
            "workers were idle or starting 75% of the time",
        ),
        # how many is not known
        (
            {"read": 1, "decode": 9},
            0,
            "the limit is the CPU: decoding 90%, resizing 0%, encoding 0%",
        ),
        ({}, 2, ""),
    ],
)
def test_the_limit_is_one_sentence(stages, workers, words):
    said = bottleneck(
        RunStatistics(
            10.0,
            10.0 * workers,
            {k: float(v) for k, v in stages.items()},
            1000,
            2 * 10**9,
            3 * 10**8,
            1,
        )
    )
    assert words in said and bool(said) == bool(words) and ". " not in said


def test_histograms():
    assert [aspect(ratio) for ratio in (1.41, 1, 0.71)] == ["1.41:1", "1.00:1", "1:1.41"]
    assert megapixel(4) == "4 to 8 MP" and megapixel(0.125) == "0.12 to 0.25 MP"
    assert top_rows({"a": 1, "b": 9, "c": 2, "d": 1}, 2) == [("b", 9), ("c", 2), ("2 others", 2)]
    # one in place of "1 others"
    assert top_rows({"a": 1, "b": 9, "c": 2}, 2) == [("b", 9), ("c", 2), ("a", 1)]
    counts = {"8": 3, "0.5": 1, "16": 50, "1": 2, "32": 7}
    assert bins(counts, str, 12) == [("0.5", 1), ("1.0", 2), ("8.0", 3), ("16.0", 50), ("32.0", 7)]
    assert bins(counts, str, 2) == [("less", 6), ("16.0", 50), ("32.0", 7)]
    assert sum(n for _, n in bins(counts, str, 1)) == 63
