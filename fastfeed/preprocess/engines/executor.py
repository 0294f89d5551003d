"""Any `concurrent.futures.Executor`: threads, processes, loky, Dask, mpi4py."""

from __future__ import annotations

import os
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

from fastfeed.errors import ConfigError
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.engines.hosted import end_run, name_run, run_piece
from fastfeed.preprocess.model.task import Task, pickle_task
from fastfeed.preprocess.workers.supervisor import WorkerDied, WorkerLimits

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
        name, content = name_run(), pickle_task(task)
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
                    yield from (Outcome(piece, error=_executor_broken(broken)) for piece, _ in todo)
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


def _executor_broken(error: BaseException) -> WorkerDied:
    return WorkerDied(
        f"the executor accepts no more work: {type(error).__name__}: {error}; finished shards are"
        " kept: run again with a new executor (a script whose processes are spawned needs if"
        " __name__ == '__main__')"
    )
