"""`fastfeed profile`: the command's streams and exit code, a report, and every reason why there is
none.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment
from helpers.commands import STRICT, CliRunner
from helpers.profiler import fake_nsys
from helpers.profiler.simulator.judged import run_of
from helpers.profiler.simulator.to_nsys import write_nsys

from fastfeed.cli import app
from fastfeed.errors import ConfigError
from fastfeed.profiler.runner import environment as runner_environment
from fastfeed.profiler.runner import nsight

pytestmark = pytest.mark.slow

PROFILE = """
import pathlib, sys
from fastfeed.cli import main
from fastfeed.profiler.runner import nsight
nsight.ROOT = pathlib.Path.cwd()  # no nsys of this machine
sys.argv[0] = "fastfeed"
main()
"""
FEED = """
import sys, numpy as np, fastfeed as ff
with ff.Feed(ff.Arrays(np.zeros((64, 8, 8, 3), np.uint8), np.arange(64)), [ff.RandomFlip()], batch=8, seed=0) as feed:
    print(sum(len(batch.labels) for batch in feed))
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nsight, "ROOT", tmp_path)
    monkeypatch.setattr(runner_environment, "_NVPROF", ())
    bin = tmp_path / "bin"
    bin.mkdir()
    for program in ("sh", "true"):
        (bin / program).symlink_to(shutil.which(program) or "")
    monkeypatch.setenv("PATH", str(bin))
    monkeypatch.setenv("NSYS", "")
    (tmp_path / "feed.py").write_text(FEED)
    return tmp_path


@pytest.fixture
def starved(here: Path) -> Path:
    """An nsys that records a run of a slow loader, whatever it runs."""
    return fake_nsys.install(
        here / "nsys", export=str(write_nsys(run_of("slow_loader"), here / "slow.db"))
    )


def profile(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *STRICT, "-c", PROFILE, "profile", *map(str, arguments)],
        env=environment(COLUMNS="120", **environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_runs_records_and_reports(here: Path, starved: Path):
    done = profile("--nsys", starved, "--", sys.executable, "-c", "print('trained')")
    assert done.returncode == 0 and done.stdout == "trained\n"
    assert re.match(r"(STARVED|SEVERE)", done.stderr)
    out = here / "fastfeed-profile"
    assert f"report: {out / 'report.html'}" in done.stderr and f"recording: {out}" in done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "trace.nsys-rep"]
    profile("--nsys", starved, "--no-html", "true")
    assert [path.name for path in (here / "fastfeed-profile-2").iterdir()] == ["trace.nsys-rep"]


@pytest.mark.parametrize(
    ("code", "limit", "returned"), [(0, "input>5%", 3), (0, "gc>5%", 0), (7, "input>5%", 7)]
)
def test_limits_apply_to_commands_that_succeed(
    here: Path, starved: Path, code: int, limit: str, returned: int
):
    done = profile("--nsys", starved, "--fail-on", limit, "--no-html", "sh", "-c", f"exit {code}")
    assert done.returncode == returned
    assert ("is exceeded" in done.stderr) == (limit == "input>5%")


def test_without_nsys_the_feed_tells_what_it_knows(here: Path):
    done = profile("--no-html", "--fail-on", "input>5%", "--", sys.executable, "feed.py", 0)
    assert done.stdout == "64\n" and done.returncode == 3
    assert (
        "no training step was recorded: the command imports neither PyTorch, JAX, TensorFlow nor"
        " Keras" in done.stderr
    )
    assert "NO VERDICT" in done.stderr and "8 batches" in done.stderr
    assert "input>5% is exceeded: no GPU was recorded, and the trainer" in done.stderr


def test_without_a_gpu_the_feed_tells_what_it_knows(here: Path):
    empty = here / "empty.db"
    empty.touch()  # of a run without CUDA there is nothing that can be read
    nsys = fake_nsys.install(here / "nsys", export=str(empty))
    done = profile("--nsys", nsys, "--no-html", "--", sys.executable, "feed.py", 3)
    assert done.stdout == "64\n" and done.returncode == 3
    assert (
        done.stderr.startswith("NO VERDICT  The recording has no device activity")
        and "8 batches" in done.stderr
    )


def test_says_where_there_is_nothing_at_all(here: Path):
    done = profile("true")
    assert done.returncode == 0
    assert done.stderr.startswith(
        "fastfeed: no training step was recorded: the command runs no Python 3.9 or later"
    )
    assert done.stderr.count("\n") == 1
    assert profile("--fail-on", "input>5%", "true").returncode == 4


def test_refuses_in_one_line(here: Path, starved: Path):
    (here / "train.py").write_text("")
    for arguments, code, says in (
        (["absent"], 127, "cannot run absent: no such program; name one after --"),
        (
            ["./train.py"],
            126,
            "cannot run ./train.py: it is not executable; try: python ./train.py",
        ),
        (
            ["train.py"],
            127,
            "cannot run train.py: it is not a program on PATH; try: python train.py",
        ),
        (["./"], 126, "cannot run ./: it is a folder; name a program after --"),
        (["--with", "nsys", "true"], 2, "nsys was not found: install Nsight Systems"),
        (["--with", "nvprof", "true"], 2, "--with nvprof needs nvprof"),
        (["--with", "nvprof", "--delay", 3, "true"], 2, "--delay and --duration need nsys"),
        (
            ["--nsys", here, "true"],
            2,
            f"--nsys must name the program nsys of Nsight Systems, got {here}",
        ),
        (["--out", "train.py/x", "true"], 2, "cannot write a recording into"),
        (["--fail-on", "input", "true"], 2, "--fail-on must be a cause and a share"),
    ):
        done = CliRunner().invoke(app, ["profile", *map(str, arguments)])
        if code == 2:
            assert isinstance(done.exception, ConfigError) and str(done.exception).startswith(says)
        else:
            assert (done.exit_code, done.stderr.count("\n")) == (
                code,
                1,
            ) and done.stderr.startswith(f"fastfeed: {says}")
        assert done.stdout == ""
    done = CliRunner().invoke(app, ["profile"])
    assert done.exit_code == 2 and "COMMAND" in done.stderr
    assert not list(here.glob("fastfeed-profile*"))


def test_inside_a_rank_the_first_one_reports(here: Path, starved: Path):
    said = [
        profile("--nsys", starved, "--no-html", "true", RANK=rank, WORLD_SIZE="2").stderr
        for rank in "01"
    ]
    assert re.match(r"(STARVED|SEVERE)", said[0]) and said[1] == ""
    names = sorted(path.name for path in (here / "fastfeed-profile").iterdir())
    assert names == ["rank0.nsys-rep", "rank1.nsys-rep"]
    done = profile("--fail-on", "input>5%", "true", RANK="0")
    assert done.returncode == 2 and "--fail-on judges all ranks at once" in done.stderr


def test_nvprof_is_for_gpus_that_it_knows(here: Path):
    for name, text in (("nvprof", 'shift 4; exec "$@"'), ("nvidia-smi", "echo 'NVIDIA H200, 9.0'")):
        (here / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (here / "bin" / name).chmod(0o755)
    done = profile("--with", "nvprof", "true")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert (
        "needs GPUs of compute capability 7.x or lower, NVIDIA H200 has 9.0; use --with nsys"
        in done.stderr
    )
    (here / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho 'Tesla V100, 7.0'\n")
    done = profile("--with", "nvprof", "sh", "-c", "exit 5")
    assert done.returncode == 5 and "nvprof left no recording" in done.stderr


@pytest.mark.parametrize("how", ["nsys", "plain"])
def test_ctrl_c_is_for_the_command(here: Path, starved: Path, how: str):
    """In a terminal of its own: the key reaches the command once, and the report still comes."""
    (here / "train.py").write_text(
        "import time\n"
        "try:\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(0.3)\n    print('stopped', flush=True)\n"
        "    raise SystemExit(9)\n"
    )
    more = ["--nsys", str(starved)] if how == "nsys" else []
    command = [
        sys.executable,
        "-c",
        PROFILE,
        "profile",
        "--no-html",
        *more,
        sys.executable,
        "train.py",
    ]
    environ = environment(COLUMNS="100")
    pid, terminal = pty.fork()
    if pid == 0:
        # a shell's background job begins with it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execve(sys.executable, command, environ)
    said = b""
    try:
        while chunk := os.read(terminal, 65536):
            said += chunk
            if said.endswith(b"ready\r\n"):
                os.write(terminal, b"\x03")
    except OSError:  # the terminal is gone
        pass
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    text = said.decode()
    assert os.waitstatus_to_exitcode(status) == 9, text
    assert text.count("stopped") == 1 and "Traceback" not in text
    assert ("STARVED" in text or "SEVERE" in text) == (how == "nsys")
