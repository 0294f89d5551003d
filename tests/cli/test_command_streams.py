"""Standard output that is full, closed or no longer read, for every command and its help."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from helpers.commands import ForkedCommands

from fastfeed.cli import app

FULL = Path("/dev/full")
SENTENCE = (
    "fastfeed: cannot write to standard output: No space left on device; write to another file\n"
)

# `watch` ends at its first pause
INTERRUPTED = """
from fastfeed.live import watch

def interrupt(self, seconds):
    raise KeyboardInterrupt

watch.Monitor.wait = interrupt
"""


@pytest.fixture(scope="module")
def fastfeed() -> Iterator[ForkedCommands]:
    with ForkedCommands() as forked:
        yield forked


def commands(command: Any, name: str = "") -> list[str]:
    """This command and those inside of it, as they are called."""
    inner = [
        each
        for at, one in getattr(command, "commands", {}).items()
        for each in commands(one, f"{name} {at}")
    ]
    return [name.strip(), *inner]


EVERY = commands(typer.main.get_command(app))
SOME = ["--help", "watch --help", "--version"]
LINES = [*(f"{name} --help".strip() for name in EVERY), "analyze --help-all", "--version"]


def test_every_command_is_here():
    assert {"doctor", "watch", "demo", "analyze", "preprocess verify"} <= set(EVERY) and len(
        EVERY
    ) > 15


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("lines", [SOME, pytest.param(LINES, marks=pytest.mark.slow)])
def test_help_that_cannot_be_printed(fastfeed: ForkedCommands, lines: list[str]):
    for line in lines:
        expect_no_words(fastfeed, line, ["full", "left", "closed"] if lines is SOME else ["full"])


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_help_that_cannot_be_printed_without_a_buffer():
    with ForkedCommands("-u") as fastfeed:
        for line in SOME:
            expect_no_words(fastfeed, line, ["full", "left", "closed"])


def expect_no_words(fastfeed: ForkedCommands, line: str, streams: list[str]):
    for stdout in streams:
        done = fastfeed(*line.split(), stdout=stdout)
        expected = (2, SENTENCE) if stdout == "full" else (0, "")
        assert (done.returncode, done.stderr) == expected, (line, stdout)


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("command", ["doctor", "doctor --json", "watch --once", "plan", "index"])
def test_a_report_that_cannot_be_printed(fastfeed: ForkedCommands, tmp_path: Path, command: str):
    words = [*command.split(), *([] if "doctor" in command else [tmp_path])]
    full, left, closed = (fastfeed(*words, stdout=kind) for kind in ("full", "left", "closed"))
    assert "Traceback" not in full.stderr + left.stderr + closed.stderr
    if full.stderr != closed.stderr:  # else the folder is refused before anything is printed
        assert (full.returncode, full.stderr) == (2, SENTENCE)
    assert (left.returncode, left.stderr) == (closed.returncode, closed.stderr)


def test_a_watch_with_closed_output_continues(fastfeed: ForkedCommands, tmp_path: Path):
    """For what it serves."""
    done = fastfeed("watch", tmp_path, stdout="closed", before=INTERRUPTED)
    assert (done.returncode, done.stderr) == (130, "")
