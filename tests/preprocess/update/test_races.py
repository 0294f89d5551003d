"""Commands of two processes on one job: at each write of one the other is tried, and no change is lost."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from helpers.photos import folder, jpeg
from helpers.preprocess.outcomes import tree
from helpers.small_jobs import InlineEngine, finished_job, recipe, source

from fastfeed.errors import ConfigError, TargetError
from fastfeed.preprocess import merge, run, update
from fastfeed.preprocess.job import job as job_module
from fastfeed.preprocess.job import update as update_module
from fastfeed.preprocess.reports.preview import preview
from fastfeed.preprocess.reports.verify import repair, verify
from fastfeed.preprocess.shard.stored import StoredShard
from fastfeed.preprocess.targets import local
from fastfeed.preprocess.targets.job_state import open_job
from fastfeed.preprocess.targets.lock import job_lock
from fastfeed.preprocess.targets.target import open_target

LOCKS = "__job/locks"


def append(root: Path) -> None:
    run(
        str(root / "source"), root / "shards", recipe(samples=2), engine=InlineEngine(), append=True
    )


def remove(root: Path) -> None:
    source = str(root / "source")
    update(source, root / "shards", remove=["cats/0000.jpg"], engine=InlineEngine())


def retry(root: Path) -> None:
    made = recipe(samples=2)
    run(str(root / "source"), root / "shards", made, engine=InlineEngine(), retry=["truncated"])


def look(root: Path) -> None:
    preview(open_job(open_target(root / "shards", writes=False)))


def names(root: Path) -> set[str]:
    job = open_job(open_target(root / "shards", writes=False))
    stored = [StoredShard(job.target, r, "webdataset", frozenset()) for r in job.records.values()]
    return {entry.meta["uri"] for shard in stored for entry in shard.entries()}


EFFECTS: dict[Callable[[Path], None], Callable[[set[str]], bool]] = {
    append: lambda found: "cats/new.jpg" in found,
    remove: lambda found: "cats/0000.jpg" not in found,
    retry: lambda found: True,
}


class Interrupted:
    """Calls `other` before the write of this number, with the writes of `os` counted."""

    def __init__(self, number: int, other: Callable[[], None]) -> None:
        self.left = number
        self.other = other

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)
        return self.counted(function) if name in ("replace", "unlink") else function

    def counted(self, write: Callable[..., None]) -> Callable[..., None]:
        def call(*paths: str) -> None:
            self.left -= 1
            if self.left == -1:
                local.os = os  # type: ignore[attr-defined]
                self.other()
                local.os = self  # type: ignore[attr-defined]
            write(*paths)

        return call


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job of four images and a bad one, to whose source one was added since."""
    root = tmp_path_factory.mktemp("original")
    source(root / "source", 2, ("truncated",))
    made = recipe(samples=2)
    run(str(root / "source"), root / "shards", made, engine=InlineEngine())
    (root / "source/cats/new.jpg").write_bytes(jpeg(90, (24, 32)))
    return root


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def at_write(root: Path, number: int, first: Any, other: Any) -> tuple[list[Any], bool]:
    """Commands that were not refused, and whether `first` had that many writes."""
    succeeded: list[Any] = []
    is_called = False

    def inside() -> None:
        nonlocal is_called
        is_called = True
        try:
            other(root)
            succeeded.append(other)
        except ConfigError as error:
            assert "by another process; wait" in str(error)

    local.os = Interrupted(number, inside)  # type: ignore[attr-defined]
    try:
        first(root)
        succeeded.append(first)
    except ConfigError as error:
        assert "another process" in str(error)
    finally:
        local.os = os  # type: ignore[attr-defined]
    return succeeded, is_called


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (append, remove),
        (retry, remove),
        pytest.param(remove, append, marks=pytest.mark.slow),
        pytest.param(remove, retry, marks=pytest.mark.slow),
    ],
)
def test_a_command_at_each_write_of_another(
    original: Path, tmp_path: Path, first: Any, other: Any
) -> None:
    number = 0
    refused = 0
    while True:
        root = tmp_path / str(number)
        shutil.copytree(original, root)
        succeeded, is_called = at_write(root, number, first, other)
        found = names(root)
        assert all(EFFECTS[command](found) for command in succeeded), number
        if not is_called:
            break
        refused += len(succeeded) < 2
        for command in {first, other} - set(succeeded):
            command(root)
        found = names(root)
        assert EFFECTS[first](found) and EFFECTS[other](found), number
        assert not verify(open_job(open_target(root / "shards"))).problems
        assert not (root / "shards" / LOCKS).exists()
        shutil.rmtree(root)
        number += 1
    assert refused == number - 2 > 2, "all but before the lock is written, and after it is removed"


@pytest.mark.parametrize(("first", "other"), [(append, remove), (remove, append)])
def test_a_plan_that_another_process_wrote_is_not_replaced(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Any, other: Any
) -> None:
    for module in (job_module, update_module):
        monkeypatch.setattr(module, "job_lock", lambda *_, **__: nullcontext())
    for method in ("swap", "write"):  # at the last moment, and before the first of the plan's files
        root = tmp_path / method
        shutil.copytree(original, root)
        write = getattr(local.LocalTarget, method)

        def late(self: Any, name: str, *rest: Any, method: str = method, write: Any = write) -> Any:
            if method == "swap" or "/order-" in name or "/edits-" in name:
                monkeypatch.setattr(local.LocalTarget, method, write)
                other(root)  # noqa: B023
            return write(self, name, *rest)

        monkeypatch.setattr(local.LocalTarget, method, late)
        with pytest.raises(ConfigError, match=r"another process has changed the plan in .* again"):
            first(root)
        assert EFFECTS[other](names(root))
        first(root)
        assert EFFECTS[first](names(root)) and EFFECTS[other](names(root))


def test_the_lock_of_a_merge_and_of_its_parts(original: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    folder(other / "source", {"cats": 2, "dogs": 2}, (32, 32))
    run(str(other / "source"), other / "shards", recipe(samples=2), engine=InlineEngine())
    jobs = [original / "shards", other / "shards"]
    both = tmp_path / "both"
    for place in (other / "shards", both):
        target = open_target(place)
        with job_lock(target), pytest.raises(ConfigError, match=r"is being updated by another"):
            merge(jobs, both)
    with job_lock(open_target(both), shared=True):
        with pytest.raises(ConfigError, match=r"is being written by another process; wait until"):
            merge(jobs, both)
        assert not list(both.rglob("*.tar"))
    with job_lock(open_target(other / "shards"), shared=True):  # of a run, which changes no plan
        assert merge(jobs, both).complete


def test_a_sheet_is_not_drawn_during_an_update(original: Path, tmp_path: Path) -> None:
    root = tmp_path / "job"
    shutil.copytree(original, root)
    with job_lock(open_target(root / "shards")), pytest.raises(ConfigError, match="being updated"):
        look(root)
    assert not (root / "shards/__job/preview").exists()


def test_a_run_needs_no_right_to_remove_files(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(self: object, name: str) -> None:
        raise TargetError(f"cannot remove {name}: permission denied", errno.EACCES)

    monkeypatch.setattr(local.LocalTarget, "remove", forbidden)
    made = recipe(samples=2)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=r"the lock __job/locks/run\..* stays in .*denied"):
            assert run(str(original / "source"), tmp_path, made, engine=InlineEngine()).complete
        monkeypatch.setattr("fastfeed.preprocess.targets.lock.has_ended", lambda _: True)
    assert len(list((tmp_path / LOCKS).iterdir())) == 2
    monkeypatch.undo()
    monkeypatch.setattr("fastfeed.preprocess.targets.lock.has_ended", lambda _: False)
    with (
        pytest.raises(ConfigError, match=r"if their processes have ended: a lock may be left over"),
        job_lock(open_target(tmp_path)),
    ):
        pass
    assert len(list((tmp_path / LOCKS).iterdir())) == 2


def test_a_lock_that_is_not_written_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(self: object, name: str, *content: bytes) -> None:
        raise TargetError(f"cannot change {name}: permission denied", errno.EACCES)

    for method in ("write", "remove"):
        monkeypatch.setattr(local.LocalTarget, method, forbidden)
    with pytest.raises(TargetError, match="denied"), job_lock(open_target(tmp_path)):
        pass


def test_an_interrupted_write_of_a_lock_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = local.LocalTarget.write

    def interrupted(self: Any, name: str, content: bytes) -> None:
        write(self, name, content)
        raise KeyboardInterrupt

    monkeypatch.setattr(local.LocalTarget, "write", interrupted)
    with pytest.raises(KeyboardInterrupt), job_lock(open_target(tmp_path)):
        pass
    assert not (tmp_path / LOCKS).exists()


def test_runs_share_their_lock_and_clear_those_of_ended_ones(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "job"
    shutil.copytree(original, root)
    target = open_target(root / "shards")
    with job_lock(target, shared=True), job_lock(target, shared=True):
        with pytest.raises(ConfigError, match=r"being written by 2 other processes.*/run\..* and"):
            remove(root)
        monkeypatch.setattr("fastfeed.preprocess.targets.lock.has_ended", lambda _: True)
        remove(root)
    assert EFFECTS[remove](names(root)) and not (root / "shards" / LOCKS).exists()


@pytest.mark.parametrize("broken", ["index.json", "shard-000000.mds"])
def test_what_was_verified_before_an_update_is_not_mended(tmp_path: Path, broken: str) -> None:
    job = finished_job(tmp_path, "mds")
    shards = tmp_path / "shards"
    (shards / broken).write_bytes(b"{}")
    found = verify(job)
    remove(tmp_path)
    before = tree(shards)
    with pytest.raises(ConfigError, match=r"changed the plan in .* since it was verified; nothing"):
        repair(job, found)
    assert tree(shards) == before


def test_a_shard_that_was_rebuilt_since_it_was_verified_stays(tmp_path: Path) -> None:
    job = finished_job(tmp_path)
    shards = tmp_path / "shards"
    (shards / "shard-000000.tar").unlink()
    found = verify(job)
    assert found.broken == [0]
    run(str(tmp_path / "source"), shards, job.plan.recipe, engine=InlineEngine())
    assert repair(job, found) == [] and not open_job(job.target).todo


def test_a_sheet_is_of_the_job_as_it_is_when_it_is_drawn(tmp_path: Path) -> None:
    job = finished_job(tmp_path)
    remove(tmp_path)
    preview(open_job(job.target))
    files = tmp_path / "shards/__job/preview"
    before = tree(files)
    preview(job)
    assert tree(files) == before
