"""One read: attempts, pauses, the deadline. Time is a clock's that never waits."""

from __future__ import annotations

import asyncio
import random

import pytest
from helpers.clocks import run
from helpers.services import FOREVER, POLICY, Service, read, used_to
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.storage.clients import explain
from fastfeed.storage.reads import Unread
from fastfeed.storage.retry import RetryPolicy, retry, retry_count


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch):
    monkeypatch.setattr(random, "random", lambda: 0.5)


def test_a_good_answer():
    service = Service((0.25, b"x"))
    assert read(service) == (b"x", 0.25)
    assert service.begun == [0]


def test_pauses_double_up_to_the_longest():
    service = Service((0, OSError("busy")))
    read(service)
    pauses = [round(b - a, 6) for a, b in zip(service.begun, service.begun[1:], strict=False)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, *[5.0] * 10]


def test_pauses_differ_from_reader_to_reader(monkeypatch):
    for drawn, pause in ((0.0, 0.05), (0.999999, 0.15)):
        monkeypatch.setattr(random, "random", lambda drawn=drawn: drawn)
        service = Service((0, OSError("busy")), (0, b"x"))
        answer, at = read(service)
        assert answer == b"x"
        assert at == pytest.approx(pause, rel=1e-4)


def test_the_deadline_is_for_all_attempts():
    answer, at = read(Service((0, OSError("busy"))))
    assert answer == Unread("io_error", "busy (attempt 17, 56.3 s after the first)")
    assert at == pytest.approx(56.3)  # the next pause would have led beyond the 60


def test_the_last_reason_counts():
    service = Service(
        (0, OSError("reset")), (0, ConnectionResetError("again")), (0, OSError("third"))
    )
    answer, _ = read(service, policy=RetryPolicy(attempts=2))
    assert answer.detail.startswith("ConnectionResetError: again (attempt 2,")


def test_a_request_that_hangs_is_given_up():
    service = Service((FOREVER, b""), (0, b"x"))
    assert read(service) == (b"x", 20.1)
    assert service.canceled == [0]


def test_all_requests_hang():
    service = Service((FOREVER, b""))
    answer, at = read(service)
    assert service.begun == pytest.approx([0, 20.1, 40.3])
    assert at == pytest.approx(60)
    assert answer == Unread("timeout", "no answer within 19.7 s (attempt 3, 60 s after the first)")
    assert service.canceled == [0, 1, 2]


def test_large_reads_have_more_time():
    service = Service((100, b"x"))
    assert read(service, size=8 << 20, policy=RetryPolicy())[0] == b"x"  # 84 s at the slowest rate
    assert read(service, size=100 << 10, policy=RetryPolicy())[0].reason == "timeout"


def test_so_many_attempts():
    service = Service((0, OSError("busy")))
    read(service, policy=RetryPolicy(attempts=3))
    assert len(service.begun) == 3


def test_an_error_that_will_come_again_is_not_tried_again():
    service = Service((1, FileNotFoundError("x")))
    assert read(service) == (Unread("not_found"), 1)
    service = Service((1, TypeError("a bug")))
    assert read(service) == (Unread("io_error", "TypeError: a bug"), 1)


def test_an_unread_is_an_answer():
    service = Service((0, Unread("changed", "other size")))
    assert read(service)[0] == Unread("changed", "other size")
    assert len(service.begun) == 1


def test_a_client_that_cancels_its_own_request():
    service = Service((0, asyncio.CancelledError()), (0, b"x"))
    assert read(service)[0] == b"x"


def test_canceling_ends_the_request():
    service = Service((FOREVER, b""))

    async def work() -> None:
        task = asyncio.ensure_future(retry(service, 1, explain, POLICY, None))
        await asyncio.sleep(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)

    run(work())
    assert service.canceled == [0]


def test_canceling_in_a_pause():
    service = Service((0, OSError("busy")))

    async def work() -> None:
        task = asyncio.ensure_future(retry(service, 1, explain, POLICY, None))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())
    assert len(service.begun) == 1


def test_waiting_for_a_place_after_a_pause_costs_no_time():
    service = Service((1, OSError("busy")))

    async def pause(seconds: float) -> None:
        await asyncio.sleep(seconds + 1000)

    answer, at = read(service, pause=pause)
    assert len(service.begun) == 14
    assert at > 13_000
    assert answer.detail == "busy (attempt 14, 55.3 s after the first)"


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.5, 5.0, 19.0, FOREVER]),
            st.sampled_from(["good", "bad", "gone"]),
        )
    ),
    st.booleans(),
)
def test_whatever_happens(replies, warm):
    """It ends, by its deadline; with a good answer if a request gave one; and no request keeps
    running.
    """
    answers = {"good": b"x", "bad": OSError("busy"), "gone": FileNotFoundError("gone")}
    service = Service(*[(seconds, answers[what]) for seconds, what in replies], (0.0, b"last"))
    drawn = random.Random(0).random
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random, "random", drawn)
        answer, at = read(service, latencies=used_to(1.0) if warm else None)
    assert at <= 60 + 1e-6
    assert answer in (b"x", b"last", Unread("not_found")) or answer.reason in (
        "io_error",
        "timeout",
    )
    if replies and replies[0] == (0.0, "good"):
        assert (answer, at) == (b"x", 0)


def test_requests_that_are_sent_again_are_counted():
    before = retry_count()
    read(Service((0, OSError("busy")), (0, OSError("busy")), (0, b"x")))
    assert retry_count() - before == 2
    read(Service((0.25, b"x")))
    assert retry_count() - before == 2
