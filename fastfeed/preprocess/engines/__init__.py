"""Where pieces of work are done: processes here (`local`), executors, Ray. The bytes do not depend on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastfeed.preprocess.work import Task

__all__ = ["Engine", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one piece."""

    piece: int
    summary: dict[str, Any] = field(default_factory=dict)  # what Task.run returned
    error: BaseException | None = None  # of the piece, not of a sample: no space, a target that is gone
    samples: int = 0  # that were done so far, where the piece is not complete (progress)


class Engine(Protocol):
    """Does pieces, several at a time, in any order."""

    def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
        """One outcome per piece as each is complete. Closing the iterator ends the work and leaves no process."""
        ...
