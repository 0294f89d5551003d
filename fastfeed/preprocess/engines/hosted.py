"""Pieces in processes of an executor or of Ray.

Such a process keeps the task, which is sent to it once, and a runner per concurrent piece, until it
has been idle for a while. A runner keeps the GPUs that it has begun with: if Ray assigns others to
this process, its idle runners are ended.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from uuid import uuid4

from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.workers.lifeline import end_with, identity
from fastfeed.preprocess.workers.runner import Runner, close_all, runner_for
from fastfeed.preprocess.workers.supervisor import WorkerDied, WorkerLimits

IDLE_S = 10.0  # that idle worker processes are kept; starting one takes half a second

_lock = threading.Lock()
# by pid, as a fork copies this, and by name of the run
_tasks: dict[tuple[int, str], _TaskWorkers] = {}
_watched: set[tuple[int, str]] = set()  # runs whose driver this process ends with
_ended_runs: set[tuple[int, str]] = set()  # runs that have ended in this process


@dataclass(slots=True)
class _TaskWorkers:
    """A task and its workers in this process."""

    task: bytes  # its pickle
    gpus: str = ""  # of CUDA_VISIBLE_DEVICES when the idle ones began
    idle: list[Runner] = field(default_factory=list)
    busy: list[Runner] = field(default_factory=list)
    timer: threading.Timer | None = None


def name_run() -> str:
    """A new name for a run that this process drives."""
    return f"{identity()}-{uuid4().hex}"


def run_piece(name: str, task: bytes | None, rules: WorkerLimits, piece: int) -> Outcome | None:
    """Run a piece of the run `name`; None if the task is unknown in this process."""
    key = os.getpid(), name
    _end_with_driver(key)
    runner = _take(key, task, rules)
    if isinstance(runner, bool):
        return Outcome(piece, error=WorkerDied("closed")) if runner else None
    try:
        return runner.run_piece(piece)
    finally:
        _release(key, runner)


def _end_with_driver(key: tuple[int, str]) -> None:
    """End a process of the driver's own pool together with the driver."""
    driver = key[1].partition("-")[0]
    if driver == identity(os.getppid()) and key not in _watched:
        _watched.add(key)
        end_with([driver])


def end_run(name: str) -> None:
    """End all workers of a run in this process, and forget its task."""
    key = os.getpid(), name
    with _lock:
        _ended_runs.add(key)
    _end(key, even_if_busy=True)


def _take(key: tuple[int, str], task: bytes | None, rules: WorkerLimits) -> Runner | bool:
    """A runner; True if the run has ended, False if the task is unknown."""
    with _lock:
        if key in _ended_runs:
            return True
        workers = _tasks.get(key)
        if workers is None:
            if task is None:
                return False
            workers = _tasks[key] = _TaskWorkers(task)
        driver = key[1].partition("-")[0]
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        if gpus != workers.gpus:
            close_all(workers.idle)
            workers.idle.clear()
            workers.gpus = gpus
        idle = workers.idle
        runner = idle.pop() if idle else runner_for(workers.task, rules, driver=driver)
        workers.busy.append(runner)
        return runner


def _release(key: tuple[int, str], runner: Runner) -> None:
    with _lock:
        workers = _tasks.get(key)
        if workers is not None:
            workers.busy.remove(runner)
            workers.idle.append(runner)
            if workers.timer is not None:
                workers.timer.cancel()
            workers.timer = threading.Timer(IDLE_S, _end, (key,))
            workers.timer.name = "fastfeed-idle"
            workers.timer.daemon = True
            workers.timer.start()
            return
    runner.close()


def _end(key: tuple[int, str], even_if_busy: bool = False) -> None:
    with _lock:
        workers = _tasks.get(key)
        if workers is None or (workers.busy and not even_if_busy):
            return
        del _tasks[key]
        if workers.timer is not None:
            workers.timer.cancel()
    close_all([*workers.idle, *workers.busy])
