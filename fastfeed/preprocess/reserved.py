"""Memory that is reserved before a large photograph is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastfeed.preprocess.task import TaskContext

__all__ = ["NeedsMore", "ReservedContext"]


class NeedsMore(BaseException):
    """A photograph needs more memory than is reserved.

    Not an Exception: decoders must not catch it.
    """

    def __init__(self, need: int) -> None:
        self.need = need


@dataclass(frozen=True, slots=True)
class ReservedContext:
    """A Watch with memory that is reserved already."""

    context: TaskContext
    bytes: int

    def begin(self, sample: int) -> None:
        self.context.begin(sample)

    @contextmanager
    def room(self, need: int) -> Iterator[None]:
        if need > self.bytes:
            raise NeedsMore(need)
        yield
