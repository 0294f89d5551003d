"""Changes of a job: samples are removed and labeled otherwise by copies of their shards."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.photos import folder, jpeg
from helpers.preprocess.outcomes import tree
from helpers.small_jobs import IN_TURN, InlineEngine, finished_job, recipe
from helpers.small_jobs import source as make_source
from PIL import Image

from fastfeed.decode.base import DecodeFailure
from fastfeed.errors import ConfigError
from fastfeed.preprocess import Limits, Report, Selection, merge, open_input, run, update
from fastfeed.preprocess.model.plan import PLAN, JobPlan
from fastfeed.preprocess.planning.edited import read_labels, read_names
from fastfeed.preprocess.reports.statistics import statistics
from fastfeed.preprocess.reports.status import job_status
from fastfeed.preprocess.reports.verify import verify
from fastfeed.preprocess.shard.images import SampleImages
from fastfeed.preprocess.shard.stored import StoredShard
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.target import open_target

REMOVED = "__job/removed.jsonl"


def change(root: Path, **changes: Any) -> Report:
    return update(str(root / "source"), root / "shards", engine=InlineEngine(), **changes)


def jpeg_of(path: Path, quality: int) -> bytes:
    """The image, compressed again."""
    file = io.BytesIO()
    Image.open(path).save(file, "JPEG", quality=quality)
    return file.getvalue()


def samples(root: Path) -> dict[str, int]:
    """Labels by name of all samples of the job, from the metadata of its shards."""
    job = open_job(open_target(root / "shards", writes=False))
    assert not job.todo
    stored = [
        StoredShard(job.target, record, job.plan.recipe.packing.format, frozenset())
        for record in job.records.values()
    ]
    entries = [entry for shard in stored for entry in shard.entries()]
    assert all(entry.meta.get("label") == entry.label for entry in entries)
    return {entry.meta["uri"]: entry.label for entry in entries}


@pytest.mark.parametrize("format", IN_TURN)
def test_a_copy_without_a_difference_has_the_same_bytes(tmp_path: Path, format: str) -> None:
    finished_job(tmp_path, format)
    before = tree(tmp_path / "shards")
    names = {uri: ("cats", "dogs")[label] for uri, label in samples(tmp_path).items()}
    change(tmp_path, relabel=names)
    after = tree(tmp_path / "shards")
    records = {name for name in after if before.get(name) != after[name]}
    assert len(records) == 4 and all(name.startswith("__job/records/") for name in records)
    assert before.keys() == after.keys()


@pytest.mark.parametrize("format", IN_TURN)
def test_a_copy_is_what_the_source_would_make(tmp_path: Path, format: str) -> None:
    finished_job(tmp_path, format)
    before = tree(tmp_path / "shards")
    report = change(
        tmp_path,
        remove=["cats/0000.jpg", "cats/0000_1.jpg", str(tmp_path / "source/dogs/0008.jpg")],
        relabel={"dogs/0001.jpg": "cats", "dogs/0002.jpg": "wolves", "cats/0001.jpg": ""},
    )
    assert report.selection[0] == "3 images removed, 3 relabeled: 3 of 4 shards are written again"
    assert report.tally.samples == 16 and [bad.reason for bad in report.bad] == [
        "empty",
        "not_image",
    ]
    assert report.classes == ("cats", "dogs", "wolves")
    labels = samples(tmp_path)
    assert "cats/0000.jpg" not in labels and "dogs/0008.jpg" not in labels
    assert [labels[f"dogs/000{k}.jpg"] for k in range(4)] == [1, 0, 2, 1]
    assert labels["cats/0001.jpg"] is None
    copied = tree(tmp_path / "shards")
    name = "__job/records/shard-000001.json"
    assert copied[name] == before[name], "a shard without changed samples stays"
    for record in (tmp_path / "shards/__job/records").iterdir():
        record.unlink()
    run(str(tmp_path / "source"), tmp_path / "shards", recipe(format), engine=InlineEngine())
    assert tree(tmp_path / "shards") == copied
    assert not verify(open_job(open_target(tmp_path / "shards"))).problems


def test_a_shard_may_lose_all_samples(tmp_path: Path) -> None:
    finished_job(tmp_path)
    change(tmp_path, remove=list(samples(tmp_path))[:3])
    assert len(list((tmp_path / "shards").glob("*.idx"))) == 3
    change(tmp_path, remove=list(samples(tmp_path)))
    assert samples(tmp_path) == {}
    assert not list((tmp_path / "shards").glob("*.idx"))
    assert not verify(open_job(open_target(tmp_path / "shards"))).problems


def test_images_are_copied_and_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished_job(tmp_path)
    for path in (tmp_path / "source").rglob("*.jpg"):
        path.unlink()
    monkeypatch.setattr(SampleImages, "make", None)
    assert change(tmp_path, remove=["cats/0003.jpg"]).tally.samples == 17


@pytest.mark.parametrize("damage", ["gone", "cut off", "other bytes"])
def test_a_damaged_shard_is_built_from_the_source(tmp_path: Path, damage: str) -> None:
    finished_job(tmp_path / "whole")
    change(tmp_path / "whole", remove=["cats/0000.jpg"])
    finished_job(tmp_path)
    path = tmp_path / "shards/shard-000000.tar"
    content = path.read_bytes()
    path.unlink()
    if damage == "cut off":
        path.write_bytes(content[:900])
    elif damage == "other bytes":
        path.write_bytes(content.replace(b"JFIF", b"JFIX", 3))
    change(tmp_path, remove=["cats/0000.jpg"])
    for name, digest in tree(tmp_path / "shards").items():
        if name.startswith("shard-"):
            assert digest == tree(tmp_path / "whole/shards")[name]


def test_the_removed_list_has_names_sums_and_the_day(tmp_path: Path) -> None:
    finished_job(tmp_path)
    change(tmp_path, remove=["cats/0001.jpg", "cats/0000_0.jpg"])
    change(tmp_path, remove=["cats/0000.jpg", "cats/0001.jpg"])
    lines = [json.loads(line) for line in (tmp_path / "shards" / REMOVED).read_text().splitlines()]
    assert [line["uri"] for line in lines] == ["cats/0000.jpg", "cats/0000_0.jpg", "cats/0001.jpg"]
    assert [len(line["sha256"]) for line in lines] == [64, 0, 64]
    assert all(len(line["asked"]) == 10 for line in lines)


def test_a_removed_image_does_not_come_back(tmp_path: Path) -> None:
    finished_job(tmp_path)
    removed = tmp_path / "source/cats/0002.jpg"
    change(tmp_path, remove=["cats/0002.jpg"])
    content = removed.read_bytes()
    removed.unlink()
    (tmp_path / "source/cats/copy.jpg").write_bytes(content)
    (tmp_path / "source/cats/new.jpg").write_bytes(jpeg(99, (40, 56)))
    report = change(tmp_path, add=True)
    assert report.selection[0] == "1 image added, 1 left out: 0 of 4 shards are written again"
    assert report.left_out == {"removed": 1} and report.tally.samples == 18
    removed.write_bytes(jpeg(98, (40, 56)))
    report = change(tmp_path, add=True, repair=True)
    assert report.selection[0] == "nothing to change"
    made = recipe()
    report = run(str(tmp_path / "source"), tmp_path / "shards", made, engine=InlineEngine())
    assert report.complete and not report.notes
    retried = run(
        str(tmp_path / "source"),
        tmp_path / "shards",
        made,
        engine=InlineEngine(),
        retry=["truncated", "empty", "not_image"],
    )
    assert retried.tally.samples == 18 and "cats/0002.jpg" not in samples(tmp_path)


def test_what_a_killed_update_did_not_remove_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished_job(tmp_path)
    folder(tmp_path / "more", {"cats": 1}, (40, 56))
    run(str(tmp_path / "more"), tmp_path / "b", recipe(), engine=InlineEngine())
    with monkeypatch.context() as kill, pytest.raises(ZeroDivisionError):
        kill.setattr(JobPlan, "files", lambda _: 1 // 0)
        change(tmp_path, remove=["cats/0000.jpg"])
    assert (tmp_path / "shards" / REMOVED).exists()
    (tmp_path / "more/cats/0000.jpg").rename(tmp_path / "more/cats/other.jpg")
    run(str(tmp_path / "more"), tmp_path / "c", recipe(), engine=InlineEngine())
    assert merge([tmp_path / "shards", tmp_path / "c"], tmp_path / "d").tally.samples == 19


def test_a_near_copy_of_a_removed_image_is_added(tmp_path: Path) -> None:
    source = folder(tmp_path / "source", {"cats": 6, "dogs": 6}, (120, 160))
    made = replace(recipe(), choice=Selection(dedupe="near", split={"a": 0.5, "b": 0.5}))
    run(str(source), tmp_path / "shards", made, engine=InlineEngine())
    change(tmp_path, remove=["cats/0000.jpg"], relabel={"cats/0001.jpg": "dogs"})
    for k in range(2):
        near = jpeg_of(source / f"cats/000{k}.jpg", quality=70)
        (source / f"cats/near{k}.jpg").write_bytes(near)
    report = change(tmp_path, add=True)
    assert report.selection[0] == "1 image added, 1 left out: 0 of 3 shards are written again"
    assert "cats/near0.jpg" in samples(tmp_path)
    shares = open_job(open_target(tmp_path / "shards", writes=False)).plan.shares
    assert sum(shares["images"].values()) == report.tally.samples == 12
    assert [sum(counts) for _, *counts in shares["by_label"]] == [5, 7]
    near = jpeg_of(source / "dogs/0000.jpg", quality=70)
    (source / "dogs/near.jpg").write_bytes(near)
    assert change(tmp_path, add=True).left_out == {"duplicate_near": 2}


def test_a_repaired_image_is_no_duplicate_of_its_bad_self(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_source(tmp_path / "source", reasons=())
    made = replace(recipe(), choice=Selection(dedupe="exact"))
    make = SampleImages.make

    def slow(task: SampleImages, i: int, *arguments: Any) -> Any:
        return DecodeFailure("timeout", "") if i == 3 else make(task, i, *arguments)

    with monkeypatch.context() as storage:
        storage.setattr(SampleImages, "make", slow)
        run(str(tmp_path / "source"), tmp_path / "shards", made, engine=InlineEngine())
    report = change(tmp_path, repair=True)
    assert report.selection[0] == "1 image repaired: 1 of 3 shards is written again"
    assert len(samples(tmp_path)) == 18 and not report.bad and not report.left_out


def test_labels_of_an_update_are_not_asked_for_by_where(tmp_path: Path) -> None:
    make_source(tmp_path / "source", reasons=())
    made = replace(recipe(), limits=Limits(where="class_name == 'cats'"))
    source = str(tmp_path / "source")
    run(source, tmp_path / "shards", made, engine=InlineEngine())
    change(tmp_path, relabel={"cats/0003.jpg": "dogs", "dogs/0003.jpg": "cats"})
    copied = tree(tmp_path / "shards")
    for record in (tmp_path / "shards/__job/records").iterdir():
        record.unlink()
    run(source, tmp_path / "shards", made, engine=InlineEngine())
    assert tree(tmp_path / "shards") == copied
    assert samples(tmp_path)["cats/0003.jpg"] == 1


def test_names_in_files_end_at_the_end_of_a_line_alone(tmp_path: Path) -> None:
    names = ["cats/a\u2028b.jpg", "cats/a\x85b.jpg"]
    listed = tmp_path / "names.txt"
    listed.write_bytes("\r\n".join([*names, "", ""]).encode())
    assert read_names(listed) == names
    table = tmp_path / "labels.csv"
    table.write_text("uri,label\n" + "".join(f"{name},dogs\n" for name in names))
    assert read_labels(table) == dict.fromkeys(names, "dogs")
    table.write_text(f"uri,label\n{'a' * 200_000},dogs\n")
    limit = csv.field_size_limit(1000)  # of the process: other tests may have changed it
    try:
        with pytest.raises(ConfigError, match=r"labels\.csv is not a CSV file: field larger than"):
            read_labels(table)
    finally:
        csv.field_size_limit(limit)


@pytest.mark.parametrize("format", IN_TURN)
def test_repaired_images_enter_new_shards(tmp_path: Path, format: str) -> None:
    finished_job(tmp_path, format)
    before = tree(tmp_path / "shards")
    (tmp_path / "source/cats/0000_1.jpg").write_bytes(jpeg(77, (40, 56)))
    change(tmp_path, relabel={"cats/0000_1.jpg": "dogs"})
    report = change(tmp_path, repair=True)
    assert report.selection[0] == "1 image repaired: 1 of 4 shards is written again"
    job = open_job(open_target(tmp_path / "shards", writes=False))
    assert job_status(job).planned == statistics(job).planned == 21, "it counts once"
    assert report.shards == 5 and report.tally.samples == 19 and len(report.bad) == 2
    assert samples(tmp_path)["cats/0000_1.jpg"] == 1
    after = tree(tmp_path / "shards")
    shards = {name for name in before if name.startswith("shard-")}
    assert all(after[name] == before[name] for name in shards), "only the record has changed"
    assert change(tmp_path, repair=True).selection[0] == "nothing to change"
    assert not verify(open_job(open_target(tmp_path / "shards"))).problems
    assert change(tmp_path, remove=["cats/0000_1.jpg"]).tally.samples == 18


def test_images_that_vanish_are_dropped_when_asked(tmp_path: Path) -> None:
    finished_job(tmp_path)
    for name in ("cats/0004.jpg", "cats/0000_2.jpg", "cats/0000.jpg"):
        (tmp_path / "source" / name).unlink()
    (tmp_path / "source/dogs/new.jpg").write_bytes(jpeg(99, (40, 56)))
    with pytest.raises(ConfigError, match=r"3 of the job's 21 images are gone"):
        change(tmp_path, add=True)
    plan = (tmp_path / "shards" / PLAN).read_bytes()
    report = change(tmp_path, add=True, drop_missing=True, dry_run=True)
    assert (tmp_path / "shards" / PLAN).read_bytes() == plan
    assert report.selection[0].startswith("3 images removed, up to 1 added: 2 of 4 shards would be")
    report = change(tmp_path, add=True, drop_missing=True)
    assert report.tally.samples == 17 and report.complete
    lines = [json.loads(line) for line in (tmp_path / "shards" / REMOVED).read_text().splitlines()]
    assert [Path(line["uri"]).name for line in lines] == ["0000.jpg", "0000_2.jpg", "0004.jpg"]
    (tmp_path / "source/dogs/more.jpg").write_bytes(jpeg(97, (40, 56)))
    assert change(tmp_path, add=True).tally.samples == 18
    assert [bad.reason for bad in open_job(open_target(tmp_path / "shards")).bad] == [
        "empty",
        "truncated",
    ]


def test_a_class_keeps_its_number_and_new_ones_follow(tmp_path: Path) -> None:
    finished_job(tmp_path)
    dogs = [uri for uri in samples(tmp_path) if uri.startswith("dogs")]
    report = change(tmp_path, relabel=dict.fromkeys(dogs, "wolf"))
    assert report.classes == ("cats", "dogs", "wolf")
    (tmp_path / "source/ant").mkdir()
    (tmp_path / "source/ant/0.jpg").write_bytes(jpeg(99, (40, 56)))
    report = change(tmp_path, add=True)
    assert report.classes == ("cats", "dogs", "wolf", "ant")
    assert samples(tmp_path)["ant/0.jpg"] == 3


def test_what_is_wrong_changes_nothing(tmp_path: Path) -> None:
    finished_job(tmp_path)
    before = tree(tmp_path / "shards"), (tmp_path / "shards" / PLAN).read_bytes()
    names = [f"cats/none{k}.jpg" for k in range(12)]
    with pytest.raises(ConfigError, match=r"12 names are not in the job in .*\n  cats/none0.jpg\n"):
        change(tmp_path, remove=[*names, "cats/0000.jpg"])
    with pytest.raises(ConfigError, match=r"1 name is removed, and have new labels"):
        change(tmp_path, remove=["cats/0000.jpg"], relabel={"cats/0000.jpg": "dogs"})
    with pytest.raises(ConfigError, match=r"none\.txt cannot be read: No such file"):
        change(tmp_path, remove=tmp_path / "none.txt")
    table = tmp_path / "labels.csv"
    table.write_text("uri,label\ncats/0000.jpg,dogs\ncats/0000.jpg,cats\n")
    with pytest.raises(ConfigError, match=r"labels\.csv, line 3: .* has two labels"):
        change(tmp_path, relabel=table)
    table.write_text("cats/0000.jpg,dogs\n")
    with pytest.raises(ConfigError, match=r"must begin with a header of two columns, uri,label"):
        change(tmp_path, relabel=table)
    in_full = f"{tmp_path}/source/cats/0000.jpg"
    table.write_text(f"uri,label\ncats/0000.jpg,dogs\ncats/0001.jpg,dogs\n{in_full},cats\n")
    with pytest.raises(ConfigError) as refused:
        change(tmp_path, relabel=table, ignore_unknown=True)
    assert str(refused.value) == (
        f"2 names are of images with two labels:\n  cats/0000.jpg\n  {in_full}\n"
        "leave one label for each image; nothing was changed"
    )
    assert before == (tree(tmp_path / "shards"), (tmp_path / "shards" / PLAN).read_bytes())
    report = change(tmp_path, remove=[*names, "cats/0000.jpg"], ignore_unknown=True)
    assert report.tally.samples == 17
    with pytest.raises(ConfigError, match=r"holds no job"):
        update(str(tmp_path / "source"), tmp_path / "source")


def test_two_updates_at_once_are_refused(tmp_path: Path) -> None:
    finished_job(tmp_path)

    class Second(InlineEngine):
        def run(self, task, pieces):
            with pytest.raises(ConfigError, match=r"is being updated by another process; wait"):
                change(tmp_path, remove=["cats/0001.jpg"])
            return super().run(task, pieces)

    update(str(tmp_path / "source"), tmp_path / "shards", remove=["cats/0000.jpg"], engine=Second())
    assert len(samples(tmp_path)) == 17
    assert not list((tmp_path / "shards/__job").glob("locks/*"))


def test_labels_that_are_numbers(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    source = open_input(str(make_source(tmp_path / "source")), label="")
    run(source, shards, recipe(), engine=InlineEngine())
    with pytest.raises(ConfigError, match=r"must be class numbers from 0 to 16,777,215"):
        update(source, shards, relabel={"cats/0000.jpg": "dogs"}, engine=InlineEngine())
    update(source, shards, relabel={"cats/0000.jpg": "7"}, engine=InlineEngine())
    assert samples(tmp_path)["cats/0000.jpg"] == 7


@pytest.mark.parametrize("is_absolute", [False, True])
@pytest.mark.parametrize("format", ["webdataset", "mds", "parquet"])
def test_images_in_shards_are_named_in_any_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, is_absolute: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    first = f"first-{tmp_path.name}"
    place = first.replace("first", "moved")
    run(str(make_source(Path("photos"), 3, ())), first, recipe(format), engine=InlineEngine())
    source = str(tmp_path / first) if is_absolute else first
    run(source, "shards", recipe(), engine=InlineEngine())
    uris = [open_input(source).source.uri(i) for i in range(6)]
    wanted = [
        uris[0],
        uris[1].removeprefix(f"{tmp_path}/{first}/"),
        "cats/0002.jpg",
        "dogs/0000.jpg",
    ]
    report = update(source, "shards", remove=wanted[:3], relabel={wanted[3]: "wolf"}, dry_run=True)
    assert report.selection[0].startswith("3 images removed, 1 relabeled: 1 of 1 shards")
    Path(first).rename(place)
    moved = uris[4].replace(f"/{first}/", f"/{place}/")
    report = update(place, "shards", remove=[moved], engine=InlineEngine())
    assert samples(tmp_path).keys() == {f"cats/000{k}.jpg" for k in range(3)} | {
        "dogs/0000.jpg",
        "dogs/0002.jpg",
    }
    with pytest.raises(ConfigError, match=r"1 name is not in the job in .*\n  cats/0009\.jpg"):
        update(place, "shards", remove=["cats/0009.jpg"], engine=InlineEngine())


def test_a_name_that_is_no_text_is_written_as_in_the_metadata(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", 2, ())
    os.rename(source / "cats/0001.jpg", os.fsdecode(os.fsencode(source) + b"/cats/caf\xe9.jpg"))
    run(str(source), tmp_path / "shards", recipe(), engine=InlineEngine())
    (name,) = [name for name in samples(tmp_path) if "caf" in name]
    assert change(tmp_path, remove=[name]).tally.samples == 3
