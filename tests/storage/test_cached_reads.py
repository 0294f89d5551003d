"""Reads through the disk cache: what is missing is fetched in whole chunks, each once, and then
never again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as NotYet
from typing import Any

import pytest
from helpers.lakes import DATA, LONG, QUICK, Ask, Gate, Lake, span, storage, wait
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastfeed.storage.disk_cache import Cache
from fastfeed.storage.reads import ByteRange, Stat, Unread
from fastfeed.storage.retry import RetryPolicy
from fastfeed.storage.storage import Storage

WHOLE = Stat(len(DATA), "v")
URI = "lake://a/b"


@pytest.fixture
def cache(tmp_path) -> Cache:
    return Cache(tmp_path / "cache", chunk=100)


class Held:
    """A lake behind a cache, whose answers wait at a gate."""

    def __init__(self, cache: Cache, policy: RetryPolicy = QUICK, **more: Any) -> None:
        self.gate, self.cache = Gate(), cache
        self.lake = Lake(before=self._before)
        self.store = storage(self.lake, policy, cache=cache, **more)

    async def _before(self, ask: Ask) -> None:
        await self.gate.wait()


@pytest.fixture
def held(cache) -> Iterator[Held]:
    held = Held(cache)
    yield held
    if not held.gate.opened:
        held.gate.open()


def cached(start: int, stop: int | None) -> ByteRange:
    return span(start, stop, whole=WHOLE)


def asked(lake: Lake) -> list[tuple[int | None, int | None]]:
    return [(ask.start, ask.end) for ask in lake.asked]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=20),
    st.integers(1, 1200),
)
def test_any_spans(tmp_path_factory, spans, chunk):
    lake = Lake()
    store = storage(lake, cache=Cache(tmp_path_factory.mktemp("cache"), chunk=chunk))
    pairs = [(start, min(start + length, 1000)) for start, length in spans]
    for _ in range(2):
        assert store.read([cached(*pair) for pair in pairs]) == [
            DATA[start:stop] for start, stop in pairs
        ]
    assert len(lake.asked) <= -(-1000 // chunk), "each chunk once"


def test_whole_chunks_are_fetched_and_kept(cache):
    lake = Lake()
    assert storage(lake, cache=cache).read([cached(110, 120)]) == [DATA[110:120]]
    assert asked(lake) == [(100, 200)]
    assert storage(lake, cache=cache).read([cached(100, 200), cached(199, 200)]) == [
        DATA[100:200],
        DATA[199:200],
    ]
    assert len(lake.asked) == 1


def test_one_of_three_is_missing(cache):
    lake = Lake()
    store = storage(lake, cache=cache)
    store.read([cached(100, 101), cached(300, 301)])
    assert store.read([cached(150, 350)]) == [DATA[150:350]]
    assert asked(lake) == [(100, 200), (300, 400), (200, 300)]


def test_the_last_chunk_is_shorter(cache):
    lake = Lake({"a/b": DATA[:250], "a/c": b"small"})
    store = storage(lake, cache=cache)
    assert store.read([span(200, 250, whole=Stat(250, "v"))]) == [DATA[200:250]]
    assert store.read([span(1, 3, "a/c", Stat(5, "v"))]) == [b"ma"]
    assert asked(lake) == [(200, 250), (0, 6)]


def test_without_size_and_version_nothing_is_kept(cache):
    lake = Lake()
    store = storage(lake, cache=cache)
    assert store.read([span(0, 10)] * 2) == [DATA[:10]] * 2
    assert len(lake.asked) == 2
    assert not cache.counts


def test_another_version_is_another_object(cache):
    lake = Lake()
    store = storage(lake, cache=cache)
    store.read([cached(0, 10)])
    lake.files["a/b"] = bytes(1000)
    assert store.read([span(0, 10, whole=Stat(1000, "w")), cached(0, 10)]) == [bytes(10), DATA[:10]]


def test_nothing_is_kept_of_a_read_that_failed(cache):
    lake = Lake(after=lambda ask, data: data[:-1] if ask.number < QUICK.attempts else data)
    store = storage(lake, cache=cache)
    found = store.read([cached(0, 10), cached(50, 60)])
    assert [unread.reason for unread in found] == ["io_error"] * 2
    assert len(lake.asked) == QUICK.attempts, "both had the same chunk to wait for"
    assert not cache.counts
    assert store.read([cached(0, 10)]) == [DATA[:10]]


def test_two_spans_of_a_chunk_are_one_request(held):
    found = held.store.fetch([cached(0, 10), cached(50, 150), cached(90, 100)])
    wait(held.gate.reached)
    later = held.store.fetch([cached(20, 30)])
    held.gate.open()
    assert [f.result(LONG) for f in found + later] == [
        DATA[:10],
        DATA[50:150],
        DATA[90:100],
        DATA[20:30],
    ]
    assert sorted(asked(held.lake)) == [(0, 100), (100, 200)]


def test_those_that_wait_for_the_same_chunk_take_one_place(cache):
    """Samples are adjacent: 80 reads of one chunk must not keep the other chunks from being
    fetched.
    """
    held = Held(cache, in_flight=2)
    found = held.store.fetch([cached(i, i + 1) for i in range(80)] + [cached(500, 501)])
    while held.lake.now < 2:
        wait(held.gate.reached)
    held.gate.open()
    assert [f.result(LONG) for f in found] == [DATA[i : i + 1] for i in (*range(80), 500)]
    assert len(held.lake.asked) == 2


def test_who_gives_up_takes_nothing_from_the_others(held):
    first, second = held.store.fetch([cached(0, 10), cached(10, 20)])
    wait(held.gate.reached)
    first.cancel()
    with pytest.raises(CancelledError):
        first.result(LONG)
    held.gate.open()
    assert second.result(LONG) == DATA[10:20]
    assert len(held.lake.asked) == 1


def test_when_all_have_given_up_the_request_ends(held):
    found = held.store.fetch([cached(0, 10), cached(10, 20)])
    wait(held.gate.reached)
    for pending in found:
        pending.cancel()
    other = held.store.fetch([cached(20, 30)])[0]  # the one that was canceled is not waited for
    held.gate.open()
    assert other.result(LONG) == DATA[20:30]
    assert len(held.lake.asked) == 2
    assert held.lake.now == 0


@pytest.mark.parametrize("gone", [[1], [2], [1, 2, 3]])
def test_chunks_removed_between_look_and_read(cache, gone):
    lake = Lake()
    store = storage(lake, cache=cache)
    store.read([cached(100, 400)])
    before = len(lake.asked)
    pending = store.fetch([cached(150, 350)])[0]
    assert pending.done()
    for number in gone:
        os.unlink(cache.path(URI, "v", number, 1000))
    assert pending.result(LONG) == DATA[150:350]
    assert len(lake.asked) == before + len(gone)


def test_chunks_that_cannot_be_read(cache, monkeypatch):
    """Looked for, they are there; yet the file cannot be opened."""
    lake = Lake()
    store = storage(lake, cache=cache)
    store.read([cached(100, 300)])
    monkeypatch.setattr(Cache, "get", lambda *_: None)
    assert store.read([cached(150, 250)]) == [DATA[150:250]]
    assert len(lake.asked) == 4


def test_what_cannot_be_stored_is_served(cache, monkeypatch):
    monkeypatch.setattr(Cache, "put", lambda *_: None)
    lake = Lake()
    store = storage(lake, cache=cache)
    assert store.read([cached(50, 250)]) == [DATA[50:250]]
    assert store.read([cached(50, 250)]) == [DATA[50:250]]
    assert len(lake.asked) == 6


def test_an_error_in_the_cache_is_raised_where_the_result_is_taken(cache, monkeypatch):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("in put")

    monkeypatch.setattr(Cache, "put", broken)
    with pytest.raises(ZeroDivisionError, match="in put"):
        storage(Lake(), cache=cache).read([cached(0, 10)])


def test_waiting_for_a_while(held):
    pending = held.store.fetch([cached(50, 250)])[0]
    for _ in range(3):
        with pytest.raises(NotYet):
            pending.result(0.001)
        assert not pending.done()
    held.gate.open()
    assert pending.result(LONG) == DATA[50:250]
    assert pending.result(0) == DATA[50:250], "it may be asked for again"


def test_waiting_for_what_was_removed(cache):
    gate = Gate()

    async def before(ask: Ask) -> None:
        if ask.number >= 2:
            await gate.wait()

    lake = Lake(before=before)
    store = storage(lake, cache=cache)
    store.read([cached(100, 300)])
    pending = store.fetch([cached(150, 250)])[0]
    os.unlink(cache.path(URI, "v", 2, 1000))
    with pytest.raises(NotYet):
        pending.result(0.001)
    assert not pending.done()
    gate.open()
    assert pending.result(LONG) == DATA[150:250]


def test_a_pending_read_holds_its_own_bytes_alone(cache):
    """Not the chunk that they came with: hundreds may be pending."""

    came: list[bytes] = []

    def after(ask: Ask, data: bytes) -> bytes:
        came.append(bytes(bytearray(data)))
        return came[-1]

    store = storage(Lake(after=after), cache=cache)
    pending = store.fetch([cached(110, 120)])[0]
    assert pending.result(LONG) == DATA[110:120]
    references, deadline = 0, time.monotonic() + LONG
    while (
        references != 2 and time.monotonic() < deadline
    ):  # the event loop and the writers let go of it soon
        store.read([cached(500, 501)])
        references = sys.getrefcount(came[0])
    assert references == 2, "the list here, and the argument of the call"
    assert not store._reads._chunks._flights


def test_a_slow_disk_holds_back_the_network(cache, monkeypatch):
    """Chunks that are not written yet are in memory."""
    gate, put = Gate(), Cache.put

    def slow(self: Cache, *args: Any) -> None:
        gate.wait_here()
        put(self, *args)

    monkeypatch.setattr(Cache, "put", slow)
    lake = Lake()
    store = storage(lake, cache=cache, in_flight=2)
    found = store.fetch([cached(100 * i, 100 * i + 1) for i in range(10)])
    wait(gate.reached)
    with pytest.raises(NotYet):
        found[5].result(0.02)
    assert len(lake.asked) == 2
    gate.open()
    assert [f.result(LONG) for f in found] == [DATA[100 * i : 100 * i + 1] for i in range(10)]


def test_the_objects_change_is_told(cache):
    lake = Lake({"a/b": DATA[:500]})
    store: Storage = storage(lake, cache=cache)
    assert store.read([cached(450, 650)]) == [
        Unread("changed", "500 bytes, 1000 when it was listed")
    ]
    assert cache.counts["stored"] == 1, "the chunk that is there as it was"
