"""A second request for a read that lags: when it is sent, which answer counts, and that there are
few.
"""

from __future__ import annotations

import asyncio
import gc
import random
from typing import Any

import pytest
from helpers.clocks import now, run
from helpers.services import FOREVER, POLICY, Service, read, used_to

from fastfeed.storage.clients import explain
from fastfeed.storage.retry import Latencies, RetryPolicy, retry


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch):
    monkeypatch.setattr(random, "random", lambda: 0.5)


def test_the_second_answers_first():
    service = Service((FOREVER, b""), (0.5, b"second"))
    assert read(service, latencies=used_to(1.0)) == (
        b"second",
        3.5,
    )  # three times the median, then half a second
    assert service.begun == [0, 3]
    assert service.canceled == [0]


def test_the_first_answers_first():
    service = Service((3.2, b"first"), (FOREVER, b""))
    assert read(service, latencies=used_to(1.0)) == (b"first", 3.2)
    assert service.canceled == [1]


def test_none_is_sent_in_time():
    service = Service((2.9, b"first"))
    assert read(service, latencies=used_to(1.0)) == (b"first", 2.9)
    assert service.begun == [0]


@pytest.mark.parametrize(
    "replies",
    [[(3.2, OSError("first")), (1, b"x")], [(4, b"x"), (0.2, OSError("second"))]],
    ids=["first fails", "second fails"],
)
def test_one_fails_the_other_is_waited_for(replies):
    service = Service(*replies)
    assert read(service, latencies=used_to(1.0)) == (b"x", 4)
    assert len(service.begun) == 2
    assert not service.canceled


def test_both_fail():
    service = Service((3.2, OSError("first")), (1, OSError("second")), (1, b"x"))
    assert read(service, latencies=used_to(1.0)) == (b"x", pytest.approx(5.1))
    assert service.begun == pytest.approx([0, 3, 4.1])


def test_both_hang():
    service = Service((FOREVER, b""), (FOREVER, b""), (0, b"x"))
    assert read(service, latencies=used_to(1.0)) == (b"x", 20.1)
    assert service.canceled == [0, 1]


def test_a_quick_service_is_not_asked_twice_for_nothing():
    service = Service((0.049, b"x"))
    read(service, latencies=used_to(0.001))
    assert service.begun == [0]
    service = Service((FOREVER, b""), (0.01, b"x"))
    assert read(service, latencies=used_to(0.001)) == (b"x", pytest.approx(0.06))


@pytest.mark.parametrize(
    "more",
    [
        {"latencies": None},
        {"latencies": used_to(1.0, reads=15)},
        {"latencies": used_to(1.0), "policy": RetryPolicy(hedge=False)},
        {"latencies": used_to(30.0)},  # the attempt ends before
    ],
    ids=["unknown", "too few known", "switched off", "slow"],
)
def test_no_second_request(more):
    service = Service((19, b"x"))
    assert read(service, **more) == (b"x", 19)
    assert service.begun == [0]


def test_a_service_that_becomes_slow_is_not_asked_twice():
    """The 100 reads that follow on a hundred quick ones take ten times as long."""
    service, latencies = Service((10, b"x")), used_to(1.0)

    async def work() -> None:
        for _ in range(100):
            await retry(service, 100, explain, POLICY, latencies)

    run(work())
    assert len(service.begun) <= 100 + 8 + 5
    assert latencies.lags_after(100) == 30


def test_hedges_are_saved_up():
    latencies = Latencies()
    assert [latencies.spend() for _ in range(9)] == [True] * 8 + [False]
    for _ in range(21):
        latencies.add(1, 1.0)
    assert [latencies.spend() for _ in range(2)] == [True, False]


def test_the_error_of_the_loser_is_not_reported():
    """It fails while it is being canceled."""

    async def loser() -> Any:
        if now() > 0:
            return b"x"
        try:
            await asyncio.sleep(FOREVER)
        finally:
            raise ConnectionResetError("on the way out")

    assert read(loser, latencies=used_to(1.0)) == (b"x", 3)
    gc.collect()
