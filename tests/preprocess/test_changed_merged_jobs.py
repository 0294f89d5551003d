"""Merged jobs that are moved, copied and changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.photos import folder, jpeg
from helpers.preprocess.merged_jobs import built, content, job_in, opened
from helpers.preprocess.outcomes import tree
from helpers.small_jobs import IN_TURN, InlineEngine, recipe

import fastfeed as ff
from fastfeed.errors import ConfigError
from fastfeed.preprocess import merge, run, update
from fastfeed.preprocess.pixels.transform import Transformer
from fastfeed.preprocess.reports.verify import verify
from fastfeed.preprocess.shard.build import ShardTask
from fastfeed.preprocess.shard.stored import stored_shard


def test_changes_of_the_jobs_stay(tmp_path: Path) -> None:
    a = built(tmp_path / "a", {"cats": 3, "dogs": 2})
    b = built(tmp_path / "b", {"bees": 2, "dogs": 3}, first=8)
    engine = InlineEngine()
    update(str(a.parent / "photos"), a, remove=["cats/0001.jpg"], engine=engine)
    update(str(b.parent / "photos"), b, relabel={"dogs/0000.jpg": "bees"}, engine=engine)
    merge([a, b], tmp_path / "c")
    shards = ff.TarShards(f"{tmp_path}/c/*.tar", label="cls")
    assert shards.label(np.arange(9)).tolist() == [0, 0, 1, 1, 2, 2, 2, 1, 1]
    job = job_in(tmp_path / "c")
    assert job.plan.edits.table.tolist() == [[1, 7], [-2, 2]] and verify(job).problems == ()
    (line,) = (tmp_path / "c/__job/removed.jsonl").read_text().splitlines()
    assert json.loads(line)["uri"] == "cats/0001.jpg"
    merge([a, b], tmp_path / "c")
    update(str(a.parent / "photos"), a, remove=["cats/0002.jpg"], engine=engine)
    assert verify(job_in(tmp_path / "c")).problems == ()  # links keep the earlier files
    with pytest.raises(ConfigError, match="holds another job"):
        merge([a, b], tmp_path / "c")


def test_a_removed_image_does_not_come_back_by_a_merge(tmp_path: Path) -> None:
    a = built(tmp_path / "a", {"cats": 3})
    folder(tmp_path / "b/photos", {"cats": 2}, (48, 56))
    shutil.copy(tmp_path / "a/photos/cats/0001.jpg", tmp_path / "b/photos/cats/other.jpg")
    b = tmp_path / "b/shards"
    run(str(tmp_path / "b/photos"), b, recipe(), engine=InlineEngine())
    merge([a, b], tmp_path / "before")
    photos = str(tmp_path / "a/photos")
    update(photos, a, remove=["cats/0001.jpg"], engine=InlineEngine())
    with pytest.raises(ConfigError, match=r"1 image has the content.* 000000002 of .*b/shards"):
        merge([a, b], tmp_path / "c")
    assert merge([a, b], tmp_path / "c", duplicates="keep").tally.samples == 5


@pytest.mark.parametrize("format", IN_TURN)
def test_a_job_may_be_moved_or_copied(tmp_path: Path, format: str) -> None:
    old = built(tmp_path / "old", {"cats": 7}, recipe(format))
    before = content(opened(old, format))
    (tmp_path / "new").mkdir()
    moved = Path(shutil.move(old, tmp_path / "new"))
    photos = Path(shutil.move(tmp_path / "old/photos", tmp_path / "new"))
    copied = Path(shutil.copytree(moved, tmp_path / "copied", copy_function=shutil.copy))
    for place in (moved, copied):
        assert content(opened(place, format)) == before
        assert verify(job_in(place)).problems == ()
        (place / job_in(place).records[1].files[0].name).unlink()
        report = run(str(photos), place, recipe(format), engine=InlineEngine())
        assert report.complete and report.shards_now == 1
    assert tree(moved) == tree(copied)
    (photos / "cats/0007.jpg").write_bytes(jpeg(7, (40, 56)))
    for place in (moved, copied):
        report = run(str(photos), place, recipe(format), engine=InlineEngine(), append=True)
        assert report.complete and report.tally.samples == 8
    assert tree(moved) == tree(copied)


def uris(place: Path) -> dict[str, int]:
    """Classes of a job's images by name."""
    job = job_in(place)
    assert not job.todo and not verify(job).problems
    metas = [
        stored_shard(job.target, job.plan, r).metas(r.ids).values() for r in job.records.values()
    ]
    return {meta["uri"]: meta["label"] for part in metas for meta in part}


@pytest.mark.parametrize("format", IN_TURN)
def test_a_merged_job_is_changed_as_its_jobs_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    a = built(tmp_path / "a", {"cats": 4, "dogs": 4}, recipe(format))
    b = built(tmp_path / "b", {"cats": 4, "eels": 4}, recipe(format), first=8)
    for k in range(4):
        assert (b.parent / f"photos/cats/000{k}.jpg").exists()
    merge([a, b], tmp_path / "c")
    monkeypatch.setattr(Transformer, "__call__", lambda *_: pytest.fail("decoded"))
    engine = InlineEngine()
    remove = [str(a.parent / "photos/cats/0001.jpg"), "eels/0002.jpg"]
    relabel = {"dogs/0000.jpg": "eels", str(b.parent / "photos/cats/0003.jpg"): "dogs"}
    before = tree(tmp_path / "c")
    sources = f"{a.parent / 'photos'} or {b.parent / 'photos'}"
    with pytest.raises(
        ConfigError, match=rf"cats/0001.jpg\nwrite the names in full, .* {sources};"
    ):
        update(".", tmp_path / "c", remove=["cats/0001.jpg"], engine=engine)
    assert tree(tmp_path / "c") == before
    report = update(".", tmp_path / "c", remove=remove, relabel=relabel, engine=engine)
    assert report.selection[0].startswith("2 images removed, 2 relabeled: ")
    assert report.complete and report.tally.samples == 14
    changed = tree(tmp_path / "c")
    update(".", a, remove=remove[:1], relabel={"dogs/0000.jpg": "eels"}, engine=engine)
    update(".", b, remove=remove[1:], relabel={"cats/0003.jpg": "dogs"}, engine=engine)
    merge([a, b], tmp_path / "d")
    shards = {name: sum for name, sum in changed.items() if not name.startswith("__job")}
    later = {name: sum for name, sum in tree(tmp_path / "d").items() if name in shards}
    assert (
        uris(tmp_path / "c").keys() == uris(tmp_path / "d").keys() and shards.keys() == later.keys()
    )
    places = tmp_path / "c", tmp_path / "d"
    assert content(opened(places[0], format)) == content(opened(places[1], format))
    lines = [
        json.loads(line) for line in (tmp_path / "c/__job/removed.jsonl").read_text().splitlines()
    ]
    assert [line["uri"] for line in lines] == ["cats/0001.jpg", "eels/0002.jpg"]
    assert [len(line["sha256"]) for line in lines] == [64, 64]
    update(".", tmp_path / "c", remove=["eels/0003.jpg"], engine=engine)
    assert "eels/0003.jpg" not in uris(tmp_path / "c")


def test_a_changed_merged_job_is_mended_by_the_same_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = built(tmp_path / "a", {"cats": 7})
    b = built(tmp_path / "b", {"cats": 7}, first=8)
    place = tmp_path / "c"
    merge([a, b], place)
    removed = str(b.parent / "photos/cats/0002.jpg")
    update(".", place, remove=[removed], engine=InlineEngine())
    whole = tree(place)
    for name in ("shard-000000.tar", "shard-000002.tar"):
        (place / name).unlink()
        with pytest.raises(
            ConfigError, match=r"(?s)merged from jobs.*\n.*merge .*a/shards .*b/shards"
        ):
            update(".", place, remove=["cats/9.jpg"], ignore_unknown=True, engine=InlineEngine())
        assert merge([a, b], place).complete and tree(place) == whole
    with monkeypatch.context() as kill, pytest.raises(ZeroDivisionError):
        kill.setattr(ShardTask, "run", lambda *_: 1 // 0)
        update(".", place, remove=[str(b.parent / "photos/cats/0003.jpg")], engine=InlineEngine())
    assert job_in(place).outdated
    report = run(str(a.parent / "photos"), place, recipe(), engine=InlineEngine())  # as `resume`
    assert report.complete and report.tally.samples == 12
    update(".", place, remove=[removed], engine=InlineEngine())
    assert not verify(job_in(place)).problems


@pytest.mark.parametrize("format", IN_TURN)
def test_a_changed_merged_job_is_merged_and_changed_again(tmp_path: Path, format: str) -> None:
    a, b, c = (
        built(tmp_path / name, {"cats": 3}, recipe(format), first=8 * k)
        for k, name in enumerate("abc")
    )
    names = [str(place.parent / "photos/cats/0001.jpg") for place in (a, b, c)]
    merge([a, b], tmp_path / "ab")
    update(".", tmp_path / "ab", remove=names[1:2], engine=InlineEngine())
    merge([tmp_path / "ab", c], tmp_path / "abc")
    update(".", tmp_path / "abc", remove=names[2:], engine=InlineEngine())
    wanted = [opened(place, format) for place in (a, b, c)]
    expected = [*content(wanted[0]), *(content(part)[k] for part in wanted[1:] for k in (0, 2))]
    assert content(opened(tmp_path / "abc", format)) == expected
    job = job_in(tmp_path / "abc")
    assert not verify(job).problems and job.plan.planned == 7
    assert [record.start for record in job.records.values()] == [0, 3, 6]
