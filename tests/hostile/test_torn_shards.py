"""Shards that are cut off between two samples: what is lost is told, with its number where a file
knows it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.photos import folder, jpeg
from helpers.records import example, frame
from helpers.shards import samples, tar_of
from helpers.small_jobs import InlineEngine, recipe

import fastfeed as ff
from fastfeed.preprocess import run
from fastfeed.sources.shards.known_counts import is_cut

COUNT, KEPT = 16, 8


def tar(path: Path) -> list[int]:
    """A shard of 16 samples; where each begins."""
    path.write_bytes(tar_of(samples(range(COUNT))))
    source = ff.TarShards(path, index=path.with_suffix(".other"))
    return [int(offset) - 512 for offset in source._index.offsets]


def records(path: Path) -> list[int]:
    written = [
        frame(example({"image/encoded": jpeg(i, (16, 16)), "image/class/label": i}))
        for i in range(COUNT)
    ]
    path.write_bytes(b"".join(written))
    return np.cumsum([0, *map(len, written)]).tolist()[:-1]


def idx_of_tar(path: Path, starts: list[int]) -> None:
    lines = [
        f"jpg {start + 512} 1 {i:06d}.jpg cls {start + 1024} 1 {i:06d}.cls"
        for i, start in enumerate(starts)
    ]
    path.with_suffix(".idx").write_text(f"v1.2 {len(lines)}\n" + "\n".join(lines) + "\n")


def idx_of_records(path: Path, starts: list[int]) -> None:
    ends = [*starts[1:], path.stat().st_size]
    path.with_suffix(".idx").write_text(
        "".join(f"{a} {b - a}\n" for a, b in zip(starts, ends, strict=True))
    )


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_tar_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.tar"
    cut = tar(path)[KEPT]
    os.truncate(path, cut)
    source = ff.TarShards(path)
    assert len(source) == KEPT
    line = f"TarShards: {path}: cut off at {cut}: the end of the archive is missing"
    assert lines(caplog) == [line]
    ff.TarShards(path)
    assert lines(caplog) == [line]
    text = str(ff.Feed(source, [ff.Resize((8, 8))], batch=4))
    assert f"\n  {path}: cut off at {cut}: the end of the archive is missing\n" in text


def test_several_are_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in "abc":
        starts = tar(tmp_path / f"{name}.tar")
        os.truncate(tmp_path / f"{name}.tar", starts[KEPT])
    ff.TarShards(tmp_path)
    assert len(lines(caplog)) == 1 and lines(caplog)[0].endswith(
        "; and 2 more such shards, see .notes"
    )


def test_python_w_error_changes_nothing(tmp_path: Path) -> None:
    """What is lost goes to the log, not to Python's warnings, which are errors in these tests."""
    starts = tar(tmp_path / "a.tar")
    os.truncate(tmp_path / "a.tar", starts[KEPT])
    assert len(ff.TarShards(tmp_path / "a.tar")) == KEPT


@pytest.mark.parametrize("make", ["tar", "tfrecord"])
def test_an_idx_knows_how_many(tmp_path: Path, make: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / f"a.{make}"
    starts = tar(path) if make == "tar" else records(path)
    (idx_of_tar if make == "tar" else idx_of_records)(path, starts)
    os.truncate(path, starts[KEPT])
    source = (ff.TarShards if make == "tar" else ff.TFRecords)(path)
    assert len(source) == KEPT
    assert lines(caplog)[-1].endswith("8 of 16 samples are missing, as a.idx lists them")
    assert any(is_cut(note.partition(": ")[2]) for note in source.notes)


@pytest.mark.parametrize("make", ["tar", "tfrecord"])
def test_an_earlier_index_knows_how_many(
    tmp_path: Path, make: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / f"a.{make}"
    starts = tar(path) if make == "tar" else records(path)
    kind = ff.TarShards if make == "tar" else ff.TFRecords
    assert kind(path).notes == [] and len(kind(path)) == COUNT
    os.truncate(path, starts[KEPT])
    assert len(kind(path)) == KEPT
    (line,) = lines(caplog)
    assert "cut off at" in line
    assert line.endswith("8 of 16 samples are missing, as an index lists that was made earlier")


def test_a_shorter_shard_that_is_whole_is_no_torn_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.tar"
    tar(path)
    assert len(ff.TarShards(path)) == COUNT
    path.write_bytes(tar_of(samples(range(KEPT))))
    assert (len(ff.TarShards(path)), ff.TarShards(path).notes, lines(caplog)) == (KEPT, [], [])


def test_other_records_are_no_torn_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.tfrecord"
    records(path)
    ff.TFRecords(path)
    path.write_bytes(frame(example({"image/encoded": jpeg(99, (16, 16)), "image/class/label": 3})))
    assert (len(ff.TFRecords(path)), lines(caplog)) == (1, [])


@pytest.mark.parametrize("format", ["webdataset", "tfrecord"])
@pytest.mark.parametrize("inside", ["", "val"])
def test_the_record_of_a_job_knows_how_many(
    tmp_path: Path, format: str, inside: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder(tmp_path / "photos", {"a": 6, "b": 6}, (40, 56))
    run(str(tmp_path / "photos"), tmp_path / "out", recipe(format, 12), engine=InlineEngine())
    suffix = {"webdataset": ".tar", "tfrecord": ".tfrecord"}[format]
    if inside:
        for place in ("", "__job/records/"):
            (tmp_path / "out" / place / inside).mkdir()
        (tmp_path / f"out/shard-000000{suffix}").rename(tmp_path / f"out/val/shard-000000{suffix}")
        (tmp_path / "out/__job/records/shard-000000.json").rename(
            tmp_path / "out/__job/records/val/shard-000000.json"
        )
    (tmp_path / "out/shard-000000.idx").unlink()
    path, kind = (
        tmp_path / "out" / inside / f"shard-000000{suffix}",
        ff.TarShards if format == "webdataset" else ff.TFRecords,
    )
    starts = kind(path, index=tmp_path / "other")._index.offsets
    os.truncate(path, int(starts[7]) - (512 if format == "webdataset" else 0))
    source = kind(path)
    assert len(source) == 7
    assert lines(caplog)[-1].endswith(
        "5 of 12 samples are missing, as the record of its job lists them"
    )


def test_a_torn_record_and_what_is_lost_after_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.tfrecord"
    starts = records(path)
    idx_of_records(path, starts)
    os.truncate(path, starts[KEPT] - 5)
    source = ff.TFRecords(path)
    assert len(source) == KEPT, "the last one is a bad sample"
    assert source.notes == [
        f"{path}: cut off at {starts[KEPT] - 5}: the record at {starts[KEPT - 1]} is incomplete; "
        "8 of 16 samples are missing, as a.idx lists them"
    ]
