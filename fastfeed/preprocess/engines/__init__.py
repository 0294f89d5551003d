"""Engines that run pieces of work: local processes, executors, Ray."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fastfeed.preprocess.model.task import Engine, Outcome, Task

__all__ = ["Engine", "Outcome", "run_pieces"]


@contextmanager
def run_pieces(engine: Engine, task: Task, pieces: Sequence[int]) -> Iterator[Iterator[Outcome]]:
    """Iterate over the outcomes of pieces; the work ends with the block."""
    outcomes = iter(engine.run(task, pieces))
    try:
        yield outcomes
    finally:
        # generators have it; a user's engine may return a list
        getattr(outcomes, "close", lambda: None)()
