"""Reads that lag: sizes never seen, a budget that is used up for now, requests that will never be
answered.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from helpers.clocks import now, run
from helpers.services import FOREVER, POLICY, Service, read, used_to

from fastfeed.storage.clients import explain
from fastfeed.storage.retry import Latencies, retry


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "random", lambda: 0.5)


def test_sizes_not_seen_yet():
    latencies = used_to(0.1, size=100)
    for size, lag in ((100, 0.3), (127, 0.3), (1, 0.3), (200, 0.6), (1000, 2.4)):
        assert latencies.lags_after(size) == pytest.approx(lag)
    for _ in range(100):
        latencies.add(10_000, 0.2)
    for size, lag in ((100, 0.3), (1000, 0.6), (10_000, 0.6), (20_000, 1.2)):
        assert latencies.lags_after(size) == pytest.approx(lag)
    service = Service((FOREVER, b""), (0.1, b"x"))
    answer, at = read(service, size=20_000, latencies=latencies)
    assert answer == b"x" and service.begun == [0, pytest.approx(1.2)] and at == pytest.approx(1.3)


def test_waits_for_the_budget_and_asks_again_then():
    latencies = used_to(0.1)
    while latencies.spend():
        pass
    service = Service((FOREVER, b""), (0.1, b"x"))

    def later(self: object) -> bool:
        tries.append(1)
        return len(tries) == 3  # as when other reads have gone well meanwhile

    tries: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Latencies, "spend", later)
        answer, at = read(service, latencies=latencies)
    assert answer == b"x" and service.begun == [0, pytest.approx(0.9)] and at == pytest.approx(1.0)


def test_an_attempt_whose_requests_both_hang_ends_early():
    service = Service((FOREVER, b""), (FOREVER, b""), (0.1, b"x"))
    answer, at = read(service, latencies=used_to(0.1))
    assert answer == b"x"
    assert at == pytest.approx(3.0 + 0.1 + 0.1)  # ten times what lags, a pause, the third request
    assert service.canceled == [0, 1]


def test_where_all_have_become_slow_each_attempt_waits_longer():
    service = Service((9.0, b"x"))
    answer, at = read(service, latencies=used_to(0.1))
    assert answer == b"x"
    assert at == pytest.approx(3.0 + 0.1 + 6.0 + 0.2 + 9.0)


def test_what_is_not_answered_counts_as_slow():
    """A service that is slow as a whole is soon given its time: not all reads have to find out."""
    service, latencies = Service((9.0, b"x")), used_to(0.1)

    async def work() -> list[float]:
        took = []
        for _ in range(4):  # 40 at once each
            begun = now()
            await asyncio.gather(
                *(retry(service, 100, explain, POLICY, latencies) for _ in range(40))
            )
            took.append(now() - begun)
        return took

    took = run(work())
    assert took[0] > 12
    assert took[-1] == 9
    assert len(service.begun) < 40 * (3 + 1 + 1 + 1) + 20
