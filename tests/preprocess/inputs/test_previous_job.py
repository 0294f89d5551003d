"""What a job has written, opened again, and by commands; and of which kind a place is."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.mosaic import mds_folder, raw_folder
from helpers.photos import folder, jpeg
from helpers.preprocess.packing import encoded, pixels, write
from helpers.records import record_folder
from helpers.remotes import uploaded
from helpers.shards import shard_folder

from fastfeed.cli.open_source import open_source
from fastfeed.errors import ConfigError, SourceError
from fastfeed.preprocess.inputs.previous_job import open_previous_job
from fastfeed.preprocess.inputs.source_spec import open_input
from fastfeed.preprocess.model.plan import JobPlan, ordered
from fastfeed.preprocess.model.recipe import FORMATS, Encoding, Packing, Recipe, Scaling
from fastfeed.preprocess.model.record import Entry, ShardRecord
from fastfeed.sources.detect import detect_kind
from fastfeed.storage.reads import Unread
from fastfeed.storage.storage import Storage

CLASSES = ("a", "b", "c")


def written(
    root: Path, format: str, groups: dict[str, int], labeled: bool = True, less: int = 0
) -> JobPlan:
    """The folder of a job: two samples to a shard; `less` shards are not there yet.

    The second sample is bad.
    """
    image = "raw" if format == "raw" else "jpeg"
    recipe = Recipe(Scaling(8, "contain"), Encoding(image), packing=Packing(format, samples=2))
    ends = np.cumsum([0, *groups.values()])
    ids = [
        (name, np.arange(start, stop))
        for name, start, stop in zip(groups, ends, ends[1:], strict=False)
    ]
    order, folders = ordered(ids, "x")
    plan = JobPlan(
        recipe=recipe,
        source="x",
        fingerprint="f",
        length=int(ends[-1]),
        classes=CLASSES if labeled else (),
        order=order,
        groups=folders,
    )
    for name, content in plan.files().items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    for shard in plan.shards[: len(plan.shards) - less]:
        there = [i for i in plan.order[shard.first : shard.last].tolist() if i != 1]
        place = root / shard.name
        write(
            place.parent,
            recipe.packing,
            [sample(i, recipe.encoding.extension, labeled) for i in there],
            place.name,
        )
        record = ShardRecord(shard.name, shard.index, plan.hash, (), tuple(there), (), ())
        (root / record.name).parent.mkdir(parents=True, exist_ok=True)
        (root / record.name).write_text(json.dumps(asdict(record)))
    return plan


def sample(i: int, extension: str, labeled: bool) -> Entry:
    label = i % 3 if labeled else None
    return Entry(
        f"{i:09d}",
        encoded(i, extension),
        extension,
        8,
        10,
        label,
        f"caption {i}",
        {"uri": f"{i}.jpg"},
    )


def check(source: Any, ids: list[int], extension: str, labeled: bool = True) -> None:
    assert len(source) == len(ids)
    for got, i in zip(source.read(range(len(ids))), ids, strict=True):
        assert (
            np.array_equal(got, pixels(i)) if extension == "npy" else got == encoded(i, extension)
        )
    expected = [i % 3 if labeled else -1 for i in ids]
    assert source.label(np.arange(len(ids))).tolist() == expected
    assert source.classes == (CLASSES if labeled else ())


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> str:
    if request.param == "parquet":
        pytest.importorskip("pyarrow", reason="no PyArrow; pip install 'fastfeed[parquet]'")
    return request.param


@pytest.mark.parametrize("remote", [False, True], ids=["local", "remote"])
def test_every_format_is_opened_again(format: str, remote: bool, tmp_path: Path) -> None:
    written(tmp_path / "out", format, {"": 7})
    place = uploaded(tmp_path / "out") if remote else str(tmp_path / "out")
    extension = "npy" if format == "raw" else "jpg"
    check(open_source(place, None, []), [0, 2, 3, 4, 5, 6], extension)
    if format == "raw":
        with pytest.raises(ConfigError, match="holds pixels, not encoded images"):
            open_input(place)
    else:
        given = open_input(place)
        check(given.source, [0, 2, 3, 4, 5, 6], extension)
        assert given.notes([1, 5]) == [{"text": "caption 2"}, {"text": "caption 6"}]


def test_jobs_without_labels(format: str, tmp_path: Path) -> None:
    written(tmp_path / "out", format, {"": 3}, labeled=False)
    check(
        open_source(str(tmp_path / "out"), None, []),
        [0, 2],
        "npy" if format == "raw" else "jpg",
        labeled=False,
    )


@pytest.mark.parametrize("remote", [False, True], ids=["local", "remote"])
def test_parts_are_opened_one_by_one(remote: bool, tmp_path: Path) -> None:
    written(tmp_path / "out", "webdataset", {"train/16x16": 4, "train/8x32": 3, "val/16x16": 2})
    place = uploaded(tmp_path / "out") if remote else str(tmp_path / "out")
    check(open_source(f"{place}/train", None, []), [0, 2, 3, 4, 5, 6], "jpg")
    check(open_source(f"{place}/val/", None, []), [7, 8], "jpg")
    check(open_source(f"{place}/train/8x32", None, []), [4, 5, 6], "jpg")
    with pytest.raises(
        ConfigError, match=r"out holds train and val: name one of them, .*/out/train"
    ):
        open_source(place, None, [])


def test_a_job_that_is_not_complete(tmp_path: Path) -> None:
    written(tmp_path / "out", "webdataset", {"": 7}, less=1)
    with pytest.warns(
        UserWarning, match="1 of 4 shards are not there yet: the job is not complete"
    ):
        source = open_source(str(tmp_path / "out"), None, [])
    check(source, [0, 2, 3, 4, 5], "jpg")
    written(tmp_path / "none", "webdataset", {"": 7}, less=4)
    with (
        pytest.warns(UserWarning, match="4 of 4 shards"),
        pytest.raises(SourceError, match="none of the 4 shards of this job is there yet"),
    ):
        open_source(str(tmp_path / "none"), None, [])


def test_damaged_plans(tmp_path: Path) -> None:
    written(tmp_path / "out", "webdataset", {"": 3})
    (tmp_path / "out" / "__job/records/shard-000000.json").write_text("{")
    with pytest.raises(SourceError, match="a shard's record is damaged"):
        open_source(str(tmp_path / "out"), None, [])
    (tmp_path / "out" / "__job" / "plan.json").write_text("{")
    with pytest.raises(SourceError, match=r"the plan in .*/out is damaged"):
        open_source(str(tmp_path / "out"), None, [])


@pytest.mark.parametrize(
    ("detail", "ours"), [("permission denied: x", True), ("503: slow down", False)]
)
def test_places_that_say_nothing_of_a_plan(
    monkeypatch: pytest.MonkeyPatch, detail: str, ours: bool
) -> None:
    storage = Storage()
    monkeypatch.setattr(storage, "read", lambda spans: [Unread("io_error", detail) for _ in spans])
    if ours:
        assert open_previous_job("s3://bucket/photos", storage) is None
    else:
        with pytest.raises(
            SourceError, match=r"cannot read s3://bucket/photos/__job/plan.json: 503: slow down"
        ):
            open_previous_job("s3://bucket/photos", storage)


def test_folders_around_a_job_are_not_the_job(tmp_path: Path) -> None:
    written(tmp_path / "out", "webdataset", {"": 3})
    folder(tmp_path / "out" / "extra", {"a": 2})
    with pytest.raises(SourceError, match="was written by a job, but extra is not part of it"):
        open_source(str(tmp_path / "out" / "extra"), None, [])
    assert len(open_source(str(folder(tmp_path / "p", {"a": 2})), "", [])) == 2


def test_kinds_of_local_folders(tmp_path: Path) -> None:
    assert detect_kind(str(folder(tmp_path / "photos", {"a": 1}))) == "folder"
    assert detect_kind(str(shard_folder(tmp_path / "s", (2,)))) == "tar"
    assert detect_kind(str(record_folder(tmp_path / "r", (2,)))) == "tfrecord"
    assert detect_kind(str(mds_folder(tmp_path / "m", (2,)))) == "mds"
    assert detect_kind(str(raw_folder(tmp_path / "n", (2,)))) == "raw"
    (tmp_path / "m" / "index.json").unlink()
    assert detect_kind(str(tmp_path / "m")) == "mds"
    (tmp_path / "s" / "cover.jpg").write_bytes(jpeg(0))
    assert detect_kind(str(tmp_path / "s")) == "folder"
    (tmp_path / "n" / "deeper").mkdir()
    assert detect_kind(str(tmp_path / "n")) == "folder"
    assert detect_kind(str(tmp_path)) == "folder"
    assert detect_kind(str(folder(tmp_path / "star.tar", {"a": 1}) / "a")) == "folder"
    (tmp_path / "train.tfrecord").mkdir()
    (tmp_path / "train.tfrecord" / "part-00000-of-00001").write_bytes(b"")
    assert detect_kind(str(tmp_path / "train.tfrecord")) == "tfrecord"
    (tmp_path / "photos" / "index.json").write_text("[1]")
    assert detect_kind(str(tmp_path / "photos")) == "folder"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("s3://b/train/index.json", "mds"), ("s-{0..3}.mds", "mds"), ("s3://b/*.npy", "raw")],
)
def test_kinds_by_name(name: str, kind: str) -> None:
    assert detect_kind(name) == kind


def test_commands_open_mds_and_pixels(tmp_path: Path) -> None:
    assert len(open_source(str(mds_folder(tmp_path / "m", (2, 1))), None, [])) == 3
    assert open_source(str(tmp_path / "m"), "label", []).label(np.arange(3)).tolist() == [0, 1, 2]
    assert len(open_source(str(raw_folder(tmp_path / "n", (2,))), None, [])) == 2
