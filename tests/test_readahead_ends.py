"""Reads that were begun ahead and end otherwise: dropped, given up, failed."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from begun import Remote, Shards
from lakes import LONG, wait

from fastfeed.errors import SourceError
from fastfeed.faults import Failure
from fastfeed.readahead import ReadAhead, Ticket


def never() -> bool:
    return False


def take(ahead: ReadAhead, tickets: list[Ticket]) -> list[Any]:
    return [ahead.take(ticket, never) for ticket in tickets]


def test_what_is_dropped_is_not_read():
    source = Remote()
    ahead = ReadAhead(source, samples=8)
    tickets = ahead.begin(range(30))
    source.answer(0)
    ahead.take(tickets[0], never)
    begun = source.begun
    ahead.drop(tickets[1:20])
    assert all(source.pending[i].cancelled() for i in begun[1:])
    source.answer(*range(20, 30))
    assert take(ahead, tickets[20:]) == [bytes([i]) for i in range(20, 30)]
    assert source.begun == [*begun, *range(20, 30)]
    assert not ahead._begun
    ahead.drop([])


def test_closing_gives_up_what_nobody_took():
    source = Remote()
    ahead = ReadAhead(source, samples=8)
    tickets = ahead.begin(range(30))
    source.answer(0)
    ahead.take(tickets[0], never)
    ahead.close()
    assert all(source.pending[i].cancelled() for i in source.begun[1:])
    assert ahead.take(tickets[1], never) is None
    assert ahead.take(tickets[29], never) is None, "nor are others begun"
    assert ahead.begin([5])
    ahead.close()


def test_when_nobody_holds_it_the_reads_are_given_up():
    source = Remote()
    ahead = ReadAhead(source)
    source.answer(0)
    ahead.take(ahead.begin(range(30))[0], never)
    del ahead
    gc.collect()
    assert source.begun == list(range(30))
    assert all(source.pending[i].cancelled() for i in range(1, 30))


@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_thread_that_waits_is_let_go(how):
    source, stop = Remote(), threading.Event()
    ahead = ReadAhead(source)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(ahead.take, ticket, stop.is_set) for ticket in ahead.begin(range(3))]
        wait(source.began)
        stop.set() if how == "stop" else ahead.close()
        assert [future.result(LONG) for future in waiting] == [None] * 3


def test_a_thread_that_waits_for_another_to_begin_reads_is_let_go():
    """One connects, which may take long."""
    entered, go, stop = threading.Event(), threading.Event(), threading.Event()

    class Connects(Remote):
        def fetch(self, ids: Sequence[int]) -> list[Future[Any]]:
            entered.set()
            wait(go)
            return super().fetch(ids)

    source = Connects()
    ahead = ReadAhead(source, samples=1)
    first, second = ahead.begin(range(2))
    with ThreadPoolExecutor(2) as pool:
        connecting = pool.submit(ahead.take, first, stop.is_set)
        wait(entered)
        waiting = pool.submit(ahead.take, second, stop.is_set)
        ahead.begin([7])  # the thread that asks for batches is not held up
        stop.set()
        assert waiting.result(LONG) is None
        ahead.close()  # nor is the one that closes
        go.set()
        assert connecting.result(LONG) is None
    assert source.pending[0].cancelled(), "begun when it was closed already"


# -- errors


class Fails(Remote):
    """Where sample 5 is among those asked for."""

    def fetch(self, ids: Sequence[int]) -> list[Future[Any]]:
        if 5 in ids:
            raise SourceError("no connection")
        self.answer(*ids)
        return super().fetch(ids)


def test_an_error_of_fetch_is_raised_where_the_sample_is_taken():
    ahead = ReadAhead(Fails(), samples=4)  # one by one
    tickets = ahead.begin(range(12))
    assert take(ahead, tickets[:5]) == [bytes([i]) for i in range(5)]
    with pytest.raises(SourceError, match="no connection"):
        ahead.take(tickets[5], never)
    assert take(ahead, tickets[6:]) == [bytes([i]) for i in range(6, 12)]


def test_an_error_for_several():
    ahead = ReadAhead(Fails(), samples=64)
    for ticket in ahead.begin(range(10)):
        with pytest.raises(SourceError, match="no connection"):
            ahead.take(ticket, never)


def test_an_error_of_sizes():
    class Broken(Shards):
        def sizes(self, ids: np.ndarray) -> np.ndarray:
            raise KeyError("sizes")

    ahead = ReadAhead(Broken(1))
    with pytest.raises(KeyError, match="sizes"):
        ahead.take(ahead.begin([0])[0], never)


def test_a_source_that_gives_too_little():
    class Short(Remote):
        def fetch(self, ids: Sequence[int]) -> list[Future[Any]]:
            return super().fetch(ids)[1:]

    ahead = ReadAhead(Short())
    with pytest.raises(TypeError, match=r"Short.fetch\(3 ids\) gave 2 entries"):
        ahead.take(ahead.begin(range(3))[0], never)


@pytest.mark.parametrize("error", [KeyError("x"), TimeoutError("the source's own"), OSError("y")])
def test_an_error_of_a_read_is_raised(error):
    source = Remote()
    ahead = ReadAhead(source)
    source.pending[0] = Future()
    source.pending[0].set_exception(error)
    with pytest.raises(type(error)):
        ahead.take(ahead.begin([0])[0], never)


def test_a_read_that_somebody_else_canceled():
    source = Remote()
    ahead = ReadAhead(source)
    source.pending[0] = Future()
    source.pending[0].cancel()
    with pytest.raises(CancelledError):
        ahead.take(ahead.begin([0])[0], never)


def test_failures_pass():
    source, failure = Remote(), Failure(0, "uri", "read", "timeout")
    ahead = ReadAhead(source)
    source.pending[0] = Future()
    source.pending[0].set_result(failure)
    assert ahead.take(ahead.begin([0])[0], never) is failure
