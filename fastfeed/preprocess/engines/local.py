"""Worker processes of this machine, each led by a thread, with one budget of memory for all of them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fastfeed.decode.memory_limit import MemoryLimit
from fastfeed.preprocess.engines import Outcome
from fastfeed.preprocess.task import Task, pickle_task
from fastfeed.preprocess.workers.supervisor import Supervisor, WorkerLimits, close_all

__all__ = ["LocalEngine"]


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """`workers` processes; all of them together use `rules.memory` bytes for large photographs."""

    workers: int
    rules: WorkerLimits = field(default_factory=WorkerLimits)

    def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
        """As in Engine; an outcome without summary and error says how far a piece is."""
        if not pieces:
            return
        content, budget = pickle_task(task), Budget(self.rules.memory)
        todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        for piece in pieces:
            todo.put(piece)
        told: queue.SimpleQueue[Outcome] = queue.SimpleQueue()

        def heard(piece: int, samples: int) -> None:
            told.put(Outcome(piece, samples=samples))

        leaders = [Supervisor(content, self.rules, budget, heard) for _ in range(min(self.workers, len(pieces)))]
        threads = [threading.Thread(target=_lead, args=(leader, todo, told), daemon=True) for leader in leaders]
        try:
            for thread in threads:
                thread.start()
            left = len(pieces)
            while left:
                outcome = told.get()
                left -= bool(outcome.summary or outcome.error)
                yield outcome
        finally:
            with suppress(queue.Empty):
                while True:
                    todo.get_nowait()
            close_all(leaders)
            for thread in threads:
                if thread.ident is not None:
                    thread.join()


def _lead(leader: Supervisor, todo: queue.SimpleQueue[int], told: queue.SimpleQueue[Outcome]) -> None:
    while True:
        try:
            piece = todo.get_nowait()
        except queue.Empty:
            return
        try:
            told.put(leader.do(piece))
        except BaseException as error:  # a mistake of ours: the job must not wait for this piece for ever
            told.put(Outcome(piece, error=error))
