"""Pieces done in processes that somebody else runs, an executor's or Ray's, which know nothing of what is done there.

Such a process keeps a task, and a worker process of our own for each piece it does at a time, until it has had nothing
to do for a while. The task is sent to a process that says it has none, so to each once, however many pieces it does.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.workers.supervisor import Supervisor, WorkerDied, WorkerLimits, close_all

__all__ = ["end_run", "run_piece"]

IDLE_S = 10.0  # that worker processes live on without work; starting one anew takes half a second

_lock = threading.Lock()
_kept: dict[tuple[int, str], _Kept] = {}  # by process, as a fork copies this, and by name
_ended: set[tuple[int, str]] = set()  # runs that were ended in this process


@dataclass(slots=True)
class _Kept:
    """A task in this process."""

    task: bytes  # its pickle
    idle: list[Supervisor] = field(default_factory=list)
    busy: list[Supervisor] = field(default_factory=list)
    timer: threading.Timer | None = None


def run_piece(name: str, task: bytes | None, rules: WorkerLimits, piece: int) -> Outcome | None:
    """A piece of the run called so; None where no task was given and none is known here."""
    key = os.getpid(), name
    leader = _take(key, task, rules)
    if not isinstance(leader, Supervisor):
        return Outcome(piece, error=WorkerDied("closed")) if leader else None
    try:
        return leader.do(piece)
    finally:
        _give_back(key, leader)


def end_run(name: str) -> None:
    """End what this process does for a run, and keep nothing of it."""
    key = os.getpid(), name
    with _lock:
        _ended.add(key)
    _end(key, even_if_busy=True)


def _take(key: tuple[int, str], task: bytes | None, rules: WorkerLimits) -> Supervisor | bool:
    """Who does a piece. Else: has the run been ended?"""
    with _lock:
        if key in _ended:
            return True
        kept = _kept.get(key)
        if kept is None:
            if task is None:
                return False
            kept = _kept[key] = _Kept(task)
        leader = kept.idle.pop() if kept.idle else Supervisor(kept.task, rules)
        kept.busy.append(leader)
        return leader


def _give_back(key: tuple[int, str], leader: Supervisor) -> None:
    with _lock:
        kept = _kept.get(key)
        if kept is not None:
            kept.busy.remove(leader)
            kept.idle.append(leader)
            if kept.timer is not None:
                kept.timer.cancel()
            kept.timer = threading.Timer(IDLE_S, _end, (key,))
            kept.timer.name, kept.timer.daemon = "fastfeed-idle", True
            kept.timer.start()
            return
    leader.close()


def _end(key: tuple[int, str], even_if_busy: bool = False) -> None:
    with _lock:
        kept = _kept.get(key)
        if kept is None or (kept.busy and not even_if_busy):
            return
        del _kept[key]
        if kept.timer is not None:
            kept.timer.cancel()
    close_all([*kept.idle, *kept.busy])
