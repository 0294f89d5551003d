"""A retry or resume that is refused, for whatever reason, leaves the job as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.small_jobs import InlineEngine, recipe, source

from fastfeed.errors import FastfeedError
from fastfeed.preprocess import Recipe, Scaling, run
from fastfeed.preprocess.inputs.source_spec import SourceSpec

RETRY: dict[str, Any] = {"engine": InlineEngine(), "retry": ("truncated", "empty")}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return source(tmp_path / "photos")


@pytest.fixture
def shards(photos: Path, tmp_path: Path) -> Path:
    run(photos, tmp_path / "shards", recipe(), engine=InlineEngine())
    return tmp_path / "shards"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


REFUSED: dict[str, Callable[[Path, Path], Any]] = {
    "no such source": lambda photos, shards: run(f"{photos}s", shards, recipe(), **RETRY),
    "another source": lambda photos, shards: run(photos / "dogs", shards, recipe(), **RETRY),
    "another recipe": lambda photos, shards: run(photos, shards, Recipe(Scaling(25)), **RETRY),
    "no labels": lambda photos, shards: run(
        SourceSpec(str(photos), label=""), shards, recipe(), **RETRY
    ),
    "no workers": lambda photos, shards: run(photos, shards, recipe(), retry=("empty",), workers=0),
    "no part": lambda photos, shards: run(photos, shards, recipe(), part=(3, 2), **RETRY),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refused_retry_writes_and_removes_nothing(photos: Path, shards: Path, why: str) -> None:
    before = contents(shards)
    with pytest.raises(FastfeedError):
        REFUSED[why](photos, shards)
    assert contents(shards) == before


def test_a_retry_over_other_pixels_writes_and_removes_nothing(photos: Path, shards: Path) -> None:
    before, first = contents(shards), photos / "dogs/0000.jpg"
    first.write_bytes(first.read_bytes()[:-40] + bytes(38) + b"\xff\xd9")
    with pytest.raises(FastfeedError, match="another content"):
        run(photos, shards, recipe(), **RETRY)
    assert contents(shards) == before


def test_what_is_accepted_rebuilds_these_shards(photos: Path, shards: Path) -> None:
    before = contents(shards)
    report = run(photos, shards, recipe(), **RETRY)
    assert report.complete and report.shards_now == 1
    changed = {name for name, content in contents(shards).items() if before.get(name) != content}
    assert changed == {"__job/times.jsonl"}
