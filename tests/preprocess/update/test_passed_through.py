"""Updates pass the bytes of samples through that they do not change."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.photos import jpeg
from helpers.preprocess.outcomes import tree
from helpers.products import in_turn
from helpers.small_jobs import InlineEngine, finished_job, recipe
from helpers.small_jobs import source as make_source

from fastfeed.preprocess import (
    Encoding,
    Metadata,
    Packing,
    Recipe,
    Report,
    Scaling,
    open_input,
    run,
    update,
)
from fastfeed.preprocess.engines import local
from fastfeed.preprocess.job import job as job_module
from fastfeed.preprocess.model.record import Counts, Entry
from fastfeed.preprocess.reports.verify import verify
from fastfeed.preprocess.shard import stored
from fastfeed.preprocess.shard.stored import StoredShard
from fastfeed.preprocess.targets import ranges
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.local import LocalTarget
from fastfeed.preprocess.targets.target import open_target
from fastfeed.preprocess.workers.runner import InProcessRunner
from fastfeed.preprocess.writers import writer_for

FORMATS = ("webdataset", "tfrecord", "mds", "raw")
ARRAYS = """
import numpy as np

def arrays(samples):
    return [{"mean": s.pixels.mean((0, 1)).astype(np.float32), "part": 3} for s in samples]
"""


def change(root: Path, **changes: Any) -> Report:
    return update(str(root / "source"), root / "shards", engine=InlineEngine(), **changes)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of samples that writers serialize."""
    names: list[str] = []
    for format in FORMATS:
        writer = writer_for(Packing(format))
        add = writer.add

        def noted(self: Any, entry: Entry, add: Any = add) -> None:
            names.append(entry.meta["uri"])
            add(self, entry)

        monkeypatch.setattr(writer, "add", noted)
    return names


@pytest.mark.parametrize("format", FORMATS)
def test_only_new_labels_are_serialized(tmp_path: Path, format: str, written: list[str]) -> None:
    finished_job(tmp_path, format)
    written.clear()
    change(tmp_path, remove=["cats/0003.jpg"])
    assert written == []
    change(tmp_path, relabel={"cats/0004.jpg": "dogs"})
    assert written == ["cats/0004.jpg"]
    change(tmp_path, remove=["cats/0005.jpg"])
    assert written == ["cats/0004.jpg"], "it has its label already"
    assert not verify(open_job(open_target(tmp_path / "shards"))).problems


@pytest.mark.parametrize(("format", "run_bytes"), in_turn(FORMATS, [1, 2500]))
def test_runs_of_any_length_make_what_the_source_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, run_bytes: int
) -> None:
    monkeypatch.setattr(stored, "_RUN", run_bytes)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "array_functions", raising=False)
    (tmp_path / "array_functions.py").write_text(ARRAYS)
    source = make_source(tmp_path / "source")
    shards = tmp_path / "shards"
    made = Recipe(
        Scaling((16, 24), "cover", enlarge=True),
        Encoding("raw" if format == "raw" else "png"),
        packing=Packing(format, 9),
        metadata=Metadata(extras="array_functions:arrays"),
    )
    run(str(source), shards, made, engine=InlineEngine())
    change(
        tmp_path,
        remove=["cats/0000.jpg", "dogs/0004.jpg"],
        relabel={"cats/0003.jpg": "dogs", "dogs/0008.jpg": "", "dogs/0005.jpg": "wolf"},
    )
    copied = tree(shards)
    for record in (shards / "__job/records").iterdir():
        record.unlink()
    run(str(source), shards, made, engine=InlineEngine())
    assert tree(shards) == copied


@pytest.mark.parametrize("format", FORMATS)
def test_a_shard_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    job = finished_job(tmp_path, format)
    monkeypatch.setattr(stored, "_BLOCK", 1000)
    monkeypatch.setattr(stored, "_RUN", 1000)
    main = job.records[1].files[0]
    sizes: list[int] = []
    reader = ranges.reader

    def counted(target: Any, name: str) -> Any:
        read = reader(target, name)

        def noted(start: int, count: int) -> bytes:
            data = read(start, count)
            sizes.append(len(data) * (name == main.name))
            return data

        return noted

    monkeypatch.setattr(ranges, "reader", counted)
    change(tmp_path, remove=["cats/0004.jpg"])
    assert (
        main.bytes <= sum(sizes) < 1.8 * main.bytes
    )  # removed and last samples, and headers, twice


@pytest.mark.parametrize("format", FORMATS)
def test_damage_is_found_on_the_way(tmp_path: Path, format: str) -> None:
    job = finished_job(tmp_path, format)
    main = job.records[1].files[0]
    path = tmp_path / "shards" / main.name
    content = bytearray(path.read_bytes())
    content[job.records[1].offsets[2] + 700] ^= 1  # in the image
    path.write_bytes(content)
    change(tmp_path, remove=["cats/0004.jpg"])
    copied = tree(tmp_path / "shards")
    for record in (tmp_path / "shards/__job/records").iterdir():
        record.unlink()
    run(str(tmp_path / "source"), tmp_path / "shards", recipe(format), engine=InlineEngine())
    assert tree(tmp_path / "shards") == copied


def test_counts_of_a_job_of_a_job_are_those_of_its_samples(tmp_path: Path) -> None:
    run(
        str(make_source(tmp_path / "photos", 9, ())),
        tmp_path / "source",
        recipe(),
        engine=InlineEngine(),
    )
    again = Recipe(Scaling(16), packing=Packing("webdataset", 6))
    run(str(tmp_path / "source"), tmp_path / "shards", again, engine=InlineEngine())
    third = open_input(str(tmp_path / "source")).source.uri(2)
    change(tmp_path, remove=[third.removeprefix(f"{tmp_path}/")])
    job = open_job(open_target(tmp_path / "shards", writes=False))
    record = job.records[0]
    shard = StoredShard(job.target, record, "webdataset", frozenset())
    assert record.tally == Counts.sum(Counts.of(entry) for entry in shard.entries())
    assert record.tally.samples == 5


def test_a_dry_run_of_repairs_counts_shards_as_the_run(tmp_path: Path) -> None:
    finished_job(tmp_path)
    (tmp_path / "source/cats/0000_1.jpg").write_bytes(jpeg(77, (40, 56)))
    changes: dict[str, Any] = {"repair": True, "remove": ["dogs/0008.jpg"]}
    planned = change(tmp_path, dry_run=True, **changes).selection[0]
    shards = "2 of 4 shards"
    assert planned.startswith(f"1 image removed, up to 1 repaired: {shards} would be written again")
    done = f"1 image removed, 1 repaired: {shards} are written again"
    assert change(tmp_path, **changes).selection[0] == done


def test_records_of_shards_that_stay_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = finished_job(tmp_path)
    names: list[str] = []
    read = LocalTarget.read

    def noted(target: LocalTarget, name: str) -> bytes | None:
        names.append(name)
        return read(target, name)

    monkeypatch.setattr(LocalTarget, "read", noted)
    report = change(tmp_path, remove=["cats/0004.jpg"])
    assert [names.count(job.records[k].name) for k in (0, 2, 3)] == [1, 1, 1]
    assert report.tally.samples == 17
    monkeypatch.undo()
    again = open_job(open_target(tmp_path / "shards"))
    assert [len(again.records[k].ids) for k in range(4)] == [3, 5, 6, 3]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An item for each process that the local engine would start, which is a thread instead."""
    started: list[int] = []

    def runner(*arguments: Any) -> InProcessRunner:
        started.append(1)
        return InProcessRunner(*arguments)

    monkeypatch.setattr(local, "runner_for", runner)
    return started


@pytest.mark.parametrize("few", [5, 6])
def test_few_copies_need_no_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[int], few: int
) -> None:
    finished_job(tmp_path)
    monkeypatch.setattr(job_module, "_FEW", few)
    report = update(
        str(tmp_path / "source"), tmp_path / "shards", remove=["cats/0004.jpg"], workers=2
    )
    assert report.tally.samples == 17
    assert len(started) == (few < 6), "the shard has 6 samples"
    assert not verify(open_job(open_target(tmp_path / "shards"))).problems


def test_a_damaged_shard_is_built_in_processes(tmp_path: Path, started: list[int]) -> None:
    job = finished_job(tmp_path)
    path = tmp_path / "shards" / job.records[1].files[0].name
    path.write_bytes(bytes(path.stat().st_size))
    report = update(str(tmp_path / "source"), tmp_path / "shards", remove=["cats/0004.jpg"])
    assert report.tally.samples == 17
    assert len(started) == 1


def test_only_counted_images_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished_job(tmp_path)
    sizes: list[int] = []
    image_info = stored.image_info

    def noted(image: bytes) -> Any:
        sizes.append(len(image))
        return image_info(image)

    monkeypatch.setattr(stored, "image_info", noted)
    change(tmp_path, relabel={"cats/0004.jpg": "dogs", "cats/0005.jpg": "dogs"})
    assert sizes == []
    report = change(tmp_path, remove=["cats/0004.jpg"])
    assert len(sizes) == 1
    assert report.tally.sizes == {"24x34": 17}
