"""Any `concurrent.futures.Executor`: threads, processes, loky, Dask, mpi4py.

A process of an executor or of Ray keeps the task, which is sent to it once, and a runner per
concurrent piece, until it has been idle for a while. A runner keeps the GPUs that it has begun
with: if Ray assigns others to this process, its idle runners are ended.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from dataclasses import dataclass, field
from uuid import uuid4

from fastfeed.errors import ConfigError
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.model.task import Task, pickle_task
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
    driver = name.partition("-")[0]
    if driver == identity(os.getppid()) and key not in _watched:  # of the driver's own pool
        _watched.add(key)
        end_with([driver])
    runner = _take(key, task, rules)
    if isinstance(runner, bool):
        return Outcome(piece, error=WorkerDied("closed")) if runner else None
    try:
        return runner.run_piece(piece)
    finally:
        _release(key, runner)


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


_CLOSE_S = 5.0  # that running pieces in threads of this process may take to end


@dataclass(frozen=True, slots=True)
class ExecutorEngine:
    """Submits up to `window` pieces at a time, each run in a supervised worker process."""

    executor: Executor
    # default: twice the executor's workers, or twice the cores if unknown
    window: int | None = None
    rules: WorkerLimits = field(default_factory=WorkerLimits)

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ConfigError.of("window", ">= 1 pieces", self.window)

    def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
        """As in Engine; pieces in the executor's other processes are finished on closing."""
        name = name_run()
        content = pickle_task(task)
        known = getattr(self.executor, "_max_workers", None)
        window = self.window or 2 * (known or os.cpu_count() or 1)
        todo = deque[tuple[int, bytes | None]]((piece, None) for piece in pieces)
        live: dict[Future[Outcome | None], int] = {}
        broken: BaseException | None = None
        try:
            while todo or live:
                while todo and len(live) < window and broken is None:
                    piece, task_bytes = todo[0]
                    try:
                        submitted = self.executor.submit(
                            run_piece, name, task_bytes, self.rules, piece
                        )
                        live[submitted] = piece
                        todo.popleft()
                    except RuntimeError as error:  # BrokenExecutor, or it was shut down
                        broken = error
                if broken is not None and not live:
                    error = WorkerDied(
                        f"the executor accepts no more work: {type(broken).__name__}: {broken};"
                        " finished shards are kept: run again with a new executor (a script whose"
                        " processes are spawned needs if __name__ == '__main__')"
                    )
                    yield from (Outcome(piece, error=error) for piece, _ in todo)
                    return
                done = wait(live, return_when=FIRST_COMPLETED).done
                unknown: list[int] = []  # in whose process the task is not known yet
                for future in [future for future in live if future in done]:  # in their order
                    piece = live.pop(future)
                    try:
                        outcome = future.result()
                    except (BrokenExecutor, CancelledError) as error:
                        broken = error
                        todo.append((piece, None))
                    except Exception as error:
                        # anything, such as a missing fastfeed in the executor's process
                        yield Outcome(piece, error=error)
                    else:
                        if outcome is None:
                            unknown.append(piece)
                        else:
                            yield outcome
                todo.extendleft((piece, content) for piece in reversed(unknown))
        finally:
            for future in live:
                future.cancel()
            end_run(name)
            wait(live, timeout=_CLOSE_S)
