"""Runs pieces in processes of an executor or of Ray.

Such a process keeps the task, and one worker process per concurrent piece, until it has been idle for a while. The task
is sent only to processes that do not have it, so once to each, however many pieces they run.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.workers.supervisor import Supervisor, WorkerDied, WorkerLimits, close_all

__all__ = ["end_run", "run_piece"]

IDLE_S = 10.0  # that idle worker processes are kept; starting one takes half a second

_lock = threading.Lock()
_tasks: dict[tuple[int, str], _TaskWorkers] = {}  # by pid, as a fork copies this, and by name of the run
_ended_runs: set[tuple[int, str]] = set()  # runs that have ended in this process


@dataclass(slots=True)
class _TaskWorkers:
    """A task and its workers in this process."""

    task: bytes  # its pickle
    idle: list[Supervisor] = field(default_factory=list)
    busy: list[Supervisor] = field(default_factory=list)
    timer: threading.Timer | None = None


def run_piece(name: str, task: bytes | None, rules: WorkerLimits, piece: int) -> Outcome | None:
    """Run a piece of the run `name`; None if the task is neither passed nor known in this process."""
    key = os.getpid(), name
    supervisor = _take(key, task, rules)
    if not isinstance(supervisor, Supervisor):
        return Outcome(piece, error=WorkerDied("closed")) if supervisor else None
    try:
        return supervisor.run_piece(piece)
    finally:
        _release(key, supervisor)


def end_run(name: str) -> None:
    """End all workers of a run in this process, and forget its task."""
    key = os.getpid(), name
    with _lock:
        _ended_runs.add(key)
    _end(key, even_if_busy=True)


def _take(key: tuple[int, str], task: bytes | None, rules: WorkerLimits) -> Supervisor | bool:
    """A supervisor for a piece. Without one: True if the run has ended, False if the task is unknown."""
    with _lock:
        if key in _ended_runs:
            return True
        workers = _tasks.get(key)
        if workers is None:
            if task is None:
                return False
            workers = _tasks[key] = _TaskWorkers(task)
        supervisor = workers.idle.pop() if workers.idle else Supervisor(workers.task, rules)
        workers.busy.append(supervisor)
        return supervisor


def _release(key: tuple[int, str], supervisor: Supervisor) -> None:
    with _lock:
        workers = _tasks.get(key)
        if workers is not None:
            workers.busy.remove(supervisor)
            workers.idle.append(supervisor)
            if workers.timer is not None:
                workers.timer.cancel()
            workers.timer = threading.Timer(IDLE_S, _end, (key,))
            workers.timer.name, workers.timer.daemon = "fastfeed-idle", True
            workers.timer.start()
            return
    supervisor.close()


def _end(key: tuple[int, str], even_if_busy: bool = False) -> None:
    with _lock:
        workers = _tasks.get(key)
        if workers is None or (workers.busy and not even_if_busy):
            return
        del _tasks[key]
        if workers.timer is not None:
            workers.timer.cancel()
    close_all([*workers.idle, *workers.busy])
