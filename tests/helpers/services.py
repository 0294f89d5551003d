"""A service that answers as it is told, and a read from it, on a clock that never waits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from fastfeed.storage.clients import explain
from fastfeed.storage.retry import Latencies, RetryPolicy, retry
from helpers.clocks import now, run

POLICY = RetryPolicy(min_rate=math.inf)  # so that sums are round
FOREVER = 1e9


class Service:
    """Answers one request after another as it is told: after so many seconds, with an answer or an
    error.
    """

    def __init__(self, *replies: tuple[float, Any]) -> None:
        self.replies = list(replies)
        self.begun: list[float] = []
        self.canceled: list[int] = []

    async def __call__(self) -> Any:
        number = len(self.begun)
        self.begun.append(now())
        seconds, answer = self.replies[min(number, len(self.replies) - 1)]
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.canceled.append(number)
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer


def read(
    service: Callable[[], Awaitable[Any]],
    size: int = 100,
    latencies: Latencies | None = None,
    **more: Any,
) -> Any:
    """What a read gives, and when."""

    async def work() -> tuple[Any, float]:
        answer = await retry(
            service, size, explain, **({"policy": POLICY, "latencies": latencies} | more)
        )
        return answer, now()

    return run(work())


def used_to(seconds: float, size: int = 100, reads: int = 100) -> Latencies:
    latencies = Latencies()
    for _ in range(reads):
        latencies.add(size, seconds)
    return latencies
