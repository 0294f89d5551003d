"""A job without a terminal, such as under Slurm: its log names each stage that may be long before
it begins.
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from helpers.commands import CliRunner
from helpers.small_jobs import InlineEngine, finished_job, recipe, source
from rich.console import Console

from fastfeed.cli import app
from fastfeed.preprocess import Recipe, Scaling, Selection, run
from fastfeed.preprocess.job.progress import show_progress
from fastfeed.preprocess.model.report import STAGES, Progress


def phases(photos: Path, target: Path, what: Recipe) -> list[str]:
    """What a run tells, each phase once."""
    told: list[str] = []
    run(
        str(photos),
        target,
        what,
        engine=InlineEngine(),
        on_progress=lambda now: told.append(now.phase),
    )
    return list(dict.fromkeys(told))


def test_every_stage_is_told_before_it_begins(tmp_path: Path) -> None:
    photos = source(tmp_path / "photos")
    assert phases(photos, tmp_path / "plain", recipe()) == ["source", "shards", "finish"]
    assert phases(photos, tmp_path / "plain", recipe()) == ["resume", "source", "shards", "finish"]
    near = Recipe(Scaling(24), choice=Selection(dedupe="near"))
    assert phases(photos, tmp_path / "near", near) == [
        "source",
        "survey",
        "compare",
        "shards",
        "finish",
    ]


def test_stages_are_lines_of_the_log_and_none_of_the_shards(tmp_path: Path) -> None:
    file, log = io.StringIO(), tmp_path / "log.jsonl"
    with show_progress(Console(file=file, width=40), log) as listen:
        for k, phase in enumerate([*STAGES, *STAGES]):
            listen(Progress(phase, 0, 0, 0, 0, 0, 0, seconds=k / 100))
    assert file.getvalue().splitlines() == list(STAGES.values()) * 2 and log.read_text() == ""


def test_the_command_says_what_it_does(tmp_path: Path) -> None:
    photos = source(tmp_path / "photos")
    command = [
        str(Path(sys.executable).with_name("fastfeed")),
        "preprocess",
        str(photos),
        str(tmp_path / "shards"),
        "--size",
        "24",
    ]
    done = subprocess.run(
        [*command, "--workers", "1"], capture_output=True, text=True, check=True, timeout=200
    )
    lines = done.stderr.splitlines()
    assert lines[0] == STAGES["source"] and lines[-1] == STAGES["finish"]


def test_verify_and_preview_tell_their_progress(tmp_path: Path, capsys, monkeypatch) -> None:
    from fastfeed.cli.preprocess import inspect as preprocess_inspect

    finished_job(tmp_path)
    monkeypatch.setattr(preprocess_inspect, "LINES_S", 0.0)
    preprocess_inspect.verify(str(tmp_path / "shards"))
    assert "reading shard 4 of 4" in capsys.readouterr().err.splitlines()
    preprocess_inspect.preview(str(tmp_path / "shards"), shards=2)
    assert "drawing shard 2 of 2" in capsys.readouterr().err.splitlines()


def test_a_dry_run_tells_its_progress(tmp_path: Path, monkeypatch) -> None:
    from fastfeed.cli.preprocess import inspect as preprocess_inspect

    photos = source(tmp_path / "photos")
    monkeypatch.setattr(preprocess_inspect, "LINES_S", 0.0)
    done = CliRunner().invoke(
        app, ["preprocess", str(photos), str(tmp_path / "shards"), "--dry-run", "--workers", "1"]
    )
    assert "processing a sample: 21 of 21 images" in done.stderr.splitlines()
