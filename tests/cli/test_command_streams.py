"""Standard output that is full, closed or no longer read, for every command and its help."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import environment
from helpers.commands import STRICT

from fastfeed.cli import app

FULL = Path("/dev/full")
SENTENCE = (
    "fastfeed: cannot write to standard output: No space left on device; write to another file\n"
)

# Each case in a process of its own, without importing everything again: "full", "left" (no one
# reads) or "closed"
DRIVER = """
import contextlib, io, json, os, sys, tempfile
from fastfeed.cli import app, main
from fastfeed.live import watch

def interrupt(self, seconds):
    raise KeyboardInterrupt

with contextlib.redirect_stdout(io.StringIO()):  # what help imports
    app(["--help"], standalone_mode=False)
if sys.argv[2] == "watching":
    watch.Watch.rest = interrupt
results = []
for line, where in json.loads(sys.argv[1]):
    errors, reading = tempfile.TemporaryFile(), None
    sys.stdout.flush()
    child = os.fork()
    if not child:
        if where == "full":
            os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        elif where == "left":
            reader, writer = os.pipe()
            os.close(reader)
            os.dup2(writer, 1)
        else:
            os.close(1)
            sys.stdout = None
        os.dup2(errors.fileno(), 2)
        sys.argv = ["fastfeed", *line.split()]
        errors.close()
        main()
        sys.exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    errors.seek(0)
    results.append([code, errors.read().decode()])
print(json.dumps(results))
"""


def commands(command: Any, name: str = "") -> list[str]:
    """This command and those inside of it, as they are called."""
    inner = [
        each
        for at, one in getattr(command, "commands", {}).items()
        for each in commands(one, f"{name} {at}")
    ]
    return [name.strip(), *inner]


def run(
    cases: list[tuple[str, str]], how: str = "", **environ: str
) -> dict[tuple[str, str], tuple[int, str]]:
    command = [sys.executable, *STRICT, "-c", DRIVER, json.dumps(cases), how]
    done = subprocess.run(
        command,
        env=environment(**environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(cases, map(tuple, json.loads(done.stdout)), strict=True))


EVERY = commands(typer.main.get_command(app))
SOME = ["--help", "watch --help", "--version"]
LINES = [*(f"{name} --help".strip() for name in EVERY), "analyze --help-all", "--version"]


def test_every_command_is_here():
    assert {"doctor", "watch", "demo", "analyze", "preprocess verify"} <= set(EVERY) and len(
        EVERY
    ) > 15


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("lines", "unbuffered"),
    [(SOME, ""), (SOME, "1"), pytest.param(LINES, "", marks=pytest.mark.slow)],
)
def test_help_that_cannot_be_printed(lines: list[str], unbuffered: str):
    cases = [
        (line, where)
        for line in lines
        for where in (("full", "left", "closed") if lines is SOME else ("full",))
    ]
    for (line, where), (code, stderr) in run(cases, PYTHONUNBUFFERED=unbuffered).items():
        if where == "full":
            assert (code, stderr) == (2, SENTENCE), line
        else:
            assert (code, stderr) == (0, ""), (line, where)


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_a_report_that_cannot_be_printed(tmp_path: Path):
    lines = [
        "doctor",
        "doctor --json",
        f"watch --once {tmp_path}",
        f"plan {tmp_path}",
        f"index {tmp_path}",
    ]
    results = run([(line, where) for line in lines for where in ("full", "left", "closed")])
    for line in lines:
        full, full_errors = results[line, "full"]
        left, left_errors = results[line, "left"]
        closed, closed_errors = results[line, "closed"]
        assert "Traceback" not in full_errors + left_errors + closed_errors
        if full_errors != closed_errors:  # else the folder is refused before anything is printed
            assert (full, full_errors) == (2, SENTENCE), line
        assert left == closed and left_errors == closed_errors, line


def test_a_watch_with_closed_output_continues(tmp_path: Path):
    """For what it serves."""
    (result,) = run([(f"watch {tmp_path}", "closed")], "watching").values()
    assert result == (130, "")
