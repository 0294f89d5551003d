"""Protocols of work in numbered pieces: the task, the context it runs in, and the engine that runs
it.
"""

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
    "unpickle_task",
]

FREE_BYTES = 24_000_000  # bytes that a process may use for one photograph without reserving them

IMPORT_HINT = (
    "their classes must be defined in a module that workers can import, not in a script or notebook"
)


def pickle_task(task: Task) -> bytes:
    """The task as bytes for worker processes. ConfigError if it does not pickle."""
    try:
        return pickle.dumps(task)
    except Exception as error:  # user classes may raise anything
        raise ConfigError(
            f"the source or the target does not pickle: {error!r}; {IMPORT_HINT}"
        ) from error


def unpickle_task(pickled: bytes) -> Task:
    """The task of these bytes. ConfigError if it cannot be loaded here."""
    try:
        return pickle.loads(pickled)
    except Exception as error:  # user classes may not be importable here, and raise anything
        raise ConfigError(
            f"a worker process cannot load the source or the target: {error!r}; {IMPORT_HINT}"
        ) from error


class MemoryLimitError(Exception):
    """A photograph needs more memory than the job may use."""

    def __init__(self, need: int, limit: int) -> None:
        super().__init__(f"needs {need / 1e6:.0f} MB, the limit is {limit / 1e6:.0f} MB")


class Orphaned(BaseException):
    """The process that started this worker is gone.

    Not an Exception: error handlers must not catch it.
    """


class TaskContext(Protocol):
    """What a running piece of work reports to, and asks for memory."""

    def begin(self, sample: int) -> None:
        """Failures from now on are attributed to this sample; -1: to none."""
        ...

    def room(self, need: int) -> AbstractContextManager[None]:
        """Wait until `need` bytes may be used besides the process's own.

        MemoryLimitError if that is impossible.
        """
        ...


class Task(Protocol):
    """Pieces of work, each run and committed by one process at a time. Must pickle."""

    def run(self, piece: int, context: TaskContext, poison: Mapping[int, Bad]) -> dict[str, Any]:
        """Run a piece, commit it, and return a summary of JSON values.

        Samples in `poison` are skipped: they are bad.

        Running a piece twice, even concurrently, writes the same bytes.
        """
        ...

    def alone(self, sample: int, context: TaskContext) -> None:
        """Do what `run` does with this one sample and discard the result: does the process
        survive?
        """
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one piece, or progress on it."""

    piece: int
    summary: dict[str, Any] = field(default_factory=dict)  # what Task.run returned
    # of the piece, not of a sample: a full disk, a missing target
    error: BaseException | None = None
    samples: int = 0  # done so far, if the piece is not complete (progress)


class Engine(Protocol):
    """Runs pieces, several at a time, in any order."""

    def run(self, task: Task, pieces: Sequence[int]) -> Iterator[Outcome]:
        """Run the pieces of a task.

        Closing the iterator stops the work and leaves no process behind.

        Args:
            task (Task): What is done to each piece; it pickles.
            pieces (Sequence[int]): Numbers of the pieces, each once.

        Yields:
            One outcome per completed piece, in any order.
        """
        ...
