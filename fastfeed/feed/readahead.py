"""Reads from storage begun before their batch's turn, so that the network works while threads decode.

At most so many samples, and about so many bytes, are under way or lie ready; samples are begun in the order in which
their batches will want them. A thread of its own does that: the one that asks for batches has a model to train.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NotYet
from typing import Any

import numpy as np

from fastfeed.sources.base import Fetching, Sharded
from fastfeed.storage.event_loop import together
from fastfeed.storage.pending import Pending

__all__ = ["ReadAhead", "Ticket"]

_SAMPLES = 256  # begun and not yet taken
_BYTES = 256 << 20  # of these
_GUESS = 4 << 20  # bytes of a sample before the first one is there
_LATELY = 32  # samples
_SHARE = 8  # reads are begun when there is room for this part of all: many at once cost less than one by one
_STUCK_S = 5.0  # a thread in a source that does not return is left behind, a daemon, after this
_LOOK_S = 0.2  # how often a waiting thread looks whether it should stop


class Ticket:
    """A sample that will be asked for."""

    __slots__ = ("dropped", "id", "pending", "size")

    def __init__(self, id: int) -> None:
        self.id = id
        self.pending: Pending | None = None
        self.size = 0  # bytes; 0 where that is not known
        self.dropped = False


class ReadAhead:
    """Of one walk. What was begun and never taken is given up when this is closed, or when nobody holds it."""

    def __init__(self, source: Fetching, samples: int = _SAMPLES, limit: int = _BYTES) -> None:
        self._source, self._samples, self._limit = source, samples, limit
        self._sharded = source if isinstance(source, Sharded) else None
        self._waiting: deque[Ticket] = deque()
        self._wanted: deque[Ticket] = deque()  # by threads that wait for them: these are begun in any case
        self._begun: set[Ticket] = set()
        self._known, self._unknown = 0, 0  # of those begun: bytes, and how many are of unknown size
        self._mean = float(_GUESS)  # bytes of a sample, of those taken lately
        self._taken = 0
        self._changed = threading.Condition()  # for all of the above; its lock is never held for long
        self._closed = threading.Event()
        self._signals: queue.SimpleQueue[bool] = queue.SimpleQueue()  # to the thread that begins reads; False: end
        self._threads: list[threading.Thread] = []  # the one, once it is needed
        self._end = weakref.finalize(
            self, _give_up, self._begun, self._changed, self._closed, self._signals, self._threads
        )

    def begin(self, ids: Sequence[int]) -> list[Ticket]:
        """Put samples in line."""
        tickets = [Ticket(int(i)) for i in ids]
        with self._changed:
            self._waiting.extend(tickets)
        if not self._threads:  # it holds this only while it works
            thread = threading.Thread(
                target=_work, args=(weakref.ref(self), self._signals), name="fastfeed-reads", daemon=True
            )
            self._threads.append(thread)  # first: Ctrl-C in between must not leave one that nobody ends
            thread.start()
        self._signals.put(True)
        return tickets

    def take(self, ticket: Ticket, stop: Callable[[], bool]) -> Any:
        """What was read, waiting for it; None where `stop` says so first."""
        if ticket.pending is None:  # others before it are held up: this one is wanted now
            self._wanted.append(ticket)
            self._signals.put(True)
        while ticket.pending is None:
            if stop() or self._closed.is_set():
                return None
            with self._changed:
                self._changed.wait_for(lambda: ticket.pending is not None, _LOOK_S)
        try:
            found = self._result(ticket.pending, stop)
        finally:  # also of an error: it holds all that was going on, this too
            with self._changed:
                self._forget(ticket)
        with self._changed:
            if isinstance(found, (bytes, bytearray, memoryview)):
                self._taken += 1
                self._mean += (len(found) - self._mean) / min(self._taken, _LATELY)
            more = self._waiting and self._room() >= max(1, self._most() // _SHARE)
        if more:
            self._signals.put(True)
        return found

    def _result(self, pending: Pending, stop: Callable[[], bool]) -> Any:
        while True:
            there = pending.done()
            try:
                return pending.result(_LOOK_S)
            except (NotYet, CancelledError):
                if stop() or self._closed.is_set():
                    pending.cancel()
                    return None
                if there and pending.done():  # the read itself ended so
                    raise

    def drop(self, tickets: Iterable[Ticket]) -> None:
        """These will not be asked for after all."""
        gone = list(tickets)
        with self._changed:
            for ticket in gone:
                ticket.dropped = True
                self._forget(ticket)
        if gone:
            self._signals.put(True)
        for ticket in gone:
            if ticket.pending is not None:
                ticket.pending.cancel()

    def close(self) -> None:
        """Give up what nobody took."""
        self._end()

    def advance(self) -> None:
        """Begin as many as there is room for, and those that are wanted. For one thread."""
        with self._changed:
            tickets = [self._wanted.popleft() for _ in range(len(self._wanted))]
            tickets, room = [t for t in tickets if t.pending is None], self._room()
            sure = len(tickets)
            while self._waiting and len(tickets) < room:
                ticket = self._waiting.popleft()
                if ticket.pending is None and not ticket.dropped and ticket not in tickets[:sure]:
                    tickets.append(ticket)
        if tickets:
            self._start(tickets, sure)

    def _most(self) -> int:
        """How many may be begun, of the mean size."""
        return max(1, min(self._samples, int(self._limit / max(self._mean, 1))))

    def _room(self) -> int:
        """How many more."""
        held = self._known + self._unknown * self._mean
        return min(self._samples - len(self._begun), int((self._limit - held) / max(self._mean, 1)))

    def _forget(self, ticket: Ticket) -> None:
        """It is not among those begun any more. With the lock."""
        if ticket in self._begun:
            self._begun.discard(ticket)
            self._known -= ticket.size
            self._unknown -= not ticket.size

    def _start(self, tickets: list[Ticket], sure: int) -> None:
        """Begin the first `sure` of them, and of the others those that fit."""
        if self._closed.is_set():
            return
        try:
            tickets = self._fitting(tickets, sure)
            ids = [ticket.id for ticket in tickets]
            with together():
                pendings = self._source.fetch(ids) if ids else []
            if len(pendings) != len(ids):
                raise TypeError(f"{type(self._source).__name__}.fetch({len(ids)} ids) gave {len(pendings)} entries")
        except Exception as error:  # whatever a source raises is raised where the sample is taken
            if len(tickets) > 1:  # and only there: which sample it is for is not known yet
                for ticket in tickets:
                    self._start([ticket], 1)
                return
            pendings = [_Raised(error)] * len(tickets)
        with self._changed:
            late = [
                pending for ticket, pending in zip(tickets, pendings, strict=True) if not self._add(ticket, pending)
            ]
            self._changed.notify_all()
        for pending in late:
            pending.cancel()

    def _fitting(self, tickets: list[Ticket], sure: int) -> list[Ticket]:
        """Those for which there is room by their true sizes; the others go back in line."""
        if self._sharded is None:
            return tickets
        sizes = self._sharded.sizes(np.array([ticket.id for ticket in tickets], np.int64)).tolist()
        with self._changed:
            room = self._limit - self._known - self._unknown * self._mean
            for n, (ticket, size) in enumerate(zip(tickets, sizes, strict=True)):
                ticket.size, room = size, room - (size or self._mean)
                if room < 0 and n >= sure:
                    self._waiting.extendleft(reversed(tickets[n:]))
                    return tickets[:n]
        return tickets

    def _add(self, ticket: Ticket, pending: Pending) -> bool:
        """Whether somebody may still take it. With the lock."""
        ticket.pending = pending
        if isinstance(pending, _Raised):
            return True
        if ticket.dropped or self._closed.is_set():
            return False
        self._begun.add(ticket)
        self._known += ticket.size
        self._unknown += not ticket.size
        return True


class _Raised:
    """A read that could not be begun. Never among those begun: its error holds all that was going on."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def done(self) -> bool:
        return True

    def cancel(self) -> object:
        return None

    def result(self, timeout: float | None = None) -> Any:
        raise self._error


def _work(ahead: weakref.ref[ReadAhead], signals: queue.SimpleQueue[bool]) -> None:
    while signals.get():
        this = ahead()
        if this is None:
            return
        this.advance()
        del this


def _give_up(
    begun: set[Ticket],
    lock: threading.Condition,
    closed: threading.Event,
    signals: queue.SimpleQueue[bool],
    threads: list[threading.Thread],
) -> None:
    with lock:
        closed.set()
        tickets = list(begun)
        begun.clear()
    signals.put(False)
    for ticket in tickets:
        if ticket.pending is not None:
            ticket.pending.cancel()
    for thread in threads:
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(_STUCK_S)
