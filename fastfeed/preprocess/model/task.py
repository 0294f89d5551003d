"""Protocols of work in numbered pieces: task, context, engine."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastfeed.decode.base import DecodeFailure
from fastfeed.errors import ConfigError, TargetError
from fastfeed.faults import error_text

FREE_BYTES = 24_000_000  # bytes that a process may use for one image without reserving them

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
    """An image needs more memory than the job may use."""

    def __init__(self, need: int, limit: int) -> None:
        super().__init__(f"needs {need / 1e6:.0f} MB, the limit is {limit / 1e6:.0f} MB")


class Orphaned(BaseException):
    """The process that started this worker is gone; error handlers must not catch it."""


class TaskContext(Protocol):
    """Progress reports and memory reservations of a running piece of work."""

    def begin(self, sample: int) -> None:
        """Attribute failures to this sample until the next call; -1 is none."""
        ...

    def room(self, need: int) -> AbstractContextManager[None]:
        """Wait until `need` more bytes may be used. MemoryLimitError if that is impossible."""
        ...


class Task(Protocol):
    """Pieces of work, each run and committed by one process at a time. Must pickle."""

    def run(
        self, piece: int, context: TaskContext, poison: Mapping[int, DecodeFailure]
    ) -> dict[str, Any]:
        """Run a piece without the samples in `poison`, commit it, and return a JSON summary.

        Running a piece twice, even concurrently, writes the same bytes.
        """
        ...

    def alone(self, sample: int, context: TaskContext) -> None:
        """Do what `run` does with one sample and discard the result, to see if it crashes."""
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


# no image causes these
_MACHINE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT)


class SampleFault(ValueError):
    """One sample's fault, described for its user."""


def to_decode_failure(error: Exception) -> DecodeFailure:
    """The fault of an image whose processing raised `error`; the machine's errors are raised."""
    if isinstance(error, MemoryError):
        return DecodeFailure("oom", "the system has no more memory")
    if isinstance(error, TargetError) or (isinstance(error, OSError) and error.errno in _MACHINE):
        raise error
    if isinstance(error, SampleFault):
        return DecodeFailure("internal", str(error))
    return DecodeFailure("internal", error_text(error))


class NeedsMore(BaseException):
    """An image needs more memory than is reserved; decoders must not catch it."""

    def __init__(self, need: int) -> None:
        self.need = need


@dataclass(frozen=True, slots=True)
class ReservedContext:
    """A TaskContext with memory that is reserved already."""

    context: TaskContext
    bytes: int

    def begin(self, sample: int) -> None:
        self.context.begin(sample)

    @contextmanager
    def room(self, need: int) -> Iterator[None]:
        if need > self.bytes:
            raise NeedsMore(need)
        yield
