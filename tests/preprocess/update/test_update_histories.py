"""Histories of updates that are killed between any two writes end as those that are left alone."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.photos import folder, jpeg
from helpers.preprocess.outcomes import tree
from helpers.products import in_turn
from helpers.small_jobs import FORMATS, InlineEngine, recipe
from helpers.small_jobs import source as make_source

from fastfeed.preprocess import merge, run, update
from fastfeed.preprocess.job import update as update_module
from fastfeed.preprocess.targets import local

HISTORIES = 40  # of each format
NAMES = [f"{folder}/000{k}.jpg" for folder in ("cats", "dogs") for k in range(5)]
Command = dict[str, Any]


class Killed(BaseException):
    """The end of a process between two writes."""


class Writes:
    """The writes of a process that is killed before its `last` one."""

    def __init__(self, last: int) -> None:
        self.left = last

    def __getattr__(self, name: str) -> Any:
        return (
            self.counted(getattr(os, name)) if name in ("replace", "unlink") else getattr(os, name)
        )

    def counted(self, write: Callable[..., None]) -> Callable[..., None]:
        def call(*paths: str) -> None:
            self.left -= 1
            if self.left < 0:
                raise Killed
            write(*paths)

        return call


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source of ten images and two bad ones, a job of it in each format, and one merged of two."""
    root = tmp_path_factory.mktemp("original")
    make_source(root / "source", 5, ("truncated", "empty"))
    folder(root / "other", {"dogs": 1, "eels": 3}, (48, 56))
    (root / "other/dogs/0000.jpg").rename(root / "other/dogs/other.jpg")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for format in FORMATS:
            made = recipe(format, 4)
            for place in ("source", "other"):
                run(place, f"{place}-{format}", made, engine=InlineEngine())
            merge([f"other-{format}", f"source-{format}"], f"merged-{format}")
    return root


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def commands(chance: random.Random) -> list[Command]:
    """Removals and labels in any order, images that are repaired, and two that are added."""
    removed = chance.sample(NAMES, 3)
    rest = [name for name in NAMES if name not in removed]
    labeled = {name: chance.choice(["cats", "dogs", "wolf"]) for name in chance.sample(rest, 3)}
    parts: list[Command] = [
        {"remove": removed[:1]},
        {"remove": removed[1:], "relabel": dict(list(labeled.items())[:1])},
        {"relabel": dict(list(labeled.items())[1:])},
        {"repair": True},
        {"add": True},
    ]
    chance.shuffle(parts)
    return parts[: chance.randrange(2, 6)]


def without_source(history: list[Command]) -> list[Command]:
    """The commands that copy shards alone."""
    return [command for command in history if not command.keys() & {"repair", "add"}]


def carry_out(root: Path, job: str, history: list[Command], kill: Callable[[], int]) -> Any:
    """The files at the end of a history; each command is repeated until it is not killed."""
    if history == without_source(history):
        shutil.rmtree(root / "source")
    for number, command in enumerate(history):
        if command.get("repair"):
            (root / "source/cats/0000_0.jpg").write_bytes(jpeg(90, (40, 56)))
        if command.get("add"):
            (root / f"source/dogs/new{number}.jpg").write_bytes(jpeg(91 + number, (40, 56)))
        while True:
            local.os = Writes(kill())  # type: ignore[attr-defined]
            try:
                update(str(root / "source"), root / job, engine=InlineEngine(), **command)
                break
            except Killed:
                shutil.rmtree(root / job / "__job/locks", ignore_errors=True)
            finally:
                local.os = os  # type: ignore[attr-defined]
    files = tree(root / job)
    for name in ("plan.json", "removed.jsonl"):
        path = root / job / "__job" / name
        files[name] = path.read_text() if path.exists() else ""
    return files


def begin(original: Path, root: Path, job: str) -> Path:
    shutil.copytree(original / "source", root / "source")
    shutil.copytree(original / job, root / job)
    return root


KINDS = [
    *in_turn(["source", "merged"], range(2)),
    *(
        pytest.param(kind, seed, marks=pytest.mark.nightly)
        for kind in ("source", "merged")
        for seed in range(2, HISTORIES)
    ),
]


@pytest.mark.parametrize(("kind", "seed"), KINDS)
@pytest.mark.parametrize("format", FORMATS)
def test_kills_change_nothing(
    original: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
    kind: str,
    seed: int,
) -> None:
    monkeypatch.setattr(update_module, "_today", lambda: SimpleNamespace(isoformat=lambda: "day"))
    job = f"{kind}-{format}"
    chance = random.Random(f"{job} {seed}")
    history = commands(chance) if seed % 2 else without_source(commands(chance))
    here = tmp_path / "here"
    monkeypatch.chdir(begin(original, here, job))
    undisturbed = carry_out(Path(), job, history, lambda: 1 << 30)
    shutil.rmtree(here)
    monkeypatch.chdir(begin(original, tmp_path / "here", job))
    killed = carry_out(Path(), job, history, lambda: chance.choice([*range(24), 1 << 30]))
    assert killed == undisturbed
    if history != without_source(history):
        return
    shutil.rmtree(here)
    monkeypatch.chdir(begin(original, tmp_path / "here", job))
    chance.shuffle(history)
    assert carry_out(Path(), job, history, lambda: 1 << 30) == undisturbed, "in another order"
