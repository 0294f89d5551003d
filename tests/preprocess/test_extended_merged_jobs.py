"""Merged jobs that are extended, repaired and mended from the sources of their parts."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.photos import folder, jpeg
from helpers.preprocess.merged_jobs import job_in
from helpers.preprocess.outcomes import tree
from helpers.small_jobs import IN_TURN, InlineEngine, recipe

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.preprocess import BadFilter, Metadata, Recipe, Report, Selection, merge, run, update
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.model.task import Task
from fastfeed.preprocess.planning.bad_images import bad_images, select_bad
from fastfeed.preprocess.reports.verify import verify
from fastfeed.preprocess.shard.stored import stored_shard

ENGINE = InlineEngine()


def merged(root: Path, how: Recipe | None = None) -> tuple[str, str, Path]:
    """Two sources, of cats and dogs, and of cats and eels, one file of each bad; their merged job."""
    places = []
    for name, classes, first in [("a", ("cats", "dogs"), 0), ("b", ("cats", "eels"), 8)]:
        photos = root / name / "photos"
        folder(photos, dict.fromkeys(classes, 3), (40 + first, 56))
        good = jpeg(90, (40, 56))
        (photos / "cats/bad.jpg").write_bytes(good[:300] + bytes(len(good) - 300))
        run(str(photos), root / name / "shards", how or recipe(), engine=ENGINE)
        places.append(photos)
    merge([root / "a/shards", root / "b/shards"], root / "c")
    return str(places[0]), str(places[1]), root / "c"


def add(photos: str, name: str, key: int = 90) -> None:
    path = Path(photos, name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(jpeg(key, (40, 56)))


def extended(source: str, place: Path, how: Recipe | None = None, **options: Any) -> Report:
    return run(source, place, how or recipe(), append=True, **{"engine": ENGINE} | options)


def samples(place: Path) -> list[tuple[str, str, str]]:
    """Key, name and class of each sample, in order."""
    job = job_in(place)
    assert not job.todo and not verify(job).problems
    rows = []
    for index in sorted(job.records):
        entries = stored_shard(job.target, job.plan, job.records[index]).entries()
        rows += [(entry.key, entry.meta["uri"], entry.meta["class"]) for entry in entries]
    return rows


@pytest.mark.parametrize("format", IN_TURN)
def test_new_images_of_a_part_enter_new_shards(tmp_path: Path, format: str) -> None:
    how = recipe(format)
    a, b, c = merged(tmp_path, how)
    before = tree(c)
    first = samples(c)
    add(b, "dogs/new.jpg")
    add(a, "wolf/new.jpg")
    assert "1 more image than this job" in run(b, c, how, engine=ENGINE).notes[0]
    assert extended(b, c, how).tally.samples == 13
    assert update(a, c, add=True, engine=ENGINE).selection[0].startswith("1 image added: 0 of 5")
    new = [("000000000", "dogs/new.jpg", "dogs"), ("000000000", "wolf/new.jpg", "wolf")]
    assert samples(c) == [*first, *new]
    job = job_in(c)
    assert job.plan.classes == ("cats", "dogs", "eels", "wolf")
    shards = {name: sum for name, sum in before.items() if name.startswith("shard-")}
    assert shards.items() <= tree(c).items()
    assert run(a, c, how, engine=ENGINE).notes == run(b, c, how, engine=ENGINE).notes == ()


class Backwards(InlineEngine):
    """Builds the last piece first, each in a process of its own, as far as the task can tell."""

    def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
        for piece in reversed(pieces):
            yield from super().run(pickle.loads(pickle.dumps(task)), [piece])


def test_bytes_depend_on_no_worker_and_no_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = replace(recipe(samples=1), metadata=Metadata(absolute_uri=True))
    _, b, c = merged(tmp_path, how)
    for k in range(3):
        add(b, f"eels/new{k}.jpg", 90 + k)
    shutil.copytree(c, tmp_path / "again")
    extended(b, c, how)
    monkeypatch.chdir(tmp_path)
    extended("b/../b/photos/", tmp_path / "again", how, engine=Backwards())
    assert tree(tmp_path / "again") == tree(c)
    assert samples(c)[-1][1] == f"{b}/eels/new2.jpg"


def test_a_source_that_was_opened_is_known_when_it_has_grown(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 8)):
        folder(tmp_path / name, {"cats": 2}, (40 + first, 56))
        run(ff.ImageFolder(tmp_path / name), tmp_path / f"{name}-job", recipe(), engine=ENGINE)
    merge([tmp_path / "a-job", tmp_path / "b-job"], tmp_path / "c")
    add(str(tmp_path / "b"), "cats/new.jpg")
    source = ff.ImageFolder(tmp_path / "b")
    report = run(source, tmp_path / "c", recipe(), append=True, engine=ENGINE)
    assert report.tally.samples == 5 and samples(tmp_path / "c")[-1][1] == "cats/new.jpg"


def test_a_source_of_no_part_is_refused(tmp_path: Path) -> None:
    a, b, c = merged(tmp_path)
    folder(tmp_path / "other", {"cats": 1})
    before = tree(c)
    text = rf"other is none of the sources .*:\n  {a}\n  {b}"
    with pytest.raises(ConfigError, match=text):
        extended(str(tmp_path / "other"), c)
    for change in ({"repair": True}, {"add": True}, {"drop_missing": True}):
        with pytest.raises(ConfigError, match=text):
            update(str(tmp_path / "other"), c, engine=ENGINE, **change)
    assert tree(c) == before


def test_what_is_gone_from_a_source_is_dropped_from_its_part_alone(tmp_path: Path) -> None:
    a, b, c = merged(tmp_path)
    Path(b, "cats/0001.jpg").unlink()
    Path(a, "cats/0001.jpg").unlink()
    with pytest.raises(ConfigError, match=r"7 images.* has 7 now|1 of the job's 7 images are gone"):
        run(b, c, recipe(), engine=ENGINE)
    report = update(b, c, drop_missing=True, engine=ENGINE)
    assert report.selection[0] == "1 image removed: 1 of 4 shards is written again"
    assert [uri for _, uri, _ in samples(c)].count("cats/0001.jpg") == 1
    (line,) = (c / "__job/removed.jsonl").read_text().splitlines()
    assert json.loads(line)["uri"] == "cats/0001.jpg" and json.loads(line)["id"] >= 7
    add(b, "cats/0001.jpg")  # it stays out
    assert update(b, c, add=True, engine=ENGINE).selection[0] == "nothing to change"


def test_bad_images_of_a_part_are_repaired_or_retried(tmp_path: Path) -> None:
    a, b, c = merged(tmp_path)
    for photos in (a, b):
        add(photos, "cats/bad.jpg")
    report = update(b, c, repair=True, engine=ENGINE)
    assert report.selection[0].startswith("1 image repaired: ") and len(report.bad) == 1
    assert samples(c)[-1] == ("000000000", "cats/bad.jpg", "cats")
    report = run(a, c, recipe(), engine=ENGINE, retry=["corrupt", "truncated"])
    assert report.shards_now == 1 and not report.bad
    assert ("000000003", "cats/bad.jpg", "cats") in samples(c)[:7]


def test_damaged_shards_are_built_from_their_source(tmp_path: Path) -> None:
    a, b, c = merged(tmp_path)
    add(a, "wolf/new.jpg")
    extended(a, c)
    update(b, c, relabel={"eels/0000.jpg": "dogs"}, engine=ENGINE)
    whole = tree(c)
    shards = sorted(c.glob("*.tar"))
    assert len(shards) == 5
    for source, shard in [(a, shards[0]), (b, shards[2]), (b, shards[3]), (a, shards[4])]:
        shard.unlink()
        other = b if source == a else a
        with pytest.raises(ConfigError, match=r"1 of its 5 shards is missing.*photos is not the"):
            run(other, c, recipe(), engine=ENGINE)
        assert run(source, c, recipe(), engine=ENGINE).complete
        assert tree(c) == whole
    for shard in (shards[0], shards[2]):
        shard.unlink()
    assert not run(a, c, recipe(), engine=ENGINE).complete
    assert extended(b, c).complete and tree(c) == whole


def test_copies_wait_for_no_source(tmp_path: Path) -> None:
    """Of two shards with edits one is damaged: it is built when its source is named."""
    a, b, c = merged(tmp_path)
    shutil.copytree(c, tmp_path / "d")
    names = [f"{a}/cats/0001.jpg", f"{b}/eels/0002.jpg"]
    update(".", tmp_path / "d", remove=names, engine=ENGINE)
    shard = c / "shard-000003.tar"
    damaged = bytearray(shard.read_bytes())
    damaged[700] ^= 1
    shard.write_bytes(damaged)
    with pytest.raises(ConfigError, match=rf"1 of its 4 shards is missing.*\n  {a}\n"):
        update(".", c, remove=names, engine=ENGINE)
    update(b, c, remove=names, engine=ENGINE)
    assert tree(c) == tree(tmp_path / "d") and len(samples(c)) == 10


def test_new_images_are_compared_with_each_other(tmp_path: Path) -> None:
    choice = Selection(dedupe="exact", val=0.5, shuffle=3)
    how = replace(recipe(), choice=choice)
    a, b, c = merged(tmp_path, how)
    for number, (photos, name) in enumerate([(b, "x"), (a, "y"), (b, "z")]):
        for k in range(4):
            add(photos, f"cats/{name}{k}.jpg", 90 + 9 * number + k % 3)
        report = extended(photos, c, how)
        assert report.left_out["duplicate_exact"] == 1 + number
    names = [uri for _, uri, _ in samples(c)]
    assert len(names) == len(set(names)) + 3 == 12 + 9
    pairs = [json.loads(line) for line in (c / "__job/duplicates.jsonl").read_text().splitlines()]
    assert [Path(pair["dropped"]).name for pair in pairs] == ["z3.jpg"]


def test_the_same_merge_mends_what_it_took_over(tmp_path: Path) -> None:
    a, b, c = merged(tmp_path)
    add(b, "dogs/new.jpg")
    extended(b, c)
    whole = tree(c)
    jobs = [tmp_path / "a/shards", tmp_path / "b/shards"]
    (c / "shard-000001.tar").unlink()
    assert merge(jobs, c).complete and tree(c) == whole
    (c / "shard-000004.tar").unlink()
    with pytest.raises(ConfigError, match=rf"1 of its 5 shards is missing.*\n  {a}\n  {b}"):
        merge(jobs, c)
    assert run(b, c, recipe(), engine=ENGINE).complete and tree(c) == whole


def test_an_extended_merged_job_is_merged_and_extended_again(tmp_path: Path) -> None:
    _, b, c = merged(tmp_path)
    add(b, "dogs/new.jpg")
    extended(b, c)
    folder(tmp_path / "d/photos", {"dogs": 2}, (56, 56))
    run(str(tmp_path / "d/photos"), tmp_path / "d/shards", recipe(), engine=ENGINE)
    merge([c, tmp_path / "d/shards"], tmp_path / "all")
    add(b, "dogs/newer.jpg", 91)
    add(str(tmp_path / "d/photos"), "dogs/newest.jpg", 92)
    extended(b, tmp_path / "all")
    extended(str(tmp_path / "d/photos"), tmp_path / "all")
    update(".", tmp_path / "all", remove=["dogs/new.jpg"], engine=ENGINE)
    names = [uri for _, uri, _ in samples(tmp_path / "all")]
    assert names[:12] == [uri for _, uri, _ in samples(c)][:12]
    assert names[12:] == [f"dogs/{name}.jpg" for name in ("0000", "0001", "newer", "newest")]
    job = job_in(tmp_path / "all")
    ids = np.concatenate([job.records[index].ids for index in sorted(job.records)])
    assert ids.tolist() == [k for k in range(19) if k not in (3, 10, 14)]


@pytest.mark.parametrize("how", ["in full", "below the working folder"])
def test_images_of_sibling_folders_are_named_below_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path if how == "in full" else Path()
    for name in ("a", "b"):
        place = root / "m" / name
        folder(place, {"x": 2, name: 2}, (40 + 8 * (name == "b"), 56))
        (place / name / "bad.jpg").write_bytes(b"text")
        run(str(place), root / f"{name}-job", recipe(), engine=ENGINE)
    merge([root / "a-job", root / "b-job"], root / "c")
    job = job_in(root / "c")
    assert [image.name for image in bad_images(job)] == ["a/bad.jpg", "b/bad.jpg"]
    for criteria in (BadFilter(folders=["b"]), BadFilter(names=["b/bad.jpg"])):
        assert [image.name for image in select_bad(job, criteria)] == ["b/bad.jpg"]
    update(".", root / "c", remove=[str(root / "m/b/x/0000.jpg")], engine=ENGINE)
    (line,) = (root / "c/__job/removed.jsonl").read_text().splitlines()
    assert json.loads(line)["uri"] == "x/0000.jpg"
