"""kill -9 of the process that runs a job: its workers end at once, whatever they are doing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.needs import needs
from helpers.preprocess.deadly import alive

TESTS = Path(__file__).parents[1]
DEADLINE_S = 8.0  # generous for a loaded machine; a worker that is not told would sleep for 1000 s
AGENTS = "ray::DashboardAgent", "ray::RuntimeEnvAgent"  # of Ray itself; they take a minute to look for their parent
LOCAL = "LocalEngine(2)"
POOL = "ExecutorEngine(ProcessPoolExecutor(2, mp_context=multiprocessing.get_context('{}')))"
RAY = "RayEngine('local', rules=WorkerLimits(1 << 28))"
DRIVER = """
import multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
from helpers.preprocess.deadly import HostileTask
from fastfeed.preprocess.engines.executor import ExecutorEngine
from fastfeed.preprocess.engines.local import LocalEngine
from fastfeed.preprocess.workers.supervisor import WorkerLimits
if "Ray" in sys.argv[2]:
    from fastfeed.preprocess.engines.ray import RayEngine

if __name__ == "__main__":
    engine = eval(sys.argv[2])
    list(engine.run(HostileTask(sys.argv[1], {3: sys.argv[3], 13: sys.argv[3]}), [0, 1]))
"""


def processes_of(mark: str) -> set[int]:
    """Processes with this in their environment: a driver and all that it has started, directly or not."""
    found = set[int]()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.add(int(entry.name))
        except OSError:  # it has ended, or is another user's
            continue
    return found


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""


def until(condition: Callable[[], bool], seconds: float) -> bool:
    late = time.monotonic() + seconds
    while not (done := condition()) and time.monotonic() < late:
        threading.Event().wait(0.05)
    return done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "fate"),
    [
        pytest.param(LOCAL, "hang", id="workers that wait"),
        pytest.param(LOCAL, "hold", id="workers in a call that holds the interpreter's lock"),
        pytest.param(POOL.format("fork"), "hang", id="forked processes of an executor"),
        pytest.param(POOL.format("spawn"), "hold", id="spawned processes of an executor"),
        pytest.param(RAY, "hang", id="Ray on this machine", marks=needs("ray")),
    ],
)
def test_no_process_outlives_its_driver(tmp_path: Path, engine: str, fate: str) -> None:
    (tmp_path / "driver.py").write_text(DRIVER)
    short = Path(tempfile.mkdtemp(prefix="r"))  # Ray's sockets need short paths
    mark = f"FASTFEED_TEST_MARK={os.getpid()}-{time.monotonic_ns()}"
    name, _, value = mark.partition("=")
    environ = os.environ | {name: value, "PYTHONPATH": str(TESTS), "RAY_TMPDIR": str(short)}
    command = [sys.executable, str(tmp_path / "driver.py"), str(tmp_path), engine, fate]
    with subprocess.Popen(command, env=environ) as driver:
        begun = until(lambda: {path.name for path in tmp_path.glob("meets-*")} >= {"meets-3", "meets-13"}, 60)
        started = processes_of(mark) - {driver.pid}
        ours = {pid for pid in started if command_of(pid) not in AGENTS}
        driver.send_signal(signal.SIGKILL)
    try:
        assert begun and len(ours) >= 2
        assert until(lambda: not any(map(alive, ours)), DEADLINE_S), [command_of(pid) for pid in ours if alive(pid)]
    finally:
        shutil.rmtree(short, ignore_errors=True)
        for pid in filter(alive, started):
            os.kill(pid, signal.SIGKILL)
