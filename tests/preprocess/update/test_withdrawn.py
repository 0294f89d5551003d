"""Images that were removed are seen nowhere in the job's folder, are counted nowhere, and stay out."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import folder, jpeg
from helpers.preprocess.outcomes import tree
from helpers.small_jobs import IN_TURN, InlineEngine, finished_job, recipe
from test_update import change, jpeg_of, samples

from fastfeed.errors import ConfigError
from fastfeed.preprocess import Report, Selection, merge, open_input, run, update
from fastfeed.preprocess.inputs.inputs import Input
from fastfeed.preprocess.inputs.plan_ids import PlanIds
from fastfeed.preprocess.planning import check_source, edited, planning
from fastfeed.preprocess.planning.edited import stored_sums
from fastfeed.preprocess.reports.preview import preview
from fastfeed.preprocess.shard.stored import stored_shard
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.local import LocalTarget
from fastfeed.preprocess.targets.target import open_target

# say which images were removed, or are in the source
NAMES = ("plan.json", "removed.jsonl", "listing.ffarrays")
SPLIT = {"train": 0.5, "holdout": 0.3, "test": 0.2}


def compared(root: Path) -> Report:
    """A job without near copies, of which there were three, with its previews."""
    source = folder(root / "source", {"cats": 6, "dogs": 6}, (120, 160))
    for name in ("cats/0000", "cats/0001", "dogs/0000"):
        near = jpeg_of(source / f"{name}.jpg", quality=70)
        (source / f"{name}_near.jpg").write_bytes(near)
    made = replace(recipe(), choice=Selection(dedupe="near"))
    report = run(str(source), root / "shards", made, engine=InlineEngine())
    assert report.left_out == {"duplicate_near": 3}
    preview(open_job(open_target(root / "shards")))
    return report


def pictures(page: str) -> list[str]:
    return re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)


def test_no_file_of_the_job_shows_an_image_that_was_removed(tmp_path: Path) -> None:
    compared(tmp_path)
    files = tmp_path / "shards/__job"
    before = pictures((files / "duplicates.html").read_text())
    change(tmp_path, remove=["cats/0000.jpg", "cats/0001_near.jpg"])
    assert not list(files.glob("preview/*"))
    after = pictures((files / "duplicates.html").read_text())
    assert len(before) == 6 and len(after) == 2
    hidden = [base64.b64decode(text) for text in {*before} - {*after}]
    names = [b"0000.jpg", b"0001_near.jpg"]
    for path in (path for path in tmp_path.joinpath("shards").rglob("*") if path.is_file()):
        content = path.read_bytes()
        assert not any(picture in content for picture in hidden), path
        if path.name not in NAMES:
            assert not any(b"cats/" + name in content for name in names), path
    (line,) = (files / "duplicates.jsonl").read_text().splitlines()
    assert "dogs/0000.jpg" in line and "dogs/0000_near.jpg" in line
    preview(open_job(open_target(tmp_path / "shards")))
    change(tmp_path, relabel={"cats/0001.jpg": "dogs"})
    assert not list(files.glob("preview/*")), "drawn by a version that left it there, maybe"


@pytest.mark.parametrize("name", ["duplicates.html", "duplicates.jsonl"])
@pytest.mark.parametrize("has_ids", [True, False])
def test_an_update_that_was_killed_leaves_no_pair_when_it_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, has_ids: bool
) -> None:
    compared(tmp_path)
    files = tmp_path / "shards/__job"
    listed = files / "duplicates.jsonl"
    if not has_ids:  # as earlier versions wrote it
        listed.write_text(re.sub(r', "ids": \[.*?\]', "", listed.read_text()))
    with monkeypatch.context() as patch:
        for method in ("write", "remove"):
            original = getattr(LocalTarget, method)

            def killed(self: Any, at: str, *rest: Any, original: Any = original) -> None:
                if at.endswith(name):
                    raise KeyboardInterrupt
                original(self, at, *rest)

            patch.setattr(LocalTarget, method, killed)
        with pytest.raises(KeyboardInterrupt):
            change(tmp_path, remove=["cats/0000.jpg"])
    change(tmp_path, remove=["cats/0000.jpg"])
    for path in (files / "duplicates.html", listed):
        assert path.exists() == has_ids
        assert not has_ids or "cats/0000.jpg" not in path.read_text()


def test_a_list_of_an_earlier_version_does_not_say_whose_pair_it_is(tmp_path: Path) -> None:
    compared(tmp_path)
    listed = tmp_path / "shards/__job/duplicates.jsonl"
    lines = [json.loads(line) for line in listed.read_text().splitlines()]
    earlier = [{name: line[name] for name in line if name != "ids"} for line in lines]
    listed.write_text("".join(f"{json.dumps(line)}\n" for line in earlier))
    change(tmp_path, remove=["cats/0000.jpg"])
    assert not listed.exists() and not listed.with_suffix(".html").exists()


def test_a_copy_that_stays_out_is_in_no_pair(tmp_path: Path) -> None:
    compared(tmp_path)
    source = tmp_path / "source"
    change(tmp_path, remove=["dogs/0003.jpg"])
    shutil.copy(source / "dogs/0003.jpg", source / "dogs/copy.jpg")
    (source / "dogs/copy_near.jpg").write_bytes(jpeg_of(source / "dogs/0003.jpg", quality=92))
    report = change(tmp_path, add=True)
    assert report.left_out == {"duplicate_near": 4}, "the exact one, too"
    for name in ("duplicates.jsonl", "duplicates.html"):
        text = (tmp_path / "shards/__job" / name).read_text()
        assert "dogs/copy" not in text and "cats/0000_near.jpg" in text


@pytest.mark.parametrize("format", ["webdataset", "parquet"])
def test_shares_are_those_of_the_images_that_are_left(tmp_path: Path, format: str) -> None:
    source = folder(tmp_path / "source", {"cats": 20, "dogs": 20}, (16, 20))
    made = replace(recipe(format), choice=Selection(split=SPLIT, split_by="names"))
    run(str(source), tmp_path / "shards", made, engine=InlineEngine())

    def check() -> None:
        job = open_job(open_target(tmp_path / "shards", writes=False))
        labels = samples(tmp_path)
        sides: Counter[str] = Counter()
        by_label: Counter[tuple[int, str]] = Counter()
        for record in job.records.values():
            side = record.shard.partition("/")[0]
            sums = stored_sums(job, set(record.ids))
            assert {len(sum) for sum in sums.values()} <= {64}
            sides[side] += len(record.ids)
            uris = stored_shard(job.target, job.plan, record).metas(set(record.ids)).values()
            by_label.update((labels[meta["uri"]], side) for meta in uris)
        shares = job.plan.shares
        assert shares["wanted"] == SPLIT and shares["images"] == dict(sides)
        rows = [[k, *(by_label[k, name] for name in shares["images"])] for k in (0, 1, 2)]
        assert shares["by_label"] == [row for row in rows if sum(row[1:])]

    check()
    relabel = {"cats/0009.jpg": "wolf", "cats/0010.jpg": "dogs"}
    change(tmp_path, remove=[f"cats/{k:04}.jpg" for k in range(9)], relabel=relabel)
    check()
    report = change(tmp_path, remove=["cats/0009.jpg"])
    check()
    assert report.selection[1].partition(" of ")[2].startswith("30 images")
    (source / "cats/new.jpg").write_bytes(jpeg(90, (16, 20)))
    shutil.copy(source / "cats/0000.jpg", source / "cats/again.jpg")
    assert change(tmp_path, add=True).left_out == {"removed": 1}
    check()


@pytest.mark.parametrize("format", IN_TURN)
def test_the_whole_sum_of_a_removed_image_is_kept(tmp_path: Path, format: str) -> None:
    job = finished_job(tmp_path, format)
    wanted = {
        entry.meta["sha256"]
        for record in job.records.values()
        for entry in stored_shard(job.target, job.plan, record).entries()
        if entry.meta["uri"] == "cats/0001.jpg"
    }
    change(tmp_path, remove=["cats/0001.jpg"])
    (line,) = (tmp_path / "shards/__job/removed.jsonl").read_text().splitlines()
    assert {json.loads(line)["sha256"]} == wanted


def test_images_without_known_sizes_are_compared_by_the_whole_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        check_source, "_sizes", lambda _, first, last: np.zeros(last - first, np.uint32)
    )
    job = finished_job(tmp_path)
    part = job.records[0].parts_of_sums[0]
    change(tmp_path, remove=["cats/0000.jpg"])
    source = tmp_path / "source/cats"
    (source / "new.jpg").write_bytes(jpeg(99, (40, 56)))
    shutil.copy(source / "0000.jpg", source / "copy.jpg")
    monkeypatch.setattr(edited, "part_of_sum", lambda _: part)  # as if 32 bits were equal
    report = change(tmp_path, add=True)
    assert report.left_out == {"removed": 1} and "cats/new.jpg" in samples(tmp_path)


def test_a_merge_compares_the_whole_sum_without_known_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        check_source, "_sizes", lambda _, first, last: np.zeros(last - first, np.uint32)
    )
    for name, first in (("a", 0), ("b", 2)):
        folder(tmp_path / name / "source", {"cats": 4}, (32, 40))
        for k in range(first):
            (tmp_path / name / f"source/cats/000{k}.jpg").unlink()
        run(str(tmp_path / name / "source"), tmp_path / name / "shards", recipe())
    update(str(tmp_path / "a/source"), tmp_path / "a/shards", remove=["cats/0002.jpg"])
    update(str(tmp_path / "a/source"), tmp_path / "a/shards", remove=["cats/0003.jpg"])
    with pytest.raises(ConfigError, match="2 images have the content of one that was removed"):
        merge([tmp_path / "a/shards", tmp_path / "b/shards"], tmp_path / "c")


def test_a_gone_image_has_no_name_no_size_and_no_time(tmp_path: Path) -> None:
    source = open_input(str(folder(tmp_path, {"cats": 3}, (16, 20)))).source
    ids = PlanIds(source, np.array([2, -1, 0]), source.classes)
    assert [Path(ids.uri(i)).name for i in range(3)] == ["0002.jpg", "", "0000.jpg"]
    sizes = ids.sizes(np.arange(3))
    assert sizes[1] == 0 and sizes[0] > 0
    times = planning._times_of_change(Input(ids, "photos"))
    assert times[1] == 0 and times[0] > 0


def test_a_dry_run_does_not_know_how_many_will_be_added(tmp_path: Path) -> None:
    finished_job(tmp_path)
    (tmp_path / "source/cats/new.jpg").write_bytes(jpeg(99, (40, 56)))
    shutil.copy(tmp_path / "source/cats/0001.jpg", tmp_path / "source/cats/copy.jpg")
    before = tree(tmp_path / "shards")
    changes: dict[str, Any] = {"add": True, "dry_run": True}
    assert (
        change(tmp_path, **changes).selection[0].startswith("up to 2 images added: 0 of 4 shards")
    )
    changes["remove"] = ["cats/0001.jpg"]
    report = change(tmp_path, **changes)
    assert report.selection[0].startswith("1 image removed, up to 2 added: 1 of 4 shards would be")
    assert tree(tmp_path / "shards") == before
