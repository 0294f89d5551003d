"""Standard output that is full, closed or no longer read, files that cannot be read, names that
change the terminal.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.commands import STRICT, ForkedCommands
from helpers.profiler import fake_nsys
from helpers.profiler.simulator.judged import run_of
from helpers.profiler.simulator.to_nsys import write_nsys

FULL, UNREADABLE = Path("/dev/full"), Path("/proc/self/mem")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_nsys(run_of("slow_loader"), tmp_path_factory.mktemp("slow") / "slow.sqlite")


@pytest.fixture(scope="module")
def fastfeed() -> Iterator[ForkedCommands]:
    with ForkedCommands(COLUMNS="80") as commands:
        yield commands


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "words", [["analyze"], ["analyze", "--json"], ["diff"], ["diff", "--json"]]
)
def test_a_full_standard_output_is_one_sentence(
    fastfeed: ForkedCommands, slow: Path, words: list[str]
):
    command, *options = words
    done = fastfeed(command, *[slow] * (1 + (command == "diff")), *options, stdout="full")
    assert done.returncode == 2
    assert (
        done.stderr
        == "fastfeed: cannot write to standard output: No space left on device; write to another"
        " file\n"
    )


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 0),
        (["--json"], 0),
        (["--fail-on", "input>5%"], 3),
        (["--json", "--fail-on", "gc>5%"], 0),
    ],
)
def test_a_reader_that_leaves_does_not_change_the_exit_code(
    fastfeed: ForkedCommands, slow: Path, options: list[str], code: int
):
    done = fastfeed("analyze", slow, *options, stdout="left")
    assert done.returncode == code
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert done.stderr.count("\n") == options.count("--fail-on")


def test_a_reader_of_a_comparison_that_leaves(fastfeed: ForkedCommands, slow: Path):
    done = fastfeed("diff", slow, slow, stdout="left")
    assert (done.returncode, done.stderr) == (0, "")


def test_reports_are_written_though_no_one_reads_standard_output(
    fastfeed: ForkedCommands, slow: Path, tmp_path: Path
):
    page = tmp_path / "page.html"
    done = fastfeed("analyze", slow, "--html", page, stdout="left")
    assert done.returncode == 0 and page.stat().st_size


def test_closed_streams(fastfeed: ForkedCommands, slow: Path):
    command = ["analyze", slow, "--fail-on", "input>5%"]
    done = fastfeed(*command, stdout="closed")
    assert (done.returncode, done.stdout) == (3, "") and done.stderr.count("\n") == 1
    done = fastfeed(*command, stderr="full")
    assert done.returncode == 3 and done.stdout.startswith(("STARVED", "SEVERE"))
    for stderr in ("full", "closed"):
        assert fastfeed("analyze", "missing.sqlite", stderr=stderr).returncode == 2


def test_a_program_of_its_own_with_closed_streams():
    """As a shell starts it: the interpreter itself finds them closed."""
    program = "import sys; sys.argv[0] = 'fastfeed'; from fastfeed.cli import main; main()"
    script = f"""\"$0\" {" ".join(STRICT)} -c "{program}" analyze missing.sqlite >&- 2>&-"""
    assert subprocess.run(["/bin/sh", "-c", script, sys.executable], check=False).returncode == 2


@pytest.mark.skipif(not UNREADABLE.exists(), reason="needs /proc, which only Linux has")
def test_a_file_that_cannot_be_read_is_one_sentence(fastfeed: ForkedCommands, tmp_path: Path):
    link = tmp_path / "t.sqlite"
    link.symlink_to(UNREADABLE)
    done = fastfeed("analyze", link)
    assert done.returncode == 2 and done.stdout == ""
    assert (
        done.stderr
        == f"fastfeed: cannot read {link}: Input/output error; copy it again, or record again\n"
    )


@pytest.mark.parametrize("words", ["analyze $1", "diff $1 $1", "analyze . --html $1"])
def test_names_do_not_reach_the_terminal_raw(fastfeed: ForkedCommands, tmp_path: Path, words: str):
    path = tmp_path / "a\x1b[31m\nb\u202e.txt"
    path.write_text("x \x1b[31m")
    done = fastfeed(*(str(path) if word == "$1" else word for word in words.split()), cwd=tmp_path)
    assert done.returncode == 2
    assert r"a\x1b[31m\nb\u202e.txt" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr and "\u202e" not in done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("stderr", ["full", "left", "closed"])
def test_a_report_that_cannot_be_printed_leaves_the_code_of_the_command(
    fastfeed: ForkedCommands, slow: Path, tmp_path: Path, stderr: str
):
    nsys = fake_nsys.install(tmp_path / "nsys", export=str(slow))
    command = ["sh", "-c", "sleep 0.3; exit 7"]
    done = fastfeed(
        "profile", "--nsys", nsys, "--out", tmp_path / "out", "--", *command, stderr=stderr
    )
    assert done.returncode == 7 and (tmp_path / "out" / "report.html").exists()
