"""Worker processes of this machine, supervised by threads, with a shared memory budget."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fastfeed.decode.memory_limit import MemoryLimit
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.model.task import Task, pickle_task
from fastfeed.preprocess.workers.runner import InProcessRunner, Runner, close_all, runner_for
from fastfeed.preprocess.workers.supervisor import WorkerLimits


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """`workers` processes that share `rules.memory` bytes for large images, or as many threads."""

    workers: int
    rules: WorkerLimits = field(default_factory=WorkerLimits)
    in_process: bool = False  # threads of this process, for pieces that decode nothing

    def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
        """As in Engine; an outcome without summary and error reports progress of a piece."""
        if not pieces:
            return
        content = pickle_task(task)
        budget = MemoryLimit(self.rules.memory)
        todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        for piece in pieces:
            todo.put(piece)
        outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

        def report_progress(piece: int, samples: int) -> None:
            outcomes.put(Outcome(piece, samples=samples))

        start = InProcessRunner if self.in_process else runner_for
        runners = [
            start(content, self.rules, budget, report_progress)
            for _ in range(min(self.workers, len(pieces)))
        ]
        threads = [
            threading.Thread(target=_run_pieces, args=(runner, todo, outcomes), daemon=True)
            for runner in runners
        ]
        try:
            for thread in threads:
                thread.start()
            remaining = len(pieces)
            while remaining:
                outcome = outcomes.get()
                remaining -= bool(outcome.summary or outcome.error)
                yield outcome
        finally:
            with suppress(queue.Empty):
                while True:
                    todo.get_nowait()
            close_all(runners)
            for thread in threads:
                if thread.ident is not None:
                    thread.join()


def _run_pieces(
    runner: Runner, todo: queue.SimpleQueue[int], outcomes: queue.SimpleQueue[Outcome]
) -> None:
    while True:
        try:
            piece = todo.get_nowait()
        except queue.Empty:
            return
        try:
            outcomes.put(runner.run_piece(piece))
        except BaseException as error:  # a bug: the job must not wait for this piece forever
            outcomes.put(Outcome(piece, error=error))
