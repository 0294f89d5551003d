"""One read from storage that fails now and then: tried again with growing pauses, asked twice when it lags.

The second request for a read that lags ("hedged request", Dean and Barroso, "The tail at scale", CACM 2013) is sent
when most others of its size have long been answered; whichever answer comes first counts. A budget keeps them few, so
that a service that is slow as a whole is not asked twice as much.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["Latencies", "Patience", "Unread", "Why", "persist"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unread:
    """Why there are no bytes."""

    reason: str  # a key of faults.REASONS
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Why:
    """What an error of storage means."""

    unread: Unread
    again: bool  # another try may go better


@dataclass(frozen=True, slots=True)
class Patience:
    """How long, and how often."""

    deadline_s: float = 60.0  # for one read, all attempts and pauses together
    attempt_s: float = 20.0  # for one request
    pause_s: float = 0.1  # before the second attempt; doubled for each further one
    longest_pause_s: float = 5.0
    hedge: bool = True
    hedge_at_least_s: float = 0.05


class Latencies:
    """How long reads took lately, by size; from that, when one of them lags. For one event loop, hence no lock."""

    _KEPT, _NEEDED = 128, 16  # reads remembered per size; fewer than needed say nothing
    _LAG = 3.0  # times the median
    _SHARE, _BURST = 0.05, 8.0  # hedges per read in the long run; saved up to at most so many

    def __init__(self) -> None:
        self._took: dict[int, deque[float]] = {}
        self._tokens = self._BURST
        self._lag: dict[int, float] = {}

    def add(self, size: int, seconds: float) -> None:
        """Note a read that went well."""
        taken = self._took.setdefault(size.bit_length(), deque(maxlen=self._KEPT))
        taken.append(seconds)
        self._tokens = min(self._tokens + self._SHARE, self._BURST)
        if len(taken) >= self._NEEDED and (len(taken) < self._KEPT or random.random() < 0.1):
            self._lag[size.bit_length()] = self._LAG * sorted(taken)[len(taken) // 2]

    def lags_after(self, size: int) -> float | None:
        """Seconds after which a read of this many bytes lags; None while that is not known."""
        return self._lag.get(size.bit_length())

    def spend(self) -> bool:
        """Take one hedge from the budget, if there is one."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


async def persist(
    request: Callable[[], Awaitable[T]],
    size: int,
    explain: Callable[[Exception], Why],
    patience: Patience,
    latencies: Latencies,
    clock: Callable[[], float],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T | Unread:
    """The answer, or why there is none after all attempts; `size` is how many are expected, about."""
    end, pause, last = clock() + patience.deadline_s, patience.pause_s, Unread("timeout")
    while True:
        begun = clock()
        try:
            data = await asyncio.wait_for(
                _hedged(request, size, patience, latencies), max(0.0, min(patience.attempt_s, end - begun))
            )
            latencies.add(size, clock() - begun)
            return data
        except asyncio.TimeoutError:
            last = Unread("timeout", f"no answer within {clock() - begun:.1f} s")
        except Exception as error:  # of any storage client: `explain` knows them
            why = explain(error)
            last = why.unread
            if not why.again:
                return last
        wait = pause * (0.5 + random.random())  # not in step with the other readers
        if clock() + wait >= end:
            return last
        await sleep(wait)
        pause = min(2 * pause, patience.longest_pause_s)


async def _hedged(
    request: Callable[[], Awaitable[T]], size: int, patience: Patience, latencies: Latencies
) -> T:
    after = latencies.lags_after(size) if patience.hedge else None
    if after is None:
        return await request()
    tasks = [asyncio.ensure_future(request())]
    try:
        done, _ = await asyncio.wait(tasks, timeout=max(after, patience.hedge_at_least_s))
        if not done and latencies.spend():
            tasks.append(asyncio.ensure_future(request()))
        while True:
            done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            good = [task for task in done if not task.cancelled() and task.exception() is None]
            if good:
                return good[0].result()
            if not waiting:
                return tasks[0].result()  # raises
            tasks = list(waiting)
    finally:
        for task in tasks:
            if not task.done():
                task.cancel()
            task.add_done_callback(_look)


def _look(task: asyncio.Future[Any]) -> None:
    """An error of the request that lost must not be reported as never looked at."""
    if not task.cancelled():
        task.exception()
