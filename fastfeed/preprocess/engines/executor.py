"""Any `concurrent.futures.Executor`: a pool of threads or processes, loky, Dask's `client.get_executor()`, mpi4py's."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field
from uuid import uuid4

from fastfeed.errors import ConfigError
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.engines.hosted import end_run, run_piece
from fastfeed.preprocess.task import Task, pickle_task
from fastfeed.preprocess.workers.supervisor import WorkerDied, WorkerLimits

__all__ = ["ExecutorEngine"]

_END_S = 5.0  # that pieces under way in threads of this process may take to end


@dataclass(frozen=True, slots=True)
class ExecutorEngine:
    """`window` pieces at a time are with the executor, which says how many of them are done at a time.

    Each piece has a worker process of its own there, so no photograph takes a thread or process of the executor with
    it. Each of these may use `rules.memory` bytes.
    """

    executor: Executor
    window: int | None = None  # default: twice the executor's workers, or twice the cores where it does not say
    rules: WorkerLimits = field(default_factory=WorkerLimits)

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ConfigError(f"window must be >= 1 pieces, got {self.window}")

    def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
        """As in Engine; but pieces that an executor's other processes are at when it is closed are finished there."""
        name, content = uuid4().hex, pickle_task(task)
        most = self.window or 2 * (getattr(self.executor, "_max_workers", None) or os.cpu_count() or 1)
        todo = deque[tuple[int, bytes | None]]((piece, None) for piece in pieces)
        live: dict[Future[Outcome | None], int] = {}
        broken: BaseException | None = None
        try:
            while todo or live:
                while todo and len(live) < most and broken is None:
                    try:
                        live[self.executor.submit(run_piece, name, todo[0][1], self.rules, todo[0][0])] = todo[0][0]
                        todo.popleft()
                    except RuntimeError as error:  # BrokenExecutor, or it was shut down
                        broken = error
                if broken is not None and not live:
                    yield from (Outcome(piece, error=_explained(broken)) for piece, _ in todo)
                    return
                for future in wait(live, return_when=FIRST_COMPLETED).done:
                    piece = live.pop(future)
                    try:
                        outcome = future.result()
                    except (BrokenExecutor, CancelledError) as error:
                        broken = error
                        todo.append((piece, None))
                    except Exception as error:  # whatever this executor raises: fastfeed is not installed there, say
                        yield Outcome(piece, error=error)
                    else:
                        if outcome is None:  # that process has not done a piece of this run yet
                            todo.appendleft((piece, content))
                        else:
                            yield outcome
        finally:
            for future in live:
                future.cancel()
            end_run(name)
            wait(live, timeout=_END_S)


def _explained(error: BaseException) -> WorkerDied:
    return WorkerDied(
        f"the executor takes no more work: {type(error).__name__}: {error}; finished shards are kept: run the same "
        "again with a new executor (a script whose processes are spawned needs if __name__ == '__main__')"
    )
