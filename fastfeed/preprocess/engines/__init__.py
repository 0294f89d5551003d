"""Engines that run pieces of work: local processes, executors, Ray."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from fastfeed.preprocess.model.task import Engine, Outcome, Task

__all__ = ["Engine", "Outcome", "collect_summaries", "run_pieces"]


@contextmanager
def run_pieces(engine: Engine, task: Task, pieces: Sequence[int]) -> Iterator[Iterator[Outcome]]:
    """Iterate over the outcomes of pieces; the work ends with the block."""
    outcomes = iter(engine.run(task, pieces))
    try:
        yield outcomes
    finally:
        # generators have it; a user's engine may return a list
        getattr(outcomes, "close", lambda: None)()


def collect_summaries(
    engine: Engine,
    task: Task,
    pieces: Sequence[int],
    on_progress: Callable[[int, int], None] | None = None,
    longest_s: float = math.inf,
) -> list[dict[str, Any]]:
    """Summaries of all pieces in their order, or of those done after `longest_s`.

    Raises the first error. on_progress: called with the pieces and the samples that are done.
    """
    started = monotonic()
    done: dict[int, dict[str, Any]] = {}
    running: dict[int, int] = {}
    samples = 0  # of the pieces that are done
    with run_pieces(engine, task, pieces) as outcomes:
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
            running[outcome.piece] = outcome.samples
            if outcome.summary:
                done[outcome.piece] = outcome.summary
                samples += outcome.summary["samples"]
                del running[outcome.piece]
            if on_progress is not None:
                on_progress(len(done), samples + sum(running.values()))
            if done and monotonic() - started > longest_s:
                break
    return [done[piece] for piece in sorted(done)]
