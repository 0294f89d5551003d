"""Reads begun ahead: in which order, how many, how large; errors in their place; and that nothing waits for ever."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from begun import Remote, Shards
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.readahead import ReadAhead, Ticket


def never() -> bool:
    return False


def take(ahead: ReadAhead, tickets: list[Ticket]) -> list[Any]:
    return [ahead.take(ticket, never) for ticket in tickets]


def answered(count: int, size: int = 1) -> Remote:
    source = Remote()
    source.answer(*range(count), size=size)
    return source


def test_who_asks_for_batches_begins_no_read():
    source = answered(100)
    ahead = ReadAhead(source, samples=10)
    tickets = ahead.begin(range(100))
    assert not source.calls
    assert ahead.take(tickets[0], never) == b"\x00"
    assert source.begun[:10] == list(range(10))


def test_in_the_order_of_their_turn_and_at_most_so_many():
    source = answered(100)
    ahead = ReadAhead(source, samples=16)
    tickets = ahead.begin(range(50)) + ahead.begin(range(50, 100))
    for done, ticket in enumerate(tickets):
        assert ahead.take(ticket, never) == bytes([done])
        assert done < len(source.begun) <= done + 1 + 16
    assert source.begun == list(range(100))


def test_reads_are_begun_several_at_once():
    source = answered(1000)
    ahead = ReadAhead(source, samples=64)
    take(ahead, ahead.begin(range(1000)))
    assert source.begun == list(range(1000))
    assert len(source.calls) < 200
    assert all(len(call) >= 8 for call in source.calls[:-1])


def test_there_is_no_pause_before_the_next_are_begun():
    """When all but some of those begun are taken, others are under way."""
    source = answered(1000)
    ahead = ReadAhead(source, samples=64)
    tickets = ahead.begin(range(1000))
    for i in range(900):
        ahead.take(tickets[i], never)
        assert len(source.begun) >= i + 1 + 64 - 8 - 1


@pytest.mark.parametrize(("size", "most"), [(100, 16), (500, 3), (6400, 1)])
def test_about_so_many_bytes(size, most):
    source = answered(200, size)
    ahead = ReadAhead(source, samples=256, limit=1600)
    for taken, ticket in enumerate(ahead.begin(range(200))[:100], 1):
        ahead.take(ticket, never)
        assert most - max(1, most // 8) <= len(source.begun) - taken <= most


def test_the_first_ones_are_taken_to_be_large():
    """As long as nothing is known, not all of them may be begun: they could be of any size."""
    source = Remote()
    ahead = ReadAhead(source, samples=256, limit=64 << 20)
    source.answer(0)
    tickets = ahead.begin(range(500))
    ahead.take(tickets[0], never)
    assert len(source.calls[0]) == 16
    assert len(source.begun) == 1 + 256, "one byte it was"


def test_sizes_that_are_known():
    source = Shards({i: 60 if i % 3 == 0 else 20 for i in range(100)})
    source.answer(*range(100), size=30)
    ahead = ReadAhead(source, samples=256, limit=100)
    tickets = ahead.begin(range(100))
    for i, ticket in enumerate(tickets):
        ahead.take(ticket, never)
        held = source.begun[i + 1 :]
        assert int(source.sizes(np.array(held, int)).sum()) <= 100
        assert held or i >= 99 or ahead._room() < 1
    assert source.begun == list(range(100))


def test_one_larger_than_all_that_may_be_held():
    source = Shards(1000)
    source.answer(*range(5), size=1000)
    assert take(ReadAhead(source, limit=100), ReadAhead(source, limit=100).begin([])) == []
    ahead = ReadAhead(source, limit=100)
    assert [len(data) for data in take(ahead, ahead.begin(range(5)))] == [1000] * 5


def test_one_that_was_not_begun_is_when_it_is_wanted():
    source = answered(100)
    ahead = ReadAhead(source, samples=4)
    tickets = ahead.begin(range(100))
    assert ahead.take(tickets[99], never) == b"c"
    assert source.begun[0] == 99
    assert take(ahead, tickets[:99]) == [bytes([i]) for i in range(99)]
    assert sorted(source.begun) == list(range(100))


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=8),
    st.integers(1, 20),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_many_threads(batches, samples, threads, random):
    """Each takes its own, some drop some: all get what they asked for, each is begun once, and none stays counted."""
    source = answered(sum(batches))
    ahead = ReadAhead(source, samples=samples, limit=40 << 20)
    first, work = 0, []
    for length in batches:
        tickets = ahead.begin(range(first, first + length))
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
    assert not ahead._begun
    assert (ahead._known, ahead._unknown) == (0, 0)
