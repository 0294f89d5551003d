"""Work in numbered pieces: what there is to do, what whoever does it may ask for, and who has it done."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastfeed.decode.base import Bad
from fastfeed.errors import ConfigError

__all__ = [
    "FREE_BYTES",
    "IMPORT_HINT",
    "Engine",
    "MemoryLimitError",
    "Orphaned",
    "Outcome",
    "Task",
    "TaskContext",
    "pickle_task",
]

FREE_BYTES = 24_000_000  # bytes that a process may use for a photograph without asking

IMPORT_HINT = "what they are made of must lie in a module that can be imported there, not in a script or notebook"


def pickle_task(task: Task) -> bytes:
    """As processes take it. ConfigError where that cannot be."""
    try:
        return pickle.dumps(task)
    except Exception as error:  # of a class of the user's, with whatever that raises
        raise ConfigError(f"the source or the target does not pickle: {error!r}; {IMPORT_HINT}") from error


class MemoryLimitError(Exception):
    """A photograph needs more memory than the whole job may use."""

    def __init__(self, need: int, limit: int) -> None:
        super().__init__(f"needs {need / 1e6:.0f} MB, the limit is {limit / 1e6:.0f} MB")


class Orphaned(BaseException):
    """Whoever started this process is gone. Not an Exception: nothing that copes with errors may go on."""


class TaskContext(Protocol):
    """How a piece of work stays in touch with who started it."""

    def begin(self, sample: int) -> None:
        """From now on, what goes wrong is this sample's fault; -1: nobody's."""
        ...

    def room(self, need: int) -> AbstractContextManager[None]:
        """Wait until `need` bytes may be used, beside what the process itself needs. NoRoom where that is never."""
        ...


class Task(Protocol):
    """Pieces of work, each done and committed by one process at a time. Pickles."""

    def run(self, piece: int, watch: TaskContext, poison: Mapping[int, Bad]) -> dict[str, Any]:
        """Do a piece and commit it; a summary as JSON holds it. Samples in `poison` are not touched: they are bad.

        Done twice, also at the same time, it gives the same bytes.
        """
        ...

    def alone(self, sample: int, watch: TaskContext) -> None:
        """Do what `run` does with this one sample, and throw the result away: will the process live?"""
        ...


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
