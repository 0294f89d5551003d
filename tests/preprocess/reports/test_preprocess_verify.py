"""Verify: whatever has happened to a file of a finished job is found, named, and can be mended."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from helpers.small_jobs import FORMATS, InlineEngine, finished_job, recipe

from fastfeed.errors import SourceError
from fastfeed.preprocess import run
from fastfeed.preprocess.model.layout import SUFFIXES
from fastfeed.preprocess.model.record import ShardRecord
from fastfeed.preprocess.reports.verify import count_samples, repair, verify
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.lock import temporary_name
from fastfeed.preprocess.targets.target import open_target


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A job of each format, to be copied."""
    return {
        format: Path(finished_job(tmp_path_factory.mktemp(format), format).target.text)
        for format in FORMATS
    }


@pytest.fixture
def job(finished, tmp_path, request):
    format = getattr(request, "param", "webdataset")
    shutil.copytree(finished[format], tmp_path / "shards")
    return open_job(open_target(tmp_path / "shards", writes=False))


def problems(job):
    found = verify(job)
    return {(problem.kind, problem.name) for problem in found.problems}, found


@pytest.mark.parametrize("job", FORMATS, indirect=True)
def test_a_finished_job_is_whole(job):
    seen = []
    found = verify(job, lambda done, of: seen.append((done, of)))
    assert not found.problems and not found.broken
    assert (found.shards, found.done, found.whole, found.samples) == (4, 4, 4, 18)
    assert found.bytes == sum(
        part.bytes for record in job.records.values() for part in record.files
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize("job", FORMATS, indirect=True)
def test_a_changed_byte_is_found_and_mended(job, tmp_path):
    format = job.plan.recipe.packing.format
    name = f"shard-000001{SUFFIXES[format]}"
    path = tmp_path / "shards" / name
    before = path.read_bytes()
    path.write_bytes(before[:-30] + bytes([before[-30] ^ 1]) + before[-29:])
    kinds, found = problems(job)
    assert kinds == {("content", name)} and found.broken == [1] and found.whole == 3
    assert "content differs from what was written (sha256)" in str(found.problems[0])
    assert repair(job, found) == ["shard-000001"]
    again = open_job(job.target)
    assert again.todo == [1]
    run(job.plan.source, tmp_path / "shards", recipe(format), engine=InlineEngine())
    assert path.read_bytes() == before and not verify(open_job(job.target)).problems


def test_files_that_are_gone_cut_off_or_not_of_the_job(job, tmp_path):
    shards = tmp_path / "shards"
    (shards / "shard-000000.tar").unlink()
    (shards / "shard-000001.tar").write_bytes((shards / "shard-000001.tar").read_bytes()[:700])
    (shards / "__job/records/shard-000002.json").write_bytes(b"{}")
    (shards / "notes.txt").write_text("mine")
    (shards / "kept.ffindex").write_bytes(b"of a reader")
    kinds, found = problems(job)
    assert kinds == {
        ("missing", "shard-000000.tar"),
        ("size", "shard-000001.tar"),
        ("record", "__job/records/shard-000002.json"),
        ("foreign", "shard-000002.tar"),
        ("foreign", "shard-000002.idx"),
        ("foreign", "notes.txt"),
    }
    assert found.broken == [0, 1, 2] and (found.done, found.whole) == (3, 1)
    said = {problem.name: str(problem) for problem in found.problems}
    assert said["shard-000000.tar"] == "shard-000000.tar: is not there"
    assert "has 700 bytes, should have " in said["shard-000001.tar"]
    assert (
        said["shard-000002.tar"]
        == "shard-000002.tar: of a shard that is not complete; a run rebuilds it"
    )
    assert said["notes.txt"] == "notes.txt: is not of this job"


def test_records_that_say_something_else_than_the_files(job, tmp_path):
    """Their checksums fit: what wrote them was wrong, or lied."""
    shards = tmp_path / "shards"
    path = shards / "__job/records/shard-000001.json"
    record = ShardRecord.load(path.read_bytes(), path.name)
    path.write_bytes(
        replace(record, ids=record.ids[1:], bad=(*record.bad, *job.records[0].bad[:1])).dump()
    )
    other = shards / "__job/records/shard-000002.json"
    record = ShardRecord.load(other.read_bytes(), other.name)
    other.write_bytes(replace(record, ids=record.ids[1:]).dump())
    third = shards / "shard-000003.tar"
    third.write_bytes(b"no tar".ljust(1024))
    record = job.records[3]
    part = replace(
        record.files[0], bytes=1024, sha256=hashlib.sha256(third.read_bytes()).hexdigest()
    )
    (shards / "__job/records/shard-000003.json").write_bytes(
        replace(record, files=(part, *record.files[1:])).dump()
    )
    kinds, found = problems(job)
    assert kinds == {
        ("samples", "shard-000001.tar"),
        ("record", "__job/records/shard-000002.json"),
        ("samples", "shard-000003.tar"),
    }
    assert found.broken == [1, 2, 3]
    assert [str(problem) for problem in found.problems] == [
        "shard-000001.tar: holds 6 samples, should hold 5",
        "__job/records/shard-000002.json: lists 5 images, 6 are planned",
        "shard-000003.tar: cannot be read: no tar file at 0: nothing after it can be read",
    ]


def test_what_a_killed_run_left_is_found_and_what_a_living_one_writes_is_not(job, tmp_path):
    temporary = tmp_path / "shards" / "__tmp"
    temporary.mkdir()
    (temporary / temporary_name()).mkdir()
    assert not verify(job).problems
    gone = re.sub(rf"\b{os.getpid()}\b", "4194301", temporary_name())
    assert gone != temporary_name()
    (temporary / gone).mkdir()
    (problem,) = verify(job).problems
    assert problem.kind == "temporary" and problem.shard is None
    assert problem.name == f"__tmp/{gone}" and problem.detail.endswith("; the next run removes it")


def test_a_job_that_is_under_way(job, tmp_path):
    for name in ("shard-000003.tar", "shard-000003.idx", "__job/records/shard-000003.json"):
        (tmp_path / "shards" / name).unlink()
    found = verify(open_job(job.target))
    assert not found.problems and (found.shards, found.done, found.samples) == (4, 3, 15)


@pytest.mark.parametrize(
    ("format", "content", "words"),
    [
        ("webdataset", b"", "empty file"),
        ("tfrecord", b"\0" * 40, "no TFRecord file"),
        ("parquet", b"PAR1" + bytes(20), "it does not end as a Parquet file does"),
        ("mds", b"\x03\0\0\0" + bytes(60), "its offset table does not match the file size, 64"),
        ("raw", b"\x93NUMPY\x01\0" + bytes(100), ""),
    ],
)
def test_what_no_reader_takes(format, content, words):
    with pytest.raises(SourceError, match=f"x cannot be read: .*{words}"):
        count_samples(
            format, "x", len(content), lambda start, count: content[start : start + count]
        )


def test_the_problems_are_json(job, tmp_path):
    (tmp_path / "shards" / "shard-000000.tar").unlink()
    assert json.loads(json.dumps(asdict(verify(job))))["problems"][0]["shard"] == 0
