"""kill -9 of the process that runs a job: its workers end at once, whatever they are doing."""

from __future__ import annotations

import math
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
from helpers.preprocess.waiting import alive

TESTS = Path(__file__).parents[1]
# of processor time that this process gets meanwhile: on an idle machine a second, on a busy one as
# many
PROMISE_S = 1.0
DEADLINE_S = 20.0  # in any case; a worker that is not told would sleep for 1000 s
ATTEMPTS = 3  # the best counts
# of Ray itself; they take a minute to look for their parent
AGENTS = (
    "ray::DashboardAgent",
    "ray::RuntimeEnvAgent",
)
WORKER = "fastfeed.preprocess.workers.worker"
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
    """Processes with this in their environment: a driver and all that it has started, directly or
    not.
    """
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


def seconds_until(condition: Callable[[], bool]) -> float:
    """Processor time of this thread until then, which it does not sleep for; infinite after
    DEADLINE_S.
    """
    late, begin = time.monotonic() + DEADLINE_S, time.thread_time()
    while not condition():
        if time.monotonic() > late:
            return math.inf
    return time.thread_time() - begin


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
def test_no_process_outlives_its_driver_by_a_second(tmp_path: Path, engine: str, fate: str) -> None:
    took: list[float] = []
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        took.append(killed(folder, engine, fate))
        if took[-1] <= PROMISE_S:
            return
    raise AssertionError(f"processes ended after {took} s of processor time")


def killed(folder: Path, engine: str, fate: str) -> float:
    """Processor time until the workers of a driver that is killed have ended; Ray's own processes
    may take longer.
    """
    (folder / "driver.py").write_text(DRIVER)
    short = Path(tempfile.mkdtemp(prefix="r"))  # Ray's sockets need short paths
    mark = f"FASTFEED_TEST_MARK={os.getpid()}-{time.monotonic_ns()}"
    name, _, value = mark.partition("=")
    environ = os.environ | {name: value, "PYTHONPATH": str(TESTS), "RAY_TMPDIR": str(short)}
    command = [sys.executable, str(folder / "driver.py"), str(folder), engine, fate]
    with subprocess.Popen(command, env=environ) as driver:
        begun = until(
            lambda: {path.name for path in folder.glob("meets-*")} >= {"meets-3", "meets-13"}, 60
        )
        commands = {pid: command_of(pid) for pid in processes_of(mark) - {driver.pid}}
        workers = {pid for pid, text in commands.items() if WORKER in text or engine != RAY}
        driver.send_signal(signal.SIGKILL)
    try:
        assert begun and len(workers) >= 2
        took = seconds_until(lambda: not any(map(alive, workers)))
        others = [pid for pid, text in commands.items() if text not in AGENTS]
        assert until(lambda: not any(map(alive, others)), DEADLINE_S), [
            commands[pid] for pid in filter(alive, others)
        ]
        return took
    finally:
        shutil.rmtree(short, ignore_errors=True)
        for pid in filter(alive, commands):
            os.kill(pid, signal.SIGKILL)
