"""Jobs that are run again with another source, other labels, or more photographs: told, refused, or
appended.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from helpers.photos import jpeg
from helpers.preprocess.commands import preprocess
from helpers.shards import tar_of
from helpers.small_jobs import IN_TURN, InlineEngine, recipe, source

from fastfeed.errors import ConfigError
from fastfeed.preprocess import Packing, Recipe, Report, Scaling, Selection, run
from fastfeed.preprocess.inputs.previous_job import open_previous_job
from fastfeed.preprocess.job import job as job_module
from fastfeed.preprocess.reports.status import job_status
from fastfeed.preprocess.reports.verify import verify
from fastfeed.preprocess.targets.job_state import Job, open_job
from fastfeed.preprocess.targets.target import open_target
from fastfeed.storage.storage import Storage

SMALL = ("--size", "24", "--shard-samples", "6")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        job_module,
        "engine_for",
        lambda engine, *_: InlineEngine() if isinstance(engine, str) else engine,
    )
    source(tmp_path / "photos", 5, ("empty",))


class Stops(InlineEngine):
    """Is interrupted after some pieces."""

    def __init__(self, after: int) -> None:
        self._after = after

    def run(self, task, pieces):  # type: ignore[no-untyped-def]
        yield from super().run(task, pieces[: self._after])
        raise KeyboardInterrupt


def make(
    made: Recipe, append: bool = False, engine: InlineEngine | None = None, photos: str = "photos"
) -> Report:
    return run(photos, "shards", made, engine=engine or InlineEngine(), append=append)


def job(place: str = "shards") -> Job:
    return open_job(open_target(place, writes=False))


def shards(folder: str = "shards") -> dict[str, bytes]:
    """Content of all files but those of the job."""
    paths = [
        p
        for p in Path(folder).rglob("*")
        if p.is_file() and not {"__job", ".fastfeed"} & {*p.parts}
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def add(count: int, folder: str = "dogs") -> None:
    Path("photos", folder).mkdir(exist_ok=True)
    for k in range(count):
        Path("photos", folder, f"a-new-{k}.jpg").write_bytes(jpeg(500 + k, (40, 56)))


# -- what is refused, and what is told


def test_another_folder_is_refused() -> None:
    preprocess("photos", "shards", *SMALL)
    source(Path("others"), 3, ())
    before = shards()
    code, said = preprocess("others", "shards", *SMALL)
    assert code == 2 and shards() == before
    assert "source: " in said and "photos" in said and "others" in said
    for k in range(3):
        for path in Path("others").rglob(f"*{k}.jpg"):
            path.rename(path.with_name(f"x{k}.jpg"))
    code, said = preprocess("others", "shards", *SMALL)
    assert code == 2 and "source: none of the job's 11 images is in others" in said


def test_the_same_photographs_elsewhere_are_the_same_job() -> None:
    preprocess("photos", "shards", *SMALL)
    shutil.move("photos", "moved")
    assert preprocess("moved", "shards", *SMALL)[0] == 0


def test_other_labels_are_refused() -> None:
    members = [
        (f"{i}.{kind}", data)
        for i in range(5)
        for kind, data in (("jpg", jpeg(i)), ("id", b"%d" % (i % 2)))
    ]
    Path("in.tar").write_bytes(tar_of(members))
    assert preprocess("in.tar", "shards", *SMALL)[0] == 0
    code, said = preprocess("in.tar", "shards", *SMALL, "--label", "id")
    assert code == 2 and "labels: 5 images, such as in.tar" in said
    assert preprocess("in.tar", "labeled", *SMALL, "--label", "id")[0] == 0
    code, said = preprocess("in.tar", "labeled", *SMALL)
    assert code == 2 and "labels: the job has labels, this request has none" in said
    assert preprocess("photos", "classes", *SMALL)[0] == 0
    code, said = preprocess("photos", "classes", *SMALL, "--label", "")
    assert code == 2 and "labels: the job has labels, this request has none" in said


def test_a_photograph_in_another_class_is_refused() -> None:
    preprocess("photos", "shards", *SMALL)
    os.rename("photos/dogs/0001.jpg", "photos/cats/zzz.jpg")
    code, said = preprocess("photos", "shards", *SMALL)
    assert code == 2 and "source: 1 of the job's 11 images are gone" in said


def test_other_captions_are_refused() -> None:
    Path("photos/t.csv").write_text("path,text\ncats/0000.jpg,a\ndogs/0001.jpg,b\n")
    assert preprocess("photos/t.csv", "shards", *SMALL)[0] == 0
    Path("photos/t.csv").write_text("path,text\ncats/0000.jpg,a\ndogs/0001.jpg,c\n")
    code, said = preprocess("photos/t.csv", "shards", *SMALL)
    assert code == 2 and "captions or columns: " in said and "dogs/0001.jpg has other ones" in said


def test_a_changed_photograph_is_refused() -> None:
    preprocess("photos", "shards", *SMALL)
    Path("photos/dogs/0001.jpg").write_bytes(jpeg(77, (80, 99)))
    code, said = preprocess("photos", "shards", *SMALL, "--append")
    assert code == 2 and "photos/dogs/0001.jpg has another size now" in said


def test_more_photographs_are_told() -> None:
    preprocess("photos", "shards", *SMALL)
    before = shards()
    add(12)
    code, said = preprocess("photos", "shards", *SMALL)
    assert code == 0 and shards() == before
    assert (
        "12 more images than this job, such as photos/dogs/a-new-0.jpg" in said
        and "--append" in said
    )
    assert (
        "12 more"
        in json.loads(preprocess("photos", "shards", *SMALL, "--json")[1].splitlines()[-1])[
            "notes"
        ][0]
    )
    assert not list(Path("shards").rglob("check-*"))


def test_a_wrong_source_leaves_an_interrupted_job_its_list() -> None:
    with pytest.raises(KeyboardInterrupt):
        make(recipe(), engine=Stops(1))
    add(2)
    source(Path("others"), 3, ())
    with pytest.raises(ConfigError):
        make(recipe(), photos="others")
    assert make(recipe()).complete, "what was added later is not part of it"
    assert make(recipe()).notes[0].startswith("2 more images")


# -- append


@pytest.mark.parametrize("format", IN_TURN)
def test_appended_photographs_are_in_shards_of_their_own(format: str) -> None:
    made = recipe(format)
    make(made)
    before = {name: data for name, data in shards().items() if not name.endswith("index.json")}
    add(7)
    add(3, "ants")  # a new class, which sorts before the others
    report = make(made, append=True)
    after = shards()
    assert report.complete and report.shards_now == 2 and report.tally.samples == 20
    assert report.classes == ("cats", "dogs", "ants")
    assert {name: after[name] for name in before} == before
    found = job()
    assert [shard.name for shard in found.shards] == [f"shard-{k:06d}" for k in range(4)]
    assert not verify(found).problems and job_status(found).todo == 0
    opened = open_previous_job("shards", Storage())
    assert opened is not None and len(opened.source) == 20
    assert sorted(opened.source.label(range(20)).tolist()) == [0] * 5 + [1] * 12 + [2] * 3
    manifest = json.loads(next(Path("shards").rglob("manifest.json")).read_text())
    assert (
        manifest["samples"] == 20
        and len(manifest["shards"][""]) == 4
        and manifest["classes"][2] == "ants"
    )
    assert make(made, append=True).shards_now == 0 and shards() == after, (
        "there is nothing to append"
    )
    assert make(made).notes == report.notes
    add(12, "dogs")  # five more
    assert make(made, append=True).tally.samples == 25
    assert {name: data for name, data in shards().items() if name in before} == before
    assert not verify(job()).problems


def test_an_interrupted_append_resumes_whatever_comes_later() -> None:
    made = recipe(samples=2)
    make(made)
    add(8)
    shutil.copytree("shards", "twin")
    shutil.copytree("photos", "then")
    with pytest.raises(KeyboardInterrupt):
        make(made, append=True, engine=Stops(1))
    assert len(job().todo) == 3
    add(9)
    report = make(made)
    assert report.complete and report.tally.samples == 18
    run("then", "twin", made, engine=InlineEngine(), append=True)
    assert shards() == shards("twin")
    assert make(made, append=True).tally.samples == 19, "the ninth"


def test_a_damaged_shard_of_either_time_is_rebuilt_as_it_was() -> None:
    make(recipe(samples=4))
    add(6)
    make(recipe(samples=4), append=True)
    whole = shards()
    for name in ("shard-000001.tar", "shard-000004.tar"):
        Path("shards", name).write_bytes(b"")
    assert make(recipe(samples=4)).shards_now == 2
    assert shards() == whole


def test_an_append_that_dies_before_its_plan_leaves_the_job_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fastfeed.preprocess.targets.local import LocalTarget

    make(recipe())
    add(4)
    write, before = LocalTarget.write, shards()
    for dies_at in range(4):
        count = 0

        def dying(self, name, content, at=dies_at):  # type: ignore[no-untyped-def]
            nonlocal count
            count += 1
            if count > at:
                raise KeyboardInterrupt
            write(self, name, content)

        with monkeypatch.context() as patch:
            patch.setattr(LocalTarget, "write", dying)
            with pytest.raises(KeyboardInterrupt):
                make(recipe(), append=True)
        assert shards() == before and not job().todo
    assert make(recipe(), append=True).tally.samples == 14


def test_shuffled_photographs_are_appended_in_an_order_of_their_own() -> None:
    made = Recipe(Scaling(24), packing=Packing(samples=6), choice=Selection(shuffle=1))
    make(made)
    before = shards()
    add(9)
    make(made, append=True)
    order = job().plan.order[11:].tolist()
    assert {name: shards()[name] for name in before} == before
    assert sorted(order) == list(range(11, 20)) != order


def test_duplicates_and_the_split_look_at_all_photographs() -> None:
    made = Recipe(
        Scaling(24), packing=Packing(samples=4), choice=Selection(val=0.4, dedupe="exact")
    )
    make(made)
    plan = job().plan
    before, photos = (
        shards(),
        [Path(plan.source, name) for name in ("dogs/0000.jpg", "dogs/0002.jpg")],
    )
    for k, path in enumerate(photos):  # another file with the same picture, and a copy
        Path("photos", "dogs", f"near-{k}.jpg").write_bytes(path.read_bytes() + b"\0")
        shutil.copy(path, Path("photos", "dogs", f"twin-{k}.jpg"))
    add(5)
    report = make(made, append=True)
    assert report.left_out == {"duplicate_exact": 2} and report.complete
    assert {name: shards()[name] for name in before} == before
    after = job().plan
    placed, start = {}, 0
    for folder, count in after.groups:
        placed |= dict.fromkeys(after.order[start : start + count].tolist(), folder)
        start += count
    assert len(after.order) == len(plan.order) + 7 and not verify(job()).problems
    assert after.source_ids is not None
    listed = sorted(str(path) for path in Path("photos").rglob("*.jpg"))
    old = {listed[after.source_ids[i]]: side for i, side in placed.items()}
    assert all(old[f"photos/dogs/near-{k}.jpg"] == old[str(path)] for k, path in enumerate(photos))


def test_rows_are_appended_to_a_table() -> None:
    rows = ["path,label,text"] + [f"dogs/000{k}.jpg,c{k % 2},t{k}" for k in range(4)]
    Path("photos/t.csv").write_text("\n".join(rows))
    run("photos/t.csv", "shards", recipe(), engine=InlineEngine())
    Path("photos/t.csv").write_text("\n".join([rows[0], "cats/0001.jpg,b9,new", *rows[1:]]))
    report = run("photos/t.csv", "shards", recipe(), engine=InlineEngine(), append=True)
    assert report.complete and report.tally.samples == 5 and report.classes == ("c0", "c1", "b9")
    assert not verify(job()).problems


def test_append_needs_a_job() -> None:
    code, said = preprocess("photos", "shards", *SMALL, "--append")
    assert code == 2 and "holds no job" in said


def test_append_to_a_bucket(s3) -> None:  # type: ignore[no-untyped-def]
    s3.put("test-append/other", b"x")
    place = "s3://test-append/shards"

    def go(**more):  # type: ignore[no-untyped-def]
        return run(
            "photos", place, recipe(), engine=InlineEngine(), target_storage=s3.options, **more
        )

    go()
    add(4)
    assert go().notes[0].startswith("4 more images")
    report = go(append=True)
    assert report.complete and report.tally.samples == 14
    assert go(append=True).shards_now == 0
    assert not verify(open_job(open_target(place, s3.options, writes=False))).problems
