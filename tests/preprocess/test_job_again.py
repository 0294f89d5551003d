"""Jobs that are run again: after damage, by parts, under another name of the source, with errors on
the way.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.preprocess.outcomes import photographs, tree
from helpers.small_jobs import InlineEngine, recipe

from fastfeed.errors import ConfigError, TargetError, TooManyFailures
from fastfeed.preprocess import Packing, Recipe, Scaling, run
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.job import job as job_module
from fastfeed.preprocess.model.plan import PLAN, relative_uri, uri_prefixes
from fastfeed.preprocess.model.task import Task
from fastfeed.preprocess.shard.build import ShardTask
from fastfeed.preprocess.shard.versions import versions
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.local import LocalTarget
from fastfeed.preprocess.targets.lock import temporary_name
from fastfeed.preprocess.targets.target import open_target
from fastfeed.runtime.extension import is_built

RECIPE = Recipe(Scaling(48), packing=Packing(samples=8))


class Inside:
    """An engine that does all at once in this process; nothing can close what it gives."""

    def __init__(self, only: int = 1000) -> None:
        self.done: list[int] = []
        self._only = only

    def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
        found = [Outcome(piece, task.run(piece, Free(), {})) for piece in pieces[: self._only]]
        self.done += pieces[: self._only]
        return iter(found)


class Free:
    """A Watch that allows everything."""

    def begin(self, sample: int) -> None: ...

    def room(self, need: int) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return photographs(tmp_path / "photos", 24, bad=2)


@pytest.mark.parametrize(
    "name", ["shard-000001.tar", "shard-000001.idx", "__job/records/shard-000001.json"]
)
@pytest.mark.parametrize("damage", ["cut off", "gone"])
def test_a_damaged_shard_is_made_again_and_no_other(
    source: Path, tmp_path: Path, name: str, damage: str
) -> None:
    target = tmp_path / "shards"
    run(source, target, RECIPE, engine=Inside())
    whole = tree(target)
    path = target / name
    if damage == "cut off":
        os.truncate(path, 100)
    else:
        path.unlink()
    engine = Inside()
    report = run(source, target, RECIPE, engine=engine)
    assert engine.done == [1] and report.complete and report.shards_now == 1
    assert tree(target) == whole


def test_retry_of_a_part_leaves_the_others_alone(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "shards"
    for i in (0, 1, 2):
        run(source, target, RECIPE, engine=Inside(), part=(i, 3))
    whole, engine = tree(target), Inside()
    report = run(source, target, RECIPE, engine=engine, part=(0, 3), retry=["truncated"])
    assert engine.done == [] and report.complete, "the bad ones are in the last part"
    run(source, target, RECIPE, engine=engine, part=(2, 3), retry=["truncated"])
    assert engine.done == [2] and tree(target) == whole


def test_what_is_built_again_is_in_no_manifest_meanwhile(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "shards"
    run(source, target, RECIPE, engine=Inside())
    report = run(source, target, RECIPE, engine=Inside(only=0), retry=["truncated"])
    assert not report.complete and not (target / "__job/manifest.json").exists()
    assert not (target / "__job/records/shard-000002.json").exists()


def test_too_many_bad_ones_are_too_many_the_next_time(source: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(
            TooManyFailures,
            match=r"2 images are bad, more than max_bad \(--max-bad\) allows \(1\)",
        ):
            run(source, tmp_path / "shards", RECIPE, engine=Inside(), max_bad=1)
    assert run(source, tmp_path / "shards", RECIPE, engine=Inside(), max_bad=2).complete


def test_another_name_of_the_same_source_changes_no_byte(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("photos", tmp_path / "whole", RECIPE, engine=Inside())
    run("photos", tmp_path / "shards", RECIPE, engine=Inside(only=1))
    moved = source.rename(tmp_path / "elsewhere")
    engine = Inside(only=1)
    run(moved, tmp_path / "shards", RECIPE, engine=engine)
    monkeypatch.chdir(moved)
    run("./", tmp_path / "shards", RECIPE, engine=engine)
    assert engine.done == [1, 2]
    assert tree(tmp_path / "shards") == tree(tmp_path / "whole")


@pytest.mark.parametrize(
    ("planned", "here", "begin"),
    [
        ("photos/a/1.jpg", "/data/photos/a/1.jpg", ("", "/data/")),
        ("/old/a/1.jpg", "/new/mount/a/1.jpg", ("/old/", "/new/mount/")),
        ("/1.jpg", "1.jpg", ("/", "")),
        ("s3://one/a/1.jpg", "s3://one/a/1.jpg", ("", "")),
        ("a.tar#1.jpg", "b.tar#1.jpg", ("a.tar#1.jpg/", "b.tar#1.jpg/")),
    ],
)
def test_how_addresses_begin(planned: str, here: str, begin: tuple[str, str]) -> None:
    assert uri_prefixes(planned, here) == begin


def test_listings_of_killed_processes_are_removed(source: Path, tmp_path: Path) -> None:
    run(str(source), tmp_path / "out", recipe(), engine=InlineEngine())
    mine = temporary_name()
    host, _, rest, random = mine.rsplit("-", 3)
    ended = f"{host}-{2**22 + 7}-{rest}-{random}"
    for name in (mine, ended):
        (tmp_path / f"out/__job/check-{name}-listing.ffarrays").write_bytes(b"1")
    run(str(source), tmp_path / "out", recipe(), engine=InlineEngine())
    left = [path.name for path in (tmp_path / "out/__job").glob("check-*")]
    assert left == [f"check-{mine}-listing.ffarrays"]


def test_a_relative_source_is_below_the_working_directory_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert relative_uri(f"{tmp_path}/{name}/photos/1.jpg", "photos") == "1.jpg"
        assert relative_uri(f"{tmp_path}/{name}/photos/1.jpg", "photos/*.jpg") == "1.jpg"


def test_a_machine_with_other_libraries_makes_no_shard(source: Path, tmp_path: Path) -> None:
    target = open_target(tmp_path / "shards")

    class Elsewhere(Inside):
        def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
            assert isinstance(task, ShardTask)
            plan = replace(task.plan, made_with=task.plan.made_with | {"pillow": "9.9"})
            return super().run(ShardTask(task.input, task.target, plan), pieces)

    with pytest.raises(
        ConfigError,
        match=r"has other libraries than the machine that made the plan: pillow: 9\.9 -> ",
    ):
        run(source, tmp_path / "shards", RECIPE, engine=Elsewhere())
    assert open_job(target).todo == [0, 1, 2]


def test_a_log_that_cannot_be_written_hides_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(Inside):
        def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
            def refused(*_: object) -> None:
                raise TargetError("another error", errno.ENOSPC)

            monkeypatch.setattr(LocalTarget, "write", refused)
            monkeypatch.setattr(LocalTarget, "sweep", refused)
            return iter([Outcome(pieces[0], error=TargetError("the true error", errno.ENOSPC))])

    with pytest.raises(TargetError, match="the true error"):
        run(source, tmp_path / "shards", RECIPE, engine=Full())


def test_somebody_else_finishes_the_job_meanwhile(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And sweeps all temporary files, those of shards and of lists that are written right now,
    too.
    """
    target = tmp_path / "shards"

    class Beaten(Inside):
        def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
            assert isinstance(task, ShardTask)
            attempt = task.target.attempt

            def beaten() -> object:
                monkeypatch.undo()
                ours = attempt()
                ours.create("started").write(b"x")
                run(source, target, RECIPE, engine=Inside())
                return ours

            monkeypatch.setattr(LocalTarget, "attempt", lambda _: beaten())
            return super().run(task, pieces)

    report = run(source, target, RECIPE, engine=Beaten())
    assert report.complete
    assert not (target / "__tmp").exists() and not (target / "started").exists()


def test_small_files_are_written_though_their_folder_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = open_target(tmp_path)
    place, swept = LocalTarget.place, list[int]()

    def sweeping(self: LocalTarget, *attempt: Any) -> None:
        if not swept:
            swept.append(self.sweep(everything=True))
        place(self, *attempt)

    monkeypatch.setattr(LocalTarget, "place", sweeping)
    target.write("__job/manifest.json", b"{}")
    assert swept == [1] and target.files() == {"__job/manifest.json": 2}


def test_a_plan_that_is_there_by_the_time_one_is_made_counts(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, create_plan = tmp_path / "shards", job_module.create_plan

    def late(*arguments: object) -> object:
        monkeypatch.undo()
        run(source, target, RECIPE, engine=Inside(only=1))
        return create_plan(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(job_module, "create_plan", late)
    with pytest.raises(ConfigError, match=r"scaling\.size: 48 -> 64"):
        run(source, target, replace(RECIPE, scaling=Scaling(64)), engine=Inside())
    assert json.loads((target / PLAN).read_bytes())["recipe"]["scaling"]["size"] == 48


@pytest.mark.skipif(not is_built(), reason="the native extension is not built")
def test_a_job_resumes_within_a_minor_version(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = {}
    for version in ("0.1.0", "0.1.7", "0.2.0"):
        monkeypatch.setattr("fastfeed.preprocess.shard.versions.__version__", version)
        recorded[version] = versions(RECIPE)
    assert recorded["0.1.0"] == recorded["0.1.7"] != recorded["0.2.0"]
