"""Reads that were begun ahead and end otherwise: dropped, given up, failed."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers.begun import Remote, Shards
from helpers.lakes import LONG, wait

from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.feed.batch.readahead import ReadAhead


def never() -> bool:
    return False


def test_what_is_dropped_is_not_read():
    source = Remote()
    ahead = ReadAhead(source, samples=8)
    tickets = ahead.request(range(30))
    source.until(8)
    ahead.drop(tickets[:20])
    assert all(source.pending[i].cancelled() for i in range(8))
    source.until(16)
    source.answer(*range(20, 30))
    assert [ahead.take(ticket, never) for ticket in tickets[20:]] == [
        bytes([i]) for i in range(20, 30)
    ]
    assert source.begun == [*range(8), *range(20, 30)]
    assert not ahead._in_flight
    ahead.drop([])


def test_dropped_while_it_is_begun():
    entered, go = threading.Event(), threading.Event()

    class Connects(Remote):
        def fetch(self, ids: Sequence[int]) -> list[Future[Any]]:
            entered.set()
            wait(go)
            return super().fetch(ids)

    source = Connects()
    ahead = ReadAhead(source)
    tickets = ahead.request(range(2))
    wait(entered)
    ahead.drop(tickets[:1])
    source.answer(1)
    go.set()
    assert ahead.take(tickets[1], never) == b"\x01"
    assert source.pending[0].cancelled()
    assert not ahead._in_flight


def test_closing_gives_up_what_no_one_took():
    source = Remote()
    ahead = ReadAhead(source, samples=8)
    tickets = ahead.request(range(30))
    source.until(8)
    source.answer(0)
    ahead.take(tickets[0], never)
    ahead.close()
    assert all(source.pending[i].cancelled() for i in source.begun[1:])
    assert ahead.take(tickets[1], never) is None
    assert ahead.take(tickets[29], never) is None, "nor are others begun"
    assert ahead.request([5])
    ahead.close()


def test_when_no_one_holds_it_the_reads_are_given_up():
    source = Remote()
    ahead = ReadAhead(source)
    source.answer(0)
    tickets = ahead.request(range(30))
    ahead.take(tickets[0], never)
    (thread,) = ahead._threads
    del ahead, tickets
    gc.collect()
    thread.join(LONG)
    assert not thread.is_alive()
    assert source.begun == list(range(30))
    assert all(source.pending[i].cancelled() for i in range(1, 30))


@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_thread_that_waits_is_let_go(how):
    source, stop = Remote(), threading.Event()
    ahead = ReadAhead(source)
    with ThreadPoolExecutor(3) as pool:
        waiting = [
            pool.submit(ahead.take, ticket, stop.is_set) for ticket in ahead.request(range(3))
        ]
        source.until(3)
        stop.set() if how == "stop" else ahead.close()
        assert [future.result(LONG) for future in waiting] == [None] * 3


def test_no_feed_is_held_up_by_a_source_that_takes_long_to_begin():
    """It connects, say.

    Neither the one that asks for batches, nor who waits; who closes does wait for a while.
    """
    entered, go, stop = threading.Event(), threading.Event(), threading.Event()

    class Connects(Remote):
        def fetch(self, ids: Sequence[int]) -> list[Future[Any]]:
            entered.set()
            wait(go)
            return super().fetch(ids)

    source = Connects()
    ahead = ReadAhead(source)
    (first,) = ahead.request([0])
    wait(entered)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ahead.take, first, stop.is_set)
        ahead.request([7])
        stop.set()
        assert waiting.result(LONG) is None
        closing = pool.submit(ahead.close)
        wait(ahead._closed)
        go.set()
        closing.result(LONG)
    assert not ahead._threads[0].is_alive()
    assert source.pending[0].cancelled(), "it was begun when all was closed already"
    assert source.begun == [0]


# -- errors


class Fails(Remote):
    """Where sample 5 is among those asked for."""

    def fetch(self, ids: Sequence[int]) -> list[Future[Any]]:
        if 5 in ids:
            raise SourceError("no connection")
        self.answer(*ids)
        return super().fetch(ids)


def test_an_error_of_fetch_is_raised_where_the_sample_is_taken():
    """Not for the others that it was begun together with."""
    ahead = ReadAhead(Fails())
    for ticket in ahead.request(range(12)):
        if ticket.id == 5:
            with pytest.raises(SourceError, match="no connection"):
                ahead.take(ticket, never)
        else:
            assert ahead.take(ticket, never) == bytes([ticket.id])


def test_an_error_of_sizes():
    class Broken(Shards):
        def sizes(self, ids: np.ndarray) -> np.ndarray:
            raise KeyError("sizes")

    ahead = ReadAhead(Broken(1))
    with pytest.raises(KeyError, match="sizes"):
        ahead.take(ahead.request([0])[0], never)


def test_a_source_that_gives_too_little():
    class Short(Remote):
        def fetch(self, ids: Sequence[int]) -> list[Future[Any]]:
            return super().fetch(ids)[1:]

    ahead = ReadAhead(Short())
    with pytest.raises(TypeError, match=r"Short.fetch\(1 ids\) gave 0 entries"):
        ahead.take(ahead.request(range(3))[0], never)


@pytest.mark.parametrize(
    "kind", [KeyError, TimeoutError, OSError]
)  # a TimeoutError of the source's own
def test_an_error_of_a_read_is_raised(kind):
    source = Remote()
    ahead = ReadAhead(source)
    source.pending[0] = Future()
    source.pending[0].set_exception(kind("x"))
    with pytest.raises(kind):
        ahead.take(ahead.request([0])[0], never)


def test_a_read_that_somebody_else_canceled():
    source = Remote()
    ahead = ReadAhead(source)
    source.pending[0] = Future()
    source.pending[0].cancel()
    with pytest.raises(CancelledError):
        ahead.take(ahead.request([0])[0], never)


def test_failures_pass():
    source, failure = Remote(), Failure(0, "uri", "read", "timeout")
    ahead = ReadAhead(source)
    source.pending[0] = Future()
    source.pending[0].set_result(failure)
    assert ahead.take(ahead.request([0])[0], never) is failure
