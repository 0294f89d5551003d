"""Jobs whose description of their images is lost or damaged: it is made of the source again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.photos import folder, jpeg
from helpers.small_jobs import InlineEngine, finished_job, recipe

from fastfeed.errors import SourceError
from fastfeed.preprocess import merge, run, update
from fastfeed.preprocess.planning.check_source import samples_file
from fastfeed.preprocess.targets.job_state import Job, open_job
from fastfeed.preprocess.targets.target import open_target

DAMAGE = [None, b"", b"\x93NUMPY\1\0", b"\x93NUMPY\1\0v\0{'descr'"]


def rows_of(job: Job) -> Path:
    return Path(job.target.text) / samples_file(job.plan)


def lose(job: Job, content: bytes | None = None) -> bytes:
    """Remove the file, or damage it; returns what it held."""
    path = rows_of(job)
    before = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    return before


def run_again(root: Path, append: bool = False) -> None:
    run(str(root / "source"), root / "shards", recipe(), engine=InlineEngine(), append=append)


@pytest.mark.parametrize("content", DAMAGE)
def test_updates_and_runs_restore_lost_rows(tmp_path: Path, content: bytes | None) -> None:
    job = finished_job(tmp_path)
    rows = lose(job, content)
    run_again(tmp_path)
    assert rows_of(job).read_bytes() == rows
    lose(job, content)
    where = str(tmp_path / "source"), tmp_path / "shards"
    update(*where, remove=["cats/0003.jpg"], dry_run=True)
    assert not rows_of(job).exists() or rows_of(job).read_bytes() == content
    report = update(*where, remove=["cats/0003.jpg"], engine=InlineEngine())
    assert report.tally.samples == 17
    assert rows_of(job).read_bytes() == rows


def test_rows_of_an_appended_job_are_restored_before_more_images_are(tmp_path: Path) -> None:
    finished_job(tmp_path)
    (tmp_path / "source" / "cats" / "0000a.jpg").write_bytes(jpeg(70))
    run_again(tmp_path, append=True)
    job = open_job(open_target(tmp_path / "shards"))
    rows = lose(job)
    run_again(tmp_path)
    assert rows_of(job).read_bytes() == rows
    lose(job)
    (tmp_path / "source" / "birds").mkdir()
    (tmp_path / "source" / "birds" / "0.jpg").write_bytes(jpeg(71))
    run_again(tmp_path, append=True)
    job = open_job(open_target(tmp_path / "shards"))
    assert len(np.load(rows_of(job))) == 23


def test_a_merge_says_how_lost_rows_come_back(tmp_path: Path) -> None:
    job = finished_job(tmp_path / "one")
    other = folder(tmp_path / "two", {"birds": 2}, (40, 56))
    run(str(other), tmp_path / "other", recipe(), engine=InlineEngine())
    lose(job)
    jobs = [tmp_path / "one" / "shards", tmp_path / "other"]
    with pytest.raises(SourceError, match=r"fastfeed preprocess resume .*source .*shards"):
        merge(jobs, tmp_path / "all")
    run_again(tmp_path / "one")
    assert merge(jobs, tmp_path / "all").shards == 5
    merged = open_job(open_target(tmp_path / "all"))
    lose(merged)
    with pytest.raises(SourceError, match="merge the jobs again"):
        update(str(other), tmp_path / "all", remove=["birds/0000.jpg"], engine=InlineEngine())


def test_rows_of_another_source_are_not_written(tmp_path: Path) -> None:
    job = finished_job(tmp_path)
    lose(job)
    for path in rows_of(job).parent.glob("*listing*"):  # with the sizes that files had
        path.unlink()
    for path in (tmp_path / "source" / "dogs").iterdir():
        path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(SourceError, match="missing or damaged; if the source has not changed"):
        update(
            str(tmp_path / "source"),
            tmp_path / "shards",
            remove=["cats/0003.jpg"],
            engine=InlineEngine(),
        )
    assert not rows_of(job).exists()
