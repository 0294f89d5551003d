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

_DEAD = 10.0  # times the seconds after which a read lags
_TURN_S = 0.01  # how often the budget is looked at, at most


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
    """How long, and how often. Waiting for a free place among the requests under way does not count."""

    deadline_s: float = 60.0  # for one read, all attempts and pauses together
    attempt_s: float = 20.0  # for one request, at most
    quick_s: float = 2.0  # for the first one, where others are answered in a small part of that; doubled each time
    slowest: float = 1e5  # bytes per second; both of the above are longer by what the read takes at this rate
    pause_s: float = 0.1  # before the second attempt; doubled for each further one
    longest_pause_s: float = 5.0
    attempts: int = 1000  # at most so many
    hedge: bool = True
    hedge_at_least_s: float = 0.05


class Latencies:
    """How long reads took lately, by size; from that, when one of them lags. For one event loop, hence no lock."""

    _KEPT, _NEEDED = 128, 16  # reads remembered per size; fewer than needed say nothing
    _LAG = 3.0  # times the median
    _EVERY = 8  # reads after which the median is looked at again
    _SHARE, _BURST = 0.05, 8.0  # hedges per read in the long run; saved up to at most so many

    def __init__(self) -> None:
        self._took: dict[int, deque[float]] = {}
        self._tokens = self._BURST
        self._lag: dict[int, float] = {}
        self._added = 0

    def add(self, size: int, seconds: float, went_well: bool = True) -> None:
        """Note a read; of one that was given up, how long it was waited for: it took longer than that."""
        group = size.bit_length()
        taken = self._took.setdefault(group, deque(maxlen=self._KEPT))
        taken.append(seconds)
        self._added += 1
        self._tokens = min(self._tokens + self._SHARE * went_well, self._BURST)
        if len(taken) >= self._NEEDED and (group not in self._lag or self._added % self._EVERY == 0):
            self._lag[group] = self._LAG * sorted(taken)[len(taken) // 2]

    def lags_after(self, size: int) -> float | None:
        """Seconds after which a read of this many bytes lags; None while nothing is known.

        Where none of about that size is known: as larger ones do, or as much later than smaller ones as it is larger.
        """
        group = size.bit_length()
        if group in self._lag:
            return self._lag[group]
        return min((lag * 2 ** max(0, group - known) for known, lag in self._lag.items()), default=None)

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
    latencies: Latencies | None,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T | Unread:
    """The answer, or why there is none after all attempts. Time is that of the event loop.

    `size` is how many bytes are expected, about. Without `latencies` no second request is sent. What `request` returns
    is the answer, also where that is an Unread: only an error is a reason to try again.
    """
    clock = asyncio.get_running_loop().time
    more = size / patience.slowest
    left, wait, attempts = patience.deadline_s + more, patience.pause_s, 0
    while True:
        begun, limit = clock(), min(patience.attempt_s + more, left)
        lag = None if latencies is None else latencies.lags_after(size)
        if lag is not None:  # the answer will hardly come any more; if all have become slow, the next attempt is longer
            limit = min(limit, max(patience.quick_s, _DEAD * lag) * 2 ** min(attempts, 60) + more)
        attempts += 1
        try:
            answer = await _ask(request, size, limit, patience, latencies)
            if latencies is not None:
                latencies.add(size, clock() - begun)
            return answer
        except _NoAnswer:
            if latencies is not None:
                latencies.add(size, limit, went_well=False)
            last = Unread("timeout", f"no answer within {limit:.3g} s")
        except Exception as error:  # of any storage client: `explain` knows them
            why = explain(error)
            last = why.unread
            if not why.again:
                return last
        left -= clock() - begun
        rest = wait * (0.5 + random.random())  # not in step with the other readers
        if left <= rest or attempts >= patience.attempts:
            tries = f"attempt {attempts}, {patience.deadline_s + more - left:.3g} s after the first"
            return Unread(last.reason, f"{last.detail} ({tries})" if last.detail else tries)
        await pause(rest)
        left -= rest  # and not what it took until there was a free place again
        wait = min(2 * wait, patience.longest_pause_s)


class _NoAnswer(Exception):
    """None came within the time for one attempt."""


async def _ask(
    request: Callable[[], Awaitable[T]], size: int, limit: float, patience: Patience, latencies: Latencies | None
) -> T:
    """One attempt: the first good answer of one request or, where that lags, of two. _NoAnswer where none comes."""
    clock = asyncio.get_running_loop().time
    end, lag = clock() + limit, None
    if latencies is not None and patience.hedge:
        lag = latencies.lags_after(size)
    first = limit if lag is None else min(max(lag, patience.hedge_at_least_s), limit)
    tasks = [asyncio.ensure_future(request())]
    try:
        done, waiting = await asyncio.wait(tasks, timeout=first)
        while not done and first < limit and latencies is not None and clock() < end:
            if latencies.spend():
                tasks.append(asyncio.ensure_future(request()))
                waiting = set(tasks)
                break
            # the budget is used up for now: it grows while other reads go well
            done, waiting = await asyncio.wait(tasks, timeout=min(max(first, _TURN_S), max(end - clock(), 0)))
        while True:
            for task in done:
                if not task.cancelled() and task.exception() is None:
                    return task.result()
            if not waiting:
                if tasks[0].cancelled():
                    raise OSError("the client broke the request off")
                return tasks[0].result()  # raises
            if clock() >= end:
                raise _NoAnswer
            done, waiting = await asyncio.wait(waiting, timeout=end - clock(), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
            task.add_done_callback(_look)


def _look(task: asyncio.Future[Any]) -> None:
    """An error of the request that lost must not be reported as never looked at."""
    if not task.cancelled():
        task.exception()
