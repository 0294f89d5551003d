"""Limit of events per file: a few megabytes can unpack to more than a machine has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from fastfeed.errors import TraceError

MAX_EVENTS = 5_000_000  # some 0.3 KB each; the arrows of a Chrome trace do not count
_limit: ContextVar[int] = ContextVar("max_events", default=MAX_EVENTS)


class TooManyEvents(TraceError):
    """A file has more events than are allowed."""


@contextmanager
def max_events(count: int) -> Iterator[None]:
    """Allow this many events of each file that is read inside."""
    token = _limit.set(count)
    try:
        yield
    finally:
        _limit.reset(token)


def check(path: Path, count: int) -> None:
    """Raise TooManyEvents if a file has more events than are allowed."""
    limit = _limit.get()
    if count > limit:
        raise TooManyEvents(
            f"{path} holds more than {limit:,} events, which would take {limit * 0.3e-6:,.1f} GB of"
            " memory and more; record fewer steps, or allow more with --max-events"
        )
