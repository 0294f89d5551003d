"""Reads that lag: sizes never seen, a budget that is used up for now, requests that nobody will answer any more."""

from __future__ import annotations

import pytest
from services import FOREVER, Service, read, used_to

from fastfeed.sources import fetch


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch.random, "random", lambda: 0.5)


def test_a_size_not_seen_yet_lags_as_the_slowest_others_do():
    latencies = used_to(0.1, size=100)
    latencies._took |= used_to(0.2, size=10_000)._took
    latencies._lag |= used_to(0.2, size=10_000)._lag
    service = Service((FOREVER, b""), (0.1, b"x"))
    answer, at = read(service, size=1_000_000, latencies=latencies)
    assert answer == b"x" and service.begun == [0, pytest.approx(0.6)] and at == pytest.approx(0.7)


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
        patch.setattr(fetch.Latencies, "spend", later)
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
