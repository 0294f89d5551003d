"""Reads begun ahead: in which order, how many, how large; errors in their place; and that nothing
waits forever.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers.begun import Remote, Shards
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.feed.batch.readahead import ReadAhead, Ticket


def never() -> bool:
    return False


def answered(count: int, size: int = 1) -> Remote:
    source = Remote()
    source.answer(*range(count), size=size)
    return source


@pytest.fixture
def by_hand(monkeypatch):
    """Reads are begun where a test says so, not by a thread."""
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)


def step(ahead: ReadAhead, ticket: Ticket) -> Any:
    """Begin what there is room for, and take one."""
    ahead.advance()
    return ahead.take(ticket, never)


def test_who_asks_for_batches_begins_no_read(by_hand):
    source = answered(100)
    ahead = ReadAhead(source, samples=10)
    ahead.request(range(50))
    ahead.request(range(50, 100))
    assert not source.calls
    ahead.advance()
    assert source.calls == [list(range(10))]


def test_reads_are_begun_before_anyone_waits():
    source = Remote()
    ahead = ReadAhead(source)
    ahead.request(range(30))
    source.until(30)
    ahead.request(range(30, 60))
    source.until(60)


def test_in_the_order_of_their_turn_and_at_most_so_many(by_hand):
    source = answered(100)
    ahead = ReadAhead(source, samples=16)
    tickets = ahead.request(range(50)) + ahead.request(range(50, 100))
    for taken, ticket in enumerate(tickets):
        assert step(ahead, ticket) == bytes([taken])
        assert len(source.begun) == min(100, taken + 16)
    assert source.begun == list(range(100))


def test_several_are_begun_at_once(by_hand):
    """The thread is woken when there is room for an eighth of all; no read waits for more."""
    source = answered(1000)
    ahead = ReadAhead(source, samples=64)
    tickets = ahead.request(range(1000))
    ahead.advance()
    for taken, ticket in enumerate(tickets, 1):
        while not ahead._signals.empty():
            ahead._signals.get()
            ahead.advance()
        assert len(source.begun) >= min(1000, taken + 64 - 8)
        ahead.take(ticket, never)
    assert source.begun == list(range(1000))
    assert all(len(call) >= 8 for call in source.calls[:-1])


@pytest.mark.parametrize(("size", "most"), [(100, 16), (500, 3), (6400, 1)])
def test_about_so_many_bytes(by_hand, size, most):
    source = answered(200, size)
    ahead = ReadAhead(source, samples=256, limit=1600)
    tickets = ahead.request(range(200))
    ahead._urgent.append(tickets[0])  # nothing is known of the sizes yet
    for taken, ticket in enumerate(tickets[:100]):
        if size > 1600 and taken:
            ahead.advance()
            assert len(source.begun) == taken, "not even one fits"
            ahead._urgent.append(ticket)
        step(ahead, ticket)
        assert len(source.begun) - taken == (most if taken else 1)


def test_the_first_ones_are_taken_to_be_large(by_hand):
    """As long as nothing is known, not all of them may be begun: they could be of any size."""
    source = answered(500)
    ahead = ReadAhead(source, samples=256, limit=64 << 20)
    tickets = ahead.request(range(500))
    step(ahead, tickets[0])
    assert len(source.begun) == 16
    ahead.advance()
    assert len(source.begun) == 1 + 256, "one byte it was"


def test_sizes_that_are_known(by_hand):
    source = Shards({i: 60 if i % 3 == 0 else 20 for i in range(100)})
    source.answer(*range(100), size=30)
    ahead = ReadAhead(source, samples=256, limit=100)
    tickets = ahead.request(range(100))
    ahead._mean = 1.0  # so that the sizes alone count
    for i, ticket in enumerate(tickets):
        step(ahead, ticket)
        held = int(source.sizes(np.array(source.begun[i:])).sum())
        following = int(source.sizes(np.array(source.begun[-1:]) + 1)[0])
        assert held <= 100
        assert held + following > 100 or len(source.begun) == 100
        ahead._mean = 1.0
    assert source.begun == list(range(100))


def test_one_larger_than_all_that_may_be_held():
    source = Shards(1000)
    source.answer(*range(5), size=1000)
    ahead = ReadAhead(source, limit=100)
    assert [len(ahead.take(ticket, never)) for ticket in ahead.request(range(5))] == [1000] * 5


def test_one_that_was_not_begun_is_when_it_is_wanted():
    source = answered(100)
    ahead = ReadAhead(source, samples=4)
    tickets = ahead.request(range(100))
    assert ahead.take(tickets[99], never) == b"c"
    assert [ahead.take(ticket, never) for ticket in tickets[:99]] == [bytes([i]) for i in range(99)]
    assert sorted(source.begun) == list(range(100))
    assert source.begun.index(99) <= 4


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=8),
    st.integers(1, 20),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_many_threads(batches, samples, threads, random):
    """Each takes its own, some drop some: all get what they asked for, each is begun once, and none
    stays counted.
    """
    source = answered(sum(batches))
    ahead = ReadAhead(source, samples=samples, limit=40 << 20)
    first, work = 0, []
    for length in batches:
        tickets = ahead.request(range(first, first + length))
        kept = [ticket for ticket in tickets if random.random() < 0.8]
        work.append((kept, [ticket for ticket in tickets if ticket not in kept]))
        first += length

    def batch(kept: list[Ticket], dropped: list[Ticket]) -> list[tuple[int, Any]]:
        found = [(ticket.id, ahead.take(ticket, never)) for ticket in kept]
        ahead.drop(dropped)
        return found

    with ThreadPoolExecutor(threads) as pool:
        for found in pool.map(lambda pair: batch(*pair), work):
            assert all(data == bytes([i]) for i, data in found)
    assert len(source.begun) == len(set(source.begun))
    assert not ahead._in_flight
    assert (ahead._known_bytes, ahead._unknown_count) == (0, 0)
    ahead.close()
