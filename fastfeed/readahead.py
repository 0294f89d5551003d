"""Reads from storage begun before their batch's turn, so that the network works while threads decode.

At most so many samples, and about so many bytes, are under way or lie ready; samples are begun in the order in which
their batches will want them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NotYet
from typing import Any

from fastfeed.sources.base import Fetching, Pending

__all__ = ["ReadAhead", "Ticket"]

_SAMPLES = 256  # begun and not yet taken
_BYTES = 256 << 20  # read and not yet taken, about
_LOOK_S = 0.2  # how often a waiting thread looks whether it should stop


class Ticket:
    """A sample that will be asked for."""

    __slots__ = ("id", "pending")

    def __init__(self, id: int) -> None:
        self.id = id
        self.pending: Pending | None = None


class ReadAhead:
    """Of one walk. What was begun and never taken is given up when this is closed."""

    def __init__(self, source: Fetching, samples: int = _SAMPLES, limit: int = _BYTES) -> None:
        self._source, self._samples, self._limit = source, samples, limit
        self._waiting: deque[Ticket] = deque()
        self._begun: set[Ticket] = set()
        self._mean = 0.0  # bytes of a sample, of those taken lately
        self._lock = threading.Lock()
        self._closed = False

    def begin(self, ids: Sequence[int]) -> list[Ticket]:
        """Put samples in line."""
        tickets = [Ticket(int(i)) for i in ids]
        with self._lock:
            self._waiting.extend(tickets)
            self._advance()
        return tickets

    def take(self, ticket: Ticket, stop: Callable[[], bool]) -> Any:
        """What was read, waiting for it; None where `stop` says so first."""
        with self._lock:
            if ticket.pending is None:  # others before it are held up: this one is wanted now
                self._start([ticket])
            pending = ticket.pending
        assert pending is not None
        while True:
            try:
                found = pending.result(_LOOK_S)
                break
            except (NotYet, CancelledError):
                if stop() or self._closed:
                    return None
        with self._lock:
            self._begun.discard(ticket)
            size = len(found) if isinstance(found, (bytes, bytearray, memoryview)) else 0
            self._mean += (size - self._mean) / 32
            self._advance()
        return found

    def drop(self, tickets: Iterable[Ticket]) -> None:
        """These will not be asked for after all."""
        gone = set(tickets)
        with self._lock:
            self._begun -= gone
            self._waiting = deque(ticket for ticket in self._waiting if ticket not in gone) if gone else self._waiting
            self._advance()

    def close(self) -> None:
        """Give up what nobody took."""
        with self._lock:
            self._closed = True
            begun, self._begun = self._begun, set()
            self._waiting.clear()
        for ticket in begun:
            if ticket.pending is not None:
                ticket.pending.cancel()

    def _advance(self) -> None:
        """Begin as many as there is room for. With the lock."""
        room = self._samples - len(self._begun)
        if self._mean:
            room = min(room, max(1, int(self._limit / self._mean)) - len(self._begun))
        batch = []
        while self._waiting and room > len(batch) and not self._closed:
            ticket = self._waiting.popleft()
            if ticket.pending is None:
                batch.append(ticket)
        if batch:
            self._start(batch)

    def _start(self, tickets: list[Ticket]) -> None:
        for ticket, pending in zip(tickets, self._source.fetch([t.id for t in tickets]), strict=True):
            ticket.pending = pending
        self._begun.update(tickets)
