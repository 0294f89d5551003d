"""What `fastfeed analyze` may write over: its own earlier reports, and never what it reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.commands import CliRunner
from helpers.profiler.simulator.judged import run_of
from helpers.profiler.simulator.to_chrome import write_chrome
from helpers.profiler.simulator.to_nsys import write_nsys

from fastfeed.cli import app
from fastfeed.errors import ConfigError, FastfeedError, TraceError


def analyze(*arguments: object) -> str:
    """Standard error. What the command refuses is raised."""
    done = CliRunner().invoke(app, ["analyze", *map(str, arguments)], env={"COLUMNS": "120"})
    if isinstance(done.exception, FastfeedError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stderr


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_chrome(run_of("slow_loader"), tmp_path / "run" / "t.json.gz")


@pytest.fixture(autouse=True)
def _run_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(exist_ok=True)


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("name", ["the file", "a symbolic link", "a hard link"])
def test_what_is_read_is_never_written(
    trace: Path, tmp_path: Path, name: str, force: tuple[str, ...]
):
    before, out = trace.read_bytes(), trace
    if name != "the file":
        out = tmp_path / "link.json.gz"
        (out.symlink_to if name == "a symbolic link" else out.hardlink_to)(trace)
    for given in (trace, trace.parent):  # a folder stands for the traces in it
        with pytest.raises(
            ConfigError, match=r"--perfetto would overwrite .* which is read; choose another name"
        ):
            analyze(given, "--perfetto", out, *force)
    assert trace.read_bytes() == before


def test_a_trace_on_standard_input_is_not_written_over(trace: Path):
    before = trace.read_bytes()
    command = [
        sys.executable,
        "-c",
        "from fastfeed.cli import main; main()",
        "analyze",
        "-",
        "--perfetto",
        str(trace),
        "--force",
    ]
    with trace.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, text=True)
    assert done.returncode == 2 and "which is read; choose another name" in done.stderr
    assert trace.read_bytes() == before


def test_a_page_is_not_written_over_a_trace_of_its_name(tmp_path: Path):
    trace = write_nsys(run_of("slow_loader"), tmp_path / "run.html")
    with pytest.raises(ConfigError, match=r"--html would overwrite .*run.html, which is read"):
        analyze(trace, "--html", tmp_path / "run" / ".." / "run.html", "--force")
    assert trace.read_bytes().startswith(b"SQLite")


@pytest.mark.parametrize("option", ["--html", "--perfetto"])
def test_files_of_others_are_kept_unless_forced(trace: Path, tmp_path: Path, option: str):
    out = tmp_path / ("mine.html" if option == "--html" else "mine.json")
    out.write_text('{"traceEvents": []}')
    with pytest.raises(
        ConfigError,
        match=rf"{option} would overwrite .*, which fastfeed did not write; choose .*--force",
    ):
        analyze(trace, option, out)
    assert out.read_text() == '{"traceEvents": []}'
    analyze(trace, option, out, "--force")
    assert "fastfeed" in out.read_text()


@pytest.mark.parametrize("name", ["again.html", "again.json", "again.json.gz"])
def test_its_own_reports_are_replaced(trace: Path, tmp_path: Path, name: str):
    out = tmp_path / name
    option = "--html" if name.endswith("html") else "--perfetto"
    out.touch()  # nothing is lost with an empty file
    for _ in range(2):
        assert str(out) in analyze(trace, option, out)
    os.utime(out, (0, 0))
    analyze(trace, option, out)
    assert out.stat().st_mtime > 0


def test_its_own_tracks_are_no_trace(trace: Path):
    tracks = trace.with_name("idle.json")
    analyze(trace, "--perfetto", tracks)
    with pytest.raises(
        TraceError,
        match=r"idle.json holds the tracks that fastfeed wrote with --perfetto, not a recording",
    ):
        analyze(tracks)
    assert analyze(trace.parent) == ""  # next to their trace they are passed over
    assert json.loads(tracks.read_text())["otherData"]["producer"] == "fastfeed"
