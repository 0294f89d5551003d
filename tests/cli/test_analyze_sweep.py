"""Traces on standard input, and many runs in one table."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from pathlib import Path

import pytest
from helpers.profiler.simulator.judged import run_of
from helpers.profiler.simulator.to_chrome import write_chrome
from helpers.profiler.simulator.to_nsys import write_nsys
from rich.console import Console
from typer.testing import CliRunner, Result

from fastfeed.cli import app
from fastfeed.cli.traces import options as trace_io
from fastfeed.cli.traces import sweep
from fastfeed.errors import ConfigError, FastfeedError, TraceError


def run(*arguments: object, given: bytes = b"") -> Result:
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "120"}, input=given)
    if isinstance(done.exception, FastfeedError):
        raise done.exception
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep: a folder for each run, and one that holds no trace."""
    folder = tmp_path_factory.mktemp("sweep")
    for name in ("slow_loader", "healthy"):
        (folder / name).mkdir()
    write_nsys(run_of("slow_loader"), folder / "slow_loader" / "trace.sqlite")
    write_chrome(run_of("healthy"), folder / "healthy" / "a.pt.trace.json.gz")
    (folder / "noted").mkdir()
    (folder / "noted" / "notes.txt").write_text("it was slow\n")
    return folder


@pytest.mark.parametrize("name", ["slow_loader/trace.sqlite", "healthy/a.pt.trace.json.gz"])
def test_reads_standard_input(runs: Path, name: str):
    content = (runs / name).read_bytes()
    found = json.loads(run("analyze", "-", "--json", given=content).stdout)
    expected = json.loads(run("analyze", runs / name, "--json").stdout)
    assert found["origins"][0]["path"] == "standard input"
    assert found["devices"] == expected["devices"]
    assert run("analyze", "-", given=gzip.compress(content)).stdout.splitlines()[0]


def test_what_standard_input_cannot_be(runs: Path):
    with pytest.raises(TraceError, match=r"^standard input is empty"):
        run("analyze", "-")
    with pytest.raises(TraceError, match=r"^standard input is text that is not a trace"):
        run("analyze", "-", given=b"it was slow\n")
    with pytest.raises(ConfigError, match=r"standard input .* once"):
        run("diff", "-", "-")
    content = (runs / "healthy" / "a.pt.trace.json.gz").read_bytes()
    assert run("diff", "-", runs / "slow_loader", given=content).stdout.startswith("WORSE")


def test_runs_in_one_table(runs: Path):
    for given in ([runs], [runs / "healthy", runs / "noted", runs / "slow_loader"]):
        done = run("analyze", "--each", *given)
        lines = done.stdout.splitlines()
        assert [line.split()[0] for line in lines] == ["run", "healthy", "noted", "slow_loader"]
        assert "NOT STARVED" in lines[1] and "holds no trace" in lines[2] and "STARVED" in lines[3]


def test_names_of_runs_tell_them_apart(runs: Path, tmp_path: Path):
    """Files of one name in folders of their own; in a file nothing is cut, in a terminal what is
    alike.
    """
    paths = []
    for number in (1, 2):
        folder = tmp_path / ("a_long_name_of_a_sweep_" * 4) / f"run{number}"
        folder.mkdir(parents=True)
        paths.append(shutil.copy(runs / "healthy" / "a.pt.trace.json.gz", folder / "trace.json.gz"))
    lines = run("analyze", "--each", *paths).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["run1/trace.json.gz", "run2/trace.json.gz"]
    other = shutil.copy(runs / "healthy" / "a.pt.trace.json.gz", tmp_path / "other.json.gz")
    found = sweep.read_runs(
        [*map(Path, paths), Path(other)], lambda path: trace_io.analyze_files([path]), lambda *_: 0
    )
    for terminal in (False, True):
        console = Console(file=io.StringIO(), width=60, force_terminal=terminal, color_system=None)
        sweep.render(found, console)
        printed = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert "run1/trace.json.gz" in printed[1] and "run2/trace.json.gz" in printed[2]
        assert all(len(line) <= 60 for line in printed) == terminal


def test_standard_input_is_one_of_several_runs(runs: Path):
    given = (runs / "slow_loader" / "trace.sqlite").read_bytes()
    lines = run("analyze", "--each", "-", runs / "healthy", given=given).stdout.splitlines()
    assert lines[1].startswith("standard input") and lines[2].startswith("healthy")


def test_runs_as_json_and_limits(runs: Path):
    done = run("analyze", "--each", runs, "--json", "--fail-on", "input>5%")
    found = json.loads(done.stdout)
    assert found["schema"] == "fastfeed.sweep/1"
    assert [row["run"] for row in found["runs"]] == ["healthy", "noted", "slow_loader"]
    assert [row["analysis"] is None for row in found["runs"]] == [False, True, False]
    assert found["runs"][1]["error"].endswith("pass the profiler's trace")
    assert found["runs"][2]["analysis"]["schema"] == "fastfeed.analysis/1"
    assert done.exit_code == 3 and "slow_loader: input>5% is exceeded" in done.stderr
    assert (
        run(
            "analyze", "--each", runs / "healthy", runs / "noted", "--fail-on", "input>5%"
        ).exit_code
        == 4
    )


def test_a_sweep_without_any_trace(runs: Path, tmp_path: Path):
    shutil.copytree(runs / "noted", tmp_path / "noted")
    with pytest.raises(TraceError, match="holds no trace"):
        run("analyze", "--each", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match="no run in it"):
        run("analyze", "--each", tmp_path / "empty")
    with pytest.raises(ConfigError, match="--each prints a table"):
        run("analyze", "--each", runs, "--html", tmp_path / "a.html")
