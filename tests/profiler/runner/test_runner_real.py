"""The runner with a real Nsight Systems, without a GPU: what the stand-in of the other tests
claims.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from conftest import ROOT, environment
from helpers.profiler import fake_torch
from helpers.profiler.process_tree import process_tree
from helpers.profiler.signalled import when_ready

from fastfeed.errors import TraceError
from fastfeed.profiler import readers
from fastfeed.profiler.runner import nsight
from fastfeed.profiler.runner.recorder import supported_options
from fastfeed.profiler.runner.session import record
from fastfeed.profiler.runner.settings import Recording, RecordingSettings

pytestmark = pytest.mark.slow

Run = Callable[..., Recording]
# nsys 2022.4 itself leaves no recording once in some hundreds of runs; the command runs all the
# same
TRIES = 3


@pytest.fixture(scope="module")
def nsys() -> Path:
    fetched = ROOT / "build" / "nsys" / "nsys"
    found = fetched if fetched.exists() and not os.environ.get("NSYS") else nsight.find()
    if found is None:
        pytest.skip("no nsys; make nsys (Debian, Ubuntu), or install Nsight Systems, or set NSYS")
    return found


@pytest.fixture
def run(
    nsys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Run:
    monkeypatch.chdir(tmp_path)

    def tell(text: str) -> None:
        request.node.add_report_section("call", "tries", text)

    def run(*command: str, delay: int = 0, duration: int = 0) -> Recording:
        settings = RecordingSettings(command, tmp_path / "out", "nsys", delay, duration, nsys)
        done = None
        for n in range(TRIES):
            started = time.monotonic()
            try:
                done = record(settings, environment())
            except pytest.fail.Exception:  # it took too long
                tell(f"try {n + 1}, {time.monotonic() - started:.0f} s\n{process_tree()}")
                raise
            tell(f"try {n + 1}, {time.monotonic() - started:.0f} s: {done}")
            if done.traces:
                break
        assert done
        return done

    return run


def test_knows_the_light_options(nsys: Path):
    assert {
        "trace",
        "sample",
        "cpuctxsw",
        "wait",
        "kill",
        "delay",
        "duration",
    } <= supported_options(nsys)


@pytest.mark.parametrize(
    ("command", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill $$", 143)]
)
def test_returns_the_code_of_the_command(run: Run, tmp_path: Path, command: str, code: int):
    done = run("sh", "-c", command)
    assert (done.code, done.notes) == (code, ())
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["trace.nsys-rep"]
    assert done.traces == (tmp_path / "out" / "trace.nsys-rep",)


def test_the_streams_are_the_terminals(run: Run, capfd: pytest.CaptureFixture[str]):
    run("sh", "-c", "echo out; echo err >&2")
    assert capfd.readouterr() == ("out\n", "err\n")


def test_the_recording_is_exported(
    run: Run, nsys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    done = run(sys.executable, "-c", "pass")
    with closing(sqlite3.connect(nsight.export(done.traces[0], tmp_path, nsys))) as made:
        tables = {
            name for (name,) in made.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
    assert {"StringIds", "TARGET_INFO_SESSION_START_TIME"} <= tables
    if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables:
        monkeypatch.setenv("NSYS", str(nsys))
        with pytest.raises(TraceError, match="has no CUDA activity"):
            readers.read(done.traces[0])


def test_steps_and_waits_for_the_loader_are_marked(
    run: Run, nsys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", str(fake_torch.install(tmp_path / "site")))
    code = (
        "import torch; from torch.utils.data import DataLoader; optimizer ="
        " torch.optim.Optimizer()\nfor batch in DataLoader(range(5)): optimizer.step()"
    )
    done = run(sys.executable, "-c", code)
    assert (done.code, done.notes) == (0, ())
    with closing(sqlite3.connect(nsight.export(done.traces[0], tmp_path, nsys))) as made:
        names = [
            name
            for (name,) in made.execute(
                "SELECT text FROM NVTX_EVENTS WHERE end > start ORDER BY start"
            )
        ]
    waits = ["enumerate(DataLoader)#_BaseDataLoaderIter.__next__"]
    assert names == waits + [
        name for step in range(1, 6) for name in (f"ProfilerStep#{step}", *waits)
    ]


def test_the_command_outlives_the_recording(run: Run):
    done = run(sys.executable, "-c", "import sys, time; time.sleep(4); sys.exit(5)", duration=1)
    assert done.code == 5 and done.traces and not done.notes


def test_the_command_ends_before_the_recording_begins(nsys: Path, tmp_path: Path):
    done = record(
        RecordingSettings(("sh", "-c", "exit 3"), tmp_path / "out", "nsys", delay=60, nsys=nsys),
        environment(),
    )
    assert (
        done.code == 3
        and not done.traces
        and "did the command end within --delay 60?" in done.notes[0]
    )


def test_a_command_may_take_its_time_after_a_signal(nsys: Path, tmp_path: Path):
    code = (
        "import signal, sys, time\n"
        "def handle(*_): time.sleep(1); print('saved', flush=True); sys.exit(11)\n"
        "signal.signal(signal.SIGTERM, handle); print('ready', flush=True); time.sleep(60)"
    )
    settings = RecordingSettings((sys.executable, "-c", code), tmp_path / "out", "nsys", nsys=nsys)
    recorded = False
    for _ in range(TRIES):
        out, err = when_ready(settings, lambda process: process.send_signal(signal.SIGTERM))
        assert out == "saved\n" and '"code": 11' in err
        recorded = "trace.nsys-rep" in err
        if recorded:
            break
    assert recorded


def test_ranks_side_by_side(run: Run):
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun; install Open MPI (Debian, Ubuntu: apt-get install openmpi-bin)")
    done = run(
        *["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "3", "sh", "-c"], "exit 0"
    )
    assert (done.code, done.notes) == (0, ())
    assert [path.name for path in done.traces] == [f"rank{rank}.nsys-rep" for rank in range(3)]
