"""`fastfeed analyze` and `fastfeed diff`: what they print, write, refuse, and return."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.commands import command_line
from helpers.profiler.simulator.judged import run_of
from helpers.profiler.simulator.to_chrome import write_chrome
from helpers.profiler.simulator.to_nsys import write_nsys
from helpers.profiler.simulator.to_timeline import write_timeline
from typer.testing import CliRunner, Result

from fastfeed.cli import app
from fastfeed.errors import ConfigError, TraceError


def run(*arguments: object, width: int = 120, raises: bool = True) -> Result:
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": str(width)})
    if raises and done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_nsys(run_of("slow_loader"), tmp_path_factory.mktemp("slow") / "slow.sqlite")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chrome(
        run_of("healthy"), tmp_path_factory.mktemp("healthy") / "healthy.pt.trace.json.gz"
    )


@pytest.mark.parametrize("width", [80, 120])
def test_answers_in_one_screen(slow: Path, width: int):
    done = run("analyze", slow, width=width)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith(("STARVED", "SEVERE")) and len(lines) <= 50
    assert max(map(len, lines)) <= width


def test_json_is_all_of_standard_output(slow: Path):
    done = run("analyze", slow, "--json", "--fail-on", "input>5%")
    found = json.loads(done.stdout)
    assert found["schema"] == "fastfeed.analysis/1" and found["verdict"]["word"] in (
        "starved",
        "severe",
    )
    assert done.exit_code == 3 and "input>5% is exceeded" in done.stderr


def test_exit_codes_of_limits(slow: Path, healthy: Path, tmp_path: Path):
    assert run("analyze", healthy, "--fail-on", "input>5%").exit_code == 0
    assert run("analyze", slow, "--fail-on", "checkpoint>5%", "--fail-on", "idle>1%").exit_code == 3
    timeline = write_timeline(run_of("slow_loader"), tmp_path / "timeline.jsonl")
    assert run("analyze", timeline).exit_code == 0
    done = run("analyze", timeline, "--fail-on", "input>5%")
    assert done.exit_code == 3 and "no GPU was recorded, and the trainer" in done.stderr


def test_writes_a_page_and_tracks(slow: Path, tmp_path: Path):
    page, tracks = tmp_path / "report.html", tmp_path / "idle.json"
    done = run("analyze", slow, "--html", page, "--perfetto", tracks)
    assert (
        f"report: {page}" in done.stderr and f"tracks for ui.perfetto.dev: {tracks}" in done.stderr
    )
    assert page.read_text("utf-8").lstrip().lower().startswith("<!doctype html")
    assert json.loads(tracks.read_text())["traceEvents"]


def test_a_folder_is_one_run(slow: Path, tmp_path: Path):
    write_nsys(run_of("slow_loader"), tmp_path / "trace.sqlite")
    write_timeline(run_of("slow_loader"), tmp_path / "timeline.jsonl")
    whole = json.loads(run("analyze", tmp_path, "--json").stdout)
    assert [one["dialect"] for one in whole["origins"]] == ["nsys"]
    assert whole["feeds"] and len(whole["devices"]) == 1


def test_last_steps(slow: Path):
    few = json.loads(run("analyze", slow, "--json", "--steps", 7).stdout)
    assert few["devices"][0]["steps"]["steady"] == 7


def test_refuses_before_reading(tmp_path: Path):
    absent = tmp_path / "absent.sqlite"
    with pytest.raises(ConfigError, match="--fail-on must be a cause and a share"):
        run("analyze", absent, "--fail-on", "input")
    with pytest.raises(ConfigError, match=r"--html must be a .html or .htm in an existing folder"):
        run("analyze", absent, "--html", tmp_path / "no" / "report.html")
    with pytest.raises(
        ConfigError, match=r"--perfetto must be a .json or .json.gz in an existing folder"
    ):
        run("analyze", absent, "--perfetto", tmp_path / "tracks.pb")
    with pytest.raises(TraceError, match="absent"):
        run("analyze", absent)


def test_a_bad_file_is_one_line_and_exit_code_2(tmp_path: Path):
    bad = tmp_path / "notes.txt"
    bad.write_text("it was slow\n")
    done = command_line("analyze", bad)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"fastfeed: {bad} is ") and done.stderr.count("\n") == 1


def test_diff_says_what_moved(slow: Path, healthy: Path):
    done = run("diff", slow, healthy)
    assert done.exit_code == 0 and done.stdout.startswith("BETTER")
    worse = run("diff", healthy, slow, "--fail-on", "input>5%")
    assert worse.exit_code == 3 and worse.stdout.startswith("WORSE")
    assert json.loads(run("diff", slow, healthy, "--json").stdout)["outcome"] == "better"
