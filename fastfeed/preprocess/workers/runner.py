"""Runs pieces of a task in supervised processes, or in this process on systems without them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from time import monotonic
from typing import Protocol

from fastfeed.decode.memory_limit import MemoryLimit
from fastfeed.errors import ConfigError
from fastfeed.preprocess.model.task import (
    FREE_BYTES,
    MemoryLimitError,
    Orphaned,
    Outcome,
    Task,
    pickle_task,
    unpickle_task,
)
from fastfeed.preprocess.workers.supervisor import Supervisor, WorkerDied, WorkerLimits
from fastfeed.printable import log
from fastfeed.system.processes import can_supervise

_PROGRESS_S = 0.25  # between reports of progress, as from a Supervisor

Progress = Callable[[int, int], None]  # called with (piece, samples begun)


class Runner(Protocol):
    """Runs one piece at a time. Not thread-safe, except for `close`."""

    def run_piece(self, piece: int) -> Outcome:
        """Run a piece, even if its images crash or hang the decoder."""
        ...

    def close(self) -> None:
        """End the running pieces; `run_piece` returns soon."""
        ...


def runner_for(
    task: Task | bytes,
    rules: WorkerLimits | None = None,
    budget: MemoryLimit | None = None,
    on_progress: Progress | None = None,
    driver: str = "",
) -> Runner:
    """A Supervisor, or a runner in this process if worker processes cannot be supervised.

    The latter logs a warning once.

    Args:
        task: What to run, or its pickle.
        rules: Memory and time that a worker process may use.
        budget: Of `rules.memory` bytes, may be shared by several runners.
        on_progress: Called with (piece, samples begun), at most four times per second.
        driver: Identity of the process that runs the job, if that is another one.
    """
    if can_supervise():
        return Supervisor(task, rules, budget, on_progress, driver)
    _warn_unsupervised()
    return InProcessRunner(task, rules, budget, on_progress)


class InProcessRunner:
    """Runs pieces in this process: a decoder crash ends the job, and images have no time limit."""

    def __init__(
        self,
        task: Task | bytes,
        rules: WorkerLimits | None = None,
        budget: MemoryLimit | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        self._task: Task | ConfigError
        try:
            self._task = unpickle_task(task if isinstance(task, bytes) else pickle_task(task))
        except ConfigError as error:  # of each piece, as from a worker process
            self._task = error
        self._rules = rules or WorkerLimits()
        self._budget = budget or MemoryLimit(self._rules.memory)
        self._on_progress = on_progress
        self._closed = threading.Event()

    def run_piece(self, piece: int) -> Outcome:
        context = _Context(
            piece, self._rules.memory, self._budget, self._on_progress, self._closed, monotonic()
        )
        try:
            if isinstance(self._task, ConfigError):
                raise self._task
            return Outcome(piece, self._task.run(piece, context, {}))
        except Orphaned:
            return Outcome(piece, error=WorkerDied("closed"))
        except Exception as error:
            # of the piece as a whole, such as a full disk or a missing source
            return Outcome(piece, error=error)

    def close(self) -> None:
        self._closed.set()


@dataclass(slots=True)
class _Context:
    """The TaskContext of a piece that runs in this process."""

    piece: int
    limit: int
    budget: MemoryLimit
    on_progress: Progress | None
    closed: threading.Event
    reported: float  # seconds, of `monotonic`
    begun: int = 0

    def begin(self, sample: int) -> None:
        if self.closed.is_set():
            raise Orphaned
        self.begun += sample >= 0
        if self.on_progress is not None and monotonic() - self.reported >= _PROGRESS_S:
            self.reported = monotonic()
            self.on_progress(self.piece, self.begun)

    @contextmanager
    def room(self, need: int) -> Iterator[None]:
        if need > self.limit and need > FREE_BYTES:
            raise MemoryLimitError(need, self.limit)
        with self.budget.reserve(need) if need > FREE_BYTES else nullcontext():
            yield


def close_all(runners: Sequence[Runner]) -> None:
    """End them in parallel, as each may take a while."""
    threads = [threading.Thread(target=runner.close, name="fastfeed-end") for runner in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@cache
def _warn_unsupervised() -> None:
    log.warning(
        "this system cannot supervise worker processes, so images are processed in threads of"
        " this one: a file that crashes its decoder ends the job, and files that take long are"
        " waited for"
    )
