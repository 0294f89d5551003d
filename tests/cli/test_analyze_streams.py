"""Standard output that is full, closed or no longer read, files that cannot be read, names that
change the terminal.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment
from helpers.commands import STRICT
from helpers.profiler import fake_nsys
from helpers.profiler.simulator.judged import run_of
from helpers.profiler.simulator.to_nsys import write_nsys

COMMAND = "import sys; sys.argv[0] = 'fastfeed'; from fastfeed.cli import main; main()"
FULL, UNREADABLE = Path("/dev/full"), Path("/proc/self/mem")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_nsys(run_of("slow_loader"), tmp_path_factory.mktemp("slow") / "slow.sqlite")


def shell(line: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a line of bash, where $F is fastfeed and $1 and so on are the arguments."""
    script = f"""set -o pipefail; F() {{ "$0" {" ".join(STRICT)} -c "{COMMAND}" "$@"; }}; {line}"""
    command = ["/bin/bash", "-c", script, sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, env=environment(COLUMNS="80"), capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "line", ["analyze $1", "analyze $1 --json", "diff $1 $1", "diff $1 $1 --json"]
)
def test_a_full_standard_output_is_one_sentence(slow: Path, line: str):
    done = shell(f"F {line} > /dev/full", slow)
    assert done.returncode == 2
    assert (
        done.stderr
        == "fastfeed: cannot write to standard output: No space left on device; write to another"
        " file\n"
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("analyze $1", 0),
        ("analyze $1 --json", 0),
        ("analyze $1 --fail-on 'input>5%'", 3),
        ("analyze $1 --json --fail-on 'gc>5%'", 0),
        ("diff $1 $1", 0),
    ],
)
def test_a_reader_that_leaves_does_not_change_the_exit_code(slow: Path, line: str, code: int):
    done = shell(f"F {line} | true", slow)
    assert done.returncode == code
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert done.stderr.count("\n") == line.count("--fail-on")


def test_reports_are_written_though_no_one_reads_standard_output(slow: Path, tmp_path: Path):
    page = tmp_path / "page.html"
    assert (
        shell("F analyze $1 --html $2 | true", slow, page).returncode == 0 and page.stat().st_size
    )


def test_closed_streams(slow: Path):
    done = shell("F analyze $1 --fail-on 'input>5%' >&-", slow)
    assert (done.returncode, done.stdout) == (3, "") and done.stderr.count("\n") == 1
    done = shell("F analyze $1 --fail-on 'input>5%' 2> /dev/full", slow)
    assert done.returncode == 3 and done.stdout.startswith(("STARVED", "SEVERE"))
    for stderr in ("/dev/full", "&-"):
        assert shell(f"F analyze missing.sqlite 2> {stderr}".replace("> &", ">&")).returncode == 2


@pytest.mark.skipif(not UNREADABLE.exists(), reason="needs /proc, which only Linux has")
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path):
    link = tmp_path / "t.sqlite"
    link.symlink_to(UNREADABLE)
    done = shell("F analyze $1", link)
    assert done.returncode == 2 and done.stdout == ""
    assert (
        done.stderr
        == f"fastfeed: cannot read {link}: Input/output error; copy it again, or record again\n"
    )


@pytest.mark.parametrize("line", ['analyze "$1"', 'diff "$1" "$1"', 'analyze . --html "$1"'])
def test_names_do_not_reach_the_terminal_raw(tmp_path: Path, line: str):
    path = tmp_path / "a\x1b[31m\nb\u202e.txt"
    path.write_text("x \x1b[31m")
    done = shell(f"cd {tmp_path}; F {line}", path)
    assert done.returncode == 2
    assert r"a\x1b[31m\nb\u202e.txt" in done.stderr.replace("\n", r"\n")
    assert done.stderr.count("\n") == 1 + ("--html" in line)
    assert "\x1b" not in done.stderr and "\u202e" not in done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("where", ["2> /dev/full", "2> >(true)", "2>&-"])
def test_a_report_that_cannot_be_printed_leaves_the_code_of_the_command(
    slow: Path, tmp_path: Path, where: str
):
    nsys = fake_nsys.install(tmp_path / "nsys", export=str(slow))
    done = shell(
        f"F profile --nsys $1 --out $2 -- sh -c 'sleep 0.3; exit 7' {where}", nsys, tmp_path / "out"
    )
    assert done.returncode == 7 and (tmp_path / "out" / "report.html").exists()
