"""Bytes by ranges: what is served, what is tried again, how many at once, and how it ends.

No request is waited for.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import fsspec
import pytest
from helpers.lakes import DATA, LONG, QUICK, Ask, Gate, Lake, span, storage, wait
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.errors import ConfigError
from fastfeed.storage.reads import ByteRange, Stat, Unread
from fastfeed.storage.retry import RetryPolicy
from fastfeed.storage.storage import Storage

WHOLE = Stat(len(DATA), "v")


def one(lake: Lake, *args: Any, **more: Any) -> Any:
    return storage(lake).read([span(*args, **more)])[0]


# -- what is served


@given(st.integers(0, 1000), st.integers(0, 1000), st.booleans(), st.booleans())
def test_any_span(start, length, known, ranges):
    stop = min(start + length, len(DATA))
    lake = Lake(ranges=ranges)
    assert one(lake, start, max(start, stop), whole=WHOLE if known else None) == DATA[start:stop]


@pytest.mark.parametrize("whole", [None, WHOLE])
def test_without_an_end(whole):
    assert one(Lake(), 0, None, whole=whole) == DATA
    for ranges in (True, False):
        assert one(Lake(ranges=ranges), 990, None, whole=whole) == DATA[990:]
        assert one(Lake(ranges=ranges), 1000, None, whole=whole) == b""


def test_without_an_end_beyond_it():
    assert one(Lake(), 1001).detail == "it ends at 1000, bytes from 1001 were asked for"
    assert one(Lake(sizes=False), 5).detail == "the server does not say how large it is"


def test_nothing_is_asked_for_nothing():
    lake = Lake()
    assert one(lake, 5, 5) == b""
    assert one(lake, 1000, 1000, whole=WHOLE) == b""
    assert one(lake, 0, None, whole=Stat(0, "v")) == b""
    assert not lake.asked


def test_an_object_asked_for_in_whole_is_asked_for_with_a_byte_more():
    """Which shows that it grew, however much."""
    lake = Lake()
    one(lake, 0, 1000, whole=WHOLE)
    one(lake, 0, 999, whole=WHOLE)
    one(lake, 0, None)
    assert [(ask.start, ask.end) for ask in lake.asked] == [(0, 1001), (0, 999), (0, 1001)]


@pytest.mark.parametrize("ends", [(-1, 5), (5, 4), (-5, None)])
def test_spans_that_are_none(ends):
    with pytest.raises(ConfigError, match="0 <= start <= stop, got"):
        one(Lake(), *ends)


def test_beyond_the_end():
    lake = Lake()
    assert one(lake, 990, 1001, whole=WHOLE) == Unread(
        "truncated", "it ends at 1000, bytes up to 1001 were asked for"
    )
    assert not lake.asked
    assert one(lake, 990, 1001).detail == "it ends at 1000, bytes up to 1001 were asked for"
    assert one(lake, 2000, 2001).reason == "truncated"
    assert len(lake.asked) == 2, "it will not be longer the next time"


@pytest.mark.parametrize("ends", [(0, 1200), (500, 600), (1100, 1200)])
def test_an_object_that_became_shorter(ends):
    lake = Lake(ranges=ends != (500, 600))
    assert one(lake, *ends, whole=Stat(1200, "v")) == Unread(
        "changed", "1000 bytes, 1200 when it was listed"
    )
    assert len(lake.asked) == 1


def test_an_object_that_grew():
    assert one(Lake(), 0, 900, whole=Stat(900, "v")) == Unread(
        "changed", "1000 bytes, 900 when it was listed"
    )


@pytest.mark.parametrize("known", [None, WHOLE])
@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("cut", [1, 99, 950])
def test_a_part_of_an_answer_is_no_answer(cut, ranges, known):
    """All of it but some bytes came; the next time all."""
    lake = Lake(ranges=ranges, after=lambda ask, data: data[:-cut] if ask.number < 2 else data)
    assert one(lake, 100, 200, whole=known) == DATA[100:200]
    assert len(lake.asked) == 3


def test_always_cut_short():
    lake = Lake(after=lambda ask, data: data[:60])
    found = one(lake, 100, 200, whole=WHOLE)
    assert (found.reason, found.detail[:26]) == ("io_error", "got 60 of 100 bytes at 100")
    assert len(lake.asked) == QUICK.attempts


def test_more_than_was_asked_for_and_not_all():
    """Which part of it would be meant cannot be known."""
    lake = Lake(after=lambda ask, data: data + b"more")
    assert one(lake, 100, 200).detail.startswith("got 104 of 100 bytes at 100")


def test_a_shorter_answer_where_no_size_is_known():
    lake = Lake(sizes=False, after=lambda ask, data: data[:60] if ask.number == 0 else data)
    assert one(lake, 100, 200) == DATA[100:200]


# -- what is tried again


@pytest.mark.parametrize(
    "error", [OSError("reset"), TimeoutError(), ConnectionResetError(), RuntimeError("of a client")]
)
def test_tried_again(error):
    async def before(ask: Ask) -> None:
        if ask.number < 3:
            raise error

    lake = Lake(before=before)
    assert one(lake, 0, 10) == DATA[:10]
    assert len(lake.asked) == 4


@pytest.mark.parametrize(
    ("error", "unread"),
    [
        (FileNotFoundError("a/b"), Unread("not_found")),
        (PermissionError("no"), Unread("denied", "permission denied: no")),
        (TypeError("a bug"), Unread("io_error", "TypeError: a bug")),
    ],
)
def test_not_tried_again(error, unread):
    async def before(ask: Ask) -> None:
        raise error

    lake = Lake(before=before)
    assert one(lake, 0, 10) == unread
    assert len(lake.asked) == 1


# -- how many at once


@pytest.mark.parametrize("in_flight", [1, 3, 64])
def test_so_many_at_once(in_flight):
    lake = Lake()
    found = storage(lake, in_flight=in_flight).read([span(i, i + 1) for i in range(200)])
    assert found == [DATA[i : i + 1] for i in range(200)]
    assert lake.most == in_flight


def test_one_that_pauses_holds_up_no_one():
    failed = Gate()

    async def before(ask: Ask) -> None:
        if ask.path == "bad":
            failed.reached.set()
            raise OSError("busy")

    lake = Lake(before=before)
    store = storage(lake, RetryPolicy(backoff_s=1000, deadline_s=1e6), in_flight=1)
    bad = store.fetch([span(0, 1, "bad")])[0]
    wait(failed.reached)
    assert store.read([span(0, 10)]) == [DATA[:10]]
    assert bad.cancel()


def test_hung_requests_are_given_up():
    async def before(ask: Ask) -> None:
        if ask.number < 2:
            await asyncio.sleep(1000)

    lake = Lake(before=before)
    store = storage(lake, RetryPolicy(attempt_s=0.01, backoff_s=0, min_rate=1e9), in_flight=1)
    assert store.read([span(0, 10), span(10, 20)]) == [DATA[:10], DATA[10:20]]
    assert (len(lake.asked), lake.now) == (4, 0)


def test_a_second_request_comes_on_top_of_those_in_flight():
    gate = Gate()

    async def before(ask: Ask) -> None:
        if ask.number == 100:  # lags
            await gate.wait()

    lake = Lake(before=before)
    store = storage(lake, RetryPolicy(min_hedge_s=0), in_flight=1)
    assert store.read([span(0, 100)] * 101) == [DATA[:100]] * 101
    assert len(lake.asked) == 102
    assert lake.most == 2
    gate.open()


# -- without asyncio


def pond(lake: Lake, **more: Any) -> Storage:
    return Storage({"water": lake}, **({"policy": QUICK} | more))


def test_a_file_system_without_asyncio():
    lake = Lake()
    found = pond(lake).read([ByteRange("pond://a/b", i, i + 10) for i in range(50)])
    assert found == [DATA[i : i + 10] for i in range(50)]


def test_calls_that_never_return_are_left_behind():
    gate = threading.Event()

    async def before(ask: Ask) -> None:
        if ask.number < 2:
            assert gate.wait(LONG)

    lake = Lake(before=before)
    store = pond(lake, policy=RetryPolicy(attempt_s=0.02, backoff_s=0, min_rate=1e9), in_flight=2)
    assert store.read([ByteRange("pond://a/b", i, i + 10) for i in range(2)]) == [
        DATA[:10],
        DATA[1:11],
    ]
    gate.set()


def test_threads_do_not_grow_with_reads():
    lake = Lake()
    store = pond(lake, in_flight=3)
    store.read([ByteRange("pond://a/b", 0, 10)] * 20)
    before = threading.active_count()
    store.read([ByteRange("pond://a/b", 0, 10)] * 200)
    storage(lake).read([span(0, 10)] * 500)
    assert threading.active_count() <= before + 3


# -- threads, processes, ends


def test_from_many_threads():
    lake = Lake()
    store = storage(lake, in_flight=8)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: store.read([span(i, i + 5)] * 3), range(200)))
    assert found == [[DATA[i : i + 5]] * 3 for i in range(200)]
    assert lake.most <= 8


def test_pickle():
    store = pickle.loads(pickle.dumps(Storage({"anon": True}, in_flight=7, policy=QUICK)))
    assert (store.options, store.in_flight, store.policy) == ({"anon": True}, 7, QUICK)
    used = Storage()
    fsspec.filesystem("memory").pipe_file("/test-storage-pickle", b"abc")
    assert used.read([ByteRange("memory://test-storage-pickle")]) == [b"abc"]
    assert pickle.loads(pickle.dumps(used)).read([ByteRange("memory://test-storage-pickle")]) == [
        b"abc"
    ]


def test_canceling():
    gate = Gate()

    async def before(ask: Ask) -> None:
        await gate.wait()

    lake = Lake(before=before)
    store = storage(lake, in_flight=1)
    running, waiting, last = store.fetch([span(0, 1), span(1, 2), span(2, 3)])
    wait(gate.reached)
    waiting.cancel()
    running.cancel()
    with pytest.raises(CancelledError):
        running.result(LONG)
    gate.open()
    assert last.result(LONG) == DATA[2:3]
    assert len(lake.asked) == 2, "the second was canceled before its turn"


def test_what_no_one_waits_for_any_more_is_not_reported(caplog):
    lake = Lake(before=None)
    with caplog.at_level(logging.DEBUG, "asyncio"):
        for _ in range(20):
            storage(lake).fetch([span(0, 10), span(0, 10, "none")])
        gc.collect()
        assert storage(lake).read([span(0, 10)]) == [DATA[:10]]
        gc.collect()
    assert not [
        r for r in caplog.records if "destroyed" in r.message or "never retrieved" in r.message
    ]
