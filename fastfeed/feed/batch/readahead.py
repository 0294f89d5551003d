"""Starts reads from storage ahead of their batches, so that the network works while threads decode.

A limited number of samples and bytes is in flight or ready. Reads start in the order in which
batches need them, on a separate thread: the thread that takes batches has a model to train.
"""

from __future__ import annotations

import math
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any

import numpy as np

from fastfeed.sources.base import Fetching, Sharded
from fastfeed.storage.event_loop import batched
from fastfeed.storage.reads import Pending
from fastfeed.storage.retry import patience

_SAMPLES = 256  # in flight or ready
READ_AHEAD_BYTES = 256 << 20  # of these
_GUESS = 4 << 20  # bytes of a sample, before the first one has been read
_WINDOW = 32  # samples that the running mean covers
# reads start when there is room for this fraction of all: many at once cost less than one by one
_SHARE = 8
_STUCK_S = 5.0  # after this a daemon thread is abandoned in a source that does not return
_POLL_S = 0.2  # how often a waiting thread checks whether it should stop


class Ticket:
    """A requested sample, from its request to its result."""

    __slots__ = ("dropped", "id", "pending", "size")

    def __init__(self, id: int) -> None:
        self.id = id
        self.pending: Pending | None = None
        self.size = 0  # bytes; 0 if unknown
        self.dropped = False


class ReadAhead:
    """Reads ahead for one stream of batches.

    Reads that are never taken are canceled when this is closed or collected.
    """

    def __init__(
        self,
        source: Fetching,
        samples: int = _SAMPLES,
        limit: int = READ_AHEAD_BYTES,
        wait: float = math.inf,
    ) -> None:
        """Start with nothing in flight.

        Args:
            source: Source whose samples are read.
            samples: Upper bound on samples in flight or ready.
            limit: Upper bound on their bytes.
            wait: Seconds without an answer from storage after which reads fail, if they would
                otherwise be retried for longer.
        """
        self._source = source
        self._samples = samples
        self._limit = limit
        self._wait = wait
        self._sharded = source if isinstance(source, Sharded) else None
        self._waiting: deque[Ticket] = deque()
        self._urgent: deque[Ticket] = deque()  # threads wait for these: they start in any case
        self._in_flight: set[Ticket] = set()  # or ready
        # of those in flight: known bytes; samples of unknown size
        self._known_bytes = 0
        self._unknown_count = 0
        self._mean = float(_GUESS)  # bytes of a sample, over the last ones taken
        self._taken = 0
        # for all of the above; its lock is never held for long
        self._changed = threading.Condition()
        self._closed = threading.Event()
        # to the thread that starts reads; False: end
        self._signals: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []  # one, once it is needed
        self._end = weakref.finalize(
            self,
            _cancel_all,
            self._in_flight,
            self._changed,
            self._closed,
            self._signals,
            self._threads,
        )

    def request(self, ids: Sequence[int]) -> list[Ticket]:
        """Queue samples to be read."""
        tickets = [Ticket(int(i)) for i in ids]
        with self._changed:
            self._waiting.extend(tickets)
        if not self._threads:  # the thread holds this object only while it works
            thread = threading.Thread(
                target=_work,
                args=(weakref.ref(self), self._signals),
                name="fastfeed-reads",
                daemon=True,
            )
            # before start: Ctrl-C in between must not leave a thread running
            self._threads.append(thread)
            thread.start()
        self._signals.put(True)
        return tickets

    def take(self, ticket: Ticket, stop: Callable[[], bool]) -> Any:
        """Wait for a sample and return what was read; None if `stop` returns True first."""
        if ticket.pending is None:  # those before it wait for room, this one is needed now
            self._urgent.append(ticket)
            self._signals.put(True)
        while ticket.pending is None:
            if stop() or self._closed.is_set():
                return None
            with self._changed:
                self._changed.wait_for(lambda: ticket.pending is not None, _POLL_S)
        try:
            result = self._result(ticket.pending, stop)
        finally:  # also after an error, whose traceback holds this object
            with self._changed:
                self._forget(ticket)
        with self._changed:
            if isinstance(result, (bytes, bytearray, memoryview)):
                self._taken += 1
                self._mean += (len(result) - self._mean) / min(self._taken, _WINDOW)
            more = self._waiting and self._room() >= max(1, self._capacity() // _SHARE)
        if more:
            self._signals.put(True)
        return result

    def _result(self, pending: Pending, stop: Callable[[], bool]) -> Any:
        while True:
            was_done = pending.done()
            try:
                return pending.result(_POLL_S)
            except (NotYet, CancelledError):
                if stop() or self._closed.is_set():
                    pending.cancel()
                    return None
                if was_done and pending.done():  # the read itself ended so
                    raise

    def drop(self, tickets: Iterable[Ticket]) -> None:
        """Cancel the requests of these tickets."""
        dropped = list(tickets)
        with self._changed:
            for ticket in dropped:
                ticket.dropped = True
                self._forget(ticket)
        if dropped:
            self._signals.put(True)
        for ticket in dropped:
            if ticket.pending is not None:
                ticket.pending.cancel()

    def close(self) -> None:
        """Cancel all reads that were not taken."""
        self._end()

    def advance(self) -> None:
        """Start urgent reads, and as many others as there is room for. Called by one thread."""
        with self._changed:
            tickets = [self._urgent.popleft() for _ in range(len(self._urgent))]
            tickets = [t for t in tickets if t.pending is None]
            room = self._room()
            urgent = len(tickets)
            while self._waiting and len(tickets) < room:
                ticket = self._waiting.popleft()
                if ticket.pending is None and not ticket.dropped and ticket not in tickets[:urgent]:
                    tickets.append(ticket)
        if tickets:
            self._start(tickets, urgent)

    def _capacity(self) -> int:
        """Upper bound on samples in flight, from their mean size."""
        return max(1, min(self._samples, int(self._limit / max(self._mean, 1))))

    def _room(self) -> int:
        """Number of further samples whose reads may start."""
        size = self._known_bytes + self._unknown_count * self._mean
        return min(
            self._samples - len(self._in_flight), int((self._limit - size) / max(self._mean, 1))
        )

    def _forget(self, ticket: Ticket) -> None:
        """Remove it from those in flight. With the lock held."""
        if ticket in self._in_flight:
            self._in_flight.discard(ticket)
            self._known_bytes -= ticket.size
            self._unknown_count -= not ticket.size

    def _start(self, tickets: list[Ticket], urgent: int) -> None:
        """Start the first `urgent` of them, and those of the others that fit."""
        if self._closed.is_set():
            return
        try:
            tickets = self._fitting(tickets, urgent)
            ids = [ticket.id for ticket in tickets]
            with patience(self._wait), batched():
                pendings = self._source.fetch(ids) if ids else []
            if len(pendings) != len(ids):
                raise TypeError(
                    f"{type(self._source).__name__}.fetch({len(ids)} ids) gave {len(pendings)}"
                    " entries"
                )
        except Exception as error:
            # a source may raise anything; it is raised where the sample is taken
            if len(tickets) > 1:  # and only there: read one at a time to know which sample it is
                for ticket in tickets:
                    self._start([ticket], 1)
                return
            failed: Future[Any] = Future()
            failed.set_exception(error)
            with self._changed:
                for ticket in tickets:  # never in flight: the error's traceback holds everything
                    ticket.pending = failed
                self._changed.notify_all()
            return
        with self._changed:
            late = [  # dropped or closed meanwhile
                pending
                for ticket, pending in zip(tickets, pendings, strict=True)
                if not self._add(ticket, pending)
            ]
            self._changed.notify_all()
        for pending in late:
            pending.cancel()

    def _fitting(self, tickets: list[Ticket], urgent: int) -> list[Ticket]:
        """Return the tickets that fit by their true sizes; the others go back to the queue."""
        if self._sharded is None:
            return tickets
        sizes = self._sharded.sizes(np.array([ticket.id for ticket in tickets], np.int64)).tolist()
        with self._changed:
            room = self._limit - self._known_bytes - self._unknown_count * self._mean
            for n, (ticket, size) in enumerate(zip(tickets, sizes, strict=True)):
                ticket.size = size
                room = room - (size or self._mean)
                if room < 0 and n >= urgent:
                    self._waiting.extendleft(reversed(tickets[n:]))
                    return tickets[:n]
        return tickets

    def _add(self, ticket: Ticket, pending: Pending) -> bool:
        """Record a started read; False if no one can take it any more. With the lock held."""
        ticket.pending = pending
        if ticket.dropped or self._closed.is_set():
            return False
        self._in_flight.add(ticket)
        self._known_bytes += ticket.size
        self._unknown_count += not ticket.size
        return True


def _work(ahead: weakref.ref[ReadAhead], signals: queue.SimpleQueue[bool]) -> None:
    while signals.get():
        read_ahead = ahead()
        if read_ahead is None:
            return
        read_ahead.advance()
        del read_ahead


def _cancel_all(
    in_flight: set[Ticket],
    lock: threading.Condition,
    closed: threading.Event,
    signals: queue.SimpleQueue[bool],
    threads: list[threading.Thread],
) -> None:
    with lock:
        closed.set()
        tickets = list(in_flight)
        in_flight.clear()
    signals.put(False)
    for ticket in tickets:
        if ticket.pending is not None:
            ticket.pending.cancel()
    for thread in threads:
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(_STUCK_S)
