"""Where pieces of work are done: processes here (`local`), executors, Ray. The bytes do not depend on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fastfeed.preprocess.task import Engine, Outcome, Task

__all__ = ["Engine", "Outcome", "run_pieces"]


@contextmanager
def run_pieces(engine: Engine, task: Task, pieces: Sequence[int]) -> Iterator[Iterator[Outcome]]:
    """Its outcomes. The work ends with the block, also where that is left early."""
    outcomes = iter(engine.run(task, pieces))
    try:
        yield outcomes
    finally:
        if close := getattr(outcomes, "close", None):  # a generator's; a list of a user's engine has nothing to end
            close()
