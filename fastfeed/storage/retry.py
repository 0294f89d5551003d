"""Retries with backoff, deadlines and hedged requests, and the health of endpoints.

The second request for a read that lags ("hedged request", Dean and Barroso, "The tail at scale",
CACM 2013) is sent long after most others of its size were answered; the first answer counts. A
budget keeps hedges rare, so that a slow service does not get twice the load. While an endpoint is
down, which all of its reads find out together, each read is tried once.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fastfeed.errors import ConfigError
from fastfeed.printable import log, printable
from fastfeed.storage.reads import Unread
from fastfeed.system.descriptors import EXHAUSTED

T = TypeVar("T")

_DEAD = 10.0  # times the seconds after which a read lags
_PROBE_S = 5.0  # for the one attempt while an endpoint is down
_HURRY_S = 2.0  # for one attempt, at least, however short the patience of those who wait
_CHECK_S = 0.01  # between checks of the budget, at least

_requests: Counter[str] = Counter()  # of this process; changed in the event loop alone
# of reads that are begun here
_patience: ContextVar[float] = ContextVar("patience", default=math.inf)


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Fail reads begun inside once an endpoint has been down for `seconds`."""
    token = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(token)


def retry_count() -> int:
    """Requests that this process has sent again after one that failed, or next to one that lags."""
    return _requests["again"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Meaning of a storage error."""

    unread: Unread
    retryable: bool  # another attempt may succeed


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits on retries; time spent waiting for a permit does not count."""

    deadline_s: float = 60.0  # seconds allowed for one read, including retries and pauses
    # of refused connections, over all reads of an endpoint: then each is tried once
    refused_s: float = 5.0
    patience_s: float = 60.0  # of failures of any kind, likewise
    attempt_s: float = 20.0  # maximum for one request
    # maximum for the first where others are much faster; doubled for each further one
    first_attempt_s: float = 2.0
    # bytes per second; all of the above are extended by the time of the read at this rate
    min_rate: float = 1e5
    backoff_s: float = 0.1  # before the second attempt; doubled for each further one
    max_backoff_s: float = 5.0
    attempts: int = 1000  # at most
    hedge: bool = True
    min_hedge_s: float = 0.05

    @classmethod
    def patient(cls, seconds: float) -> RetryPolicy:
        """A policy that waits `seconds` for an endpoint that does not answer."""
        if not seconds >= 0:
            raise ConfigError.of("patience", "seconds >= 0", seconds)
        refused_s = min(cls().refused_s, seconds)
        deadline_s = max(cls().deadline_s, seconds)
        return cls(deadline_s=deadline_s, refused_s=refused_s, patience_s=seconds)

    def within(self, seconds: float) -> RetryPolicy:
        """A policy that gives up `seconds` after the first failure; itself if less patient."""
        if seconds >= self.patience_s:
            return self
        attempt_s = max(seconds, _HURRY_S)
        return replace(
            self,
            deadline_s=min(self.deadline_s, attempt_s),
            refused_s=min(self.refused_s, seconds),
            patience_s=seconds,
            attempt_s=min(self.attempt_s, attempt_s),
        )


class Latencies:
    """Recent latencies by size, and from them when a read lags. For one event loop: no lock."""

    # reads remembered per size, and needed for a median
    _HISTORY = 128
    _NEEDED = 16
    _LAG = 3.0  # times the median
    _UPDATE = 8  # reads between updates of the median
    # hedges per read in the long run, and saved up at most
    _SHARE = 0.05
    _BURST = 8.0

    def __init__(self) -> None:
        self._seconds: dict[int, deque[float]] = {}
        self._tokens = self._BURST
        self._lag: dict[int, float] = {}
        self._added = 0

    def add(self, size: int, seconds: float, succeeded: bool = True) -> None:
        """Record a read; for one that timed out, the time until then, as a lower bound."""
        group = size.bit_length()
        recent = self._seconds.setdefault(group, deque(maxlen=self._HISTORY))
        recent.append(seconds)
        self._added += 1
        self._tokens = min(self._tokens + self._SHARE * succeeded, self._BURST)
        is_due = group not in self._lag or self._added % self._UPDATE == 0
        if len(recent) >= self._NEEDED and is_due:
            self._lag[group] = self._LAG * sorted(recent)[len(recent) // 2]

    def lags_after(self, size: int) -> float | None:
        """Seconds after which a read of this many bytes lags; None while there is no data.

        Without reads of about that size, larger ones give the limit, or smaller ones in proportion.
        """
        group = size.bit_length()
        if group in self._lag:
            return self._lag[group]
        lags = (lag * 2 ** max(0, group - known) for known, lag in self._lag.items())
        return min(lags, default=None)

    def spend(self) -> bool:
        """Take one hedge from the budget, if there is one left."""
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


async def retry(
    request: Callable[[], Awaitable[T]],
    size: int,
    explain: Callable[[Exception], Diagnosis],
    policy: RetryPolicy,
    latencies: Latencies | None,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    health: Health | None = None,
) -> T | Unread:
    """The answer, or an Unread after all attempts, timed by the event loop's clock.

    `size` is the expected number of bytes, roughly. Without `latencies` no second request is sent.
    The answer is the value that `request` returns, even an Unread: only an error is a reason to
    try again. While the endpoint is down, according to its health, only one attempt is made.
    """
    policy = policy.within(_patience.get())
    clock = asyncio.get_running_loop().time
    extra = size / policy.min_rate
    exhausted: Exception | None = None
    remaining = policy.deadline_s + extra
    wait = policy.backoff_s
    attempts = 0
    if health is not None:
        health.begin(size)
    try:
        while True:
            start = clock()
            limit = min(policy.attempt_s + extra, remaining)
            lag = None if latencies is None else latencies.lags_after(size)
            if lag is not None:
                # later, no answer is likely; if all have become slow, the next attempt is longer
                dead = max(policy.first_attempt_s, _DEAD * lag) * 2 ** min(attempts, 60)
                limit = min(limit, dead + extra)
            down = health is not None and health.down(policy.refused_s, policy.patience_s)
            limit = min(limit, _PROBE_S + extra) if down else limit
            attempts += 1
            try:
                answer = await _attempt(request, size, limit, policy, latencies)
                if latencies is not None:
                    latencies.add(size, clock() - start)
                if health is not None:
                    health.answered()
                return answer
            except _NoAnswer:
                if latencies is not None:
                    latencies.add(size, limit, succeeded=False)
                exhausted = None
                last = Unread("timeout", f"no answer within {limit:.3g} s")
            except Exception as error:  # of any storage client: `explain` knows them
                diagnosis = explain(error)
                last = diagnosis.unread
                exhausted = error if getattr(error, "errno", None) in EXHAUSTED else None
                if not diagnosis.retryable:
                    if health is not None:
                        health.answered()
                    return last
            if health is not None:
                health.failed(last.detail or last.reason)
            remaining -= clock() - start
            delay = wait * (0.5 + random.random())  # jitter: not in step with other readers
            left = math.inf
            if health is not None:
                left = health.patience_left(policy.refused_s, policy.patience_s)
            delay = min(delay, left)
            down = left <= 0
            if remaining <= delay or attempts >= policy.attempts or down:
                if exhausted is not None:  # no information about the object to read
                    raise exhausted
                spent = policy.deadline_s + extra - remaining
                tries = f"attempt {attempts}, {spent:.3g} s after the first"
                return Unread(last.reason, f"{last.detail} ({tries})" if last.detail else tries)
            await pause(delay)
            _requests["again"] += 1
            remaining -= delay  # but not the wait for the next permit
            wait = min(2 * wait, policy.max_backoff_s)
    finally:
        if health is not None:
            health.end()


class _NoAnswer(Exception):
    """No answer within the time of one attempt."""


async def _attempt(
    request: Callable[[], Awaitable[T]],
    size: int,
    limit: float,
    policy: RetryPolicy,
    latencies: Latencies | None,
) -> T:
    """One attempt: the first good answer of one request, or of two if it lags. _NoAnswer."""
    clock = asyncio.get_running_loop().time
    end = clock() + limit
    lag = None
    if latencies is not None and policy.hedge:
        lag = latencies.lags_after(size)
    first = limit if lag is None else min(max(lag, policy.min_hedge_s), limit)
    tasks = [asyncio.ensure_future(request())]
    try:
        done, waiting = await asyncio.wait(tasks, timeout=first)
        while not done and first < limit and latencies is not None and clock() < end:
            if latencies.spend():
                tasks.append(asyncio.ensure_future(request()))
                _requests["again"] += 1
                waiting = set(tasks)
                break
            # no budget for now: it grows as other reads succeed
            pause = min(max(first, _CHECK_S), max(end - clock(), 0))
            done, waiting = await asyncio.wait(tasks, timeout=pause)
        while True:
            for task in done:
                if not task.cancelled() and task.exception() is None:
                    return task.result()
            if not waiting:
                if tasks[0].cancelled():
                    raise OSError("the client canceled the request")
                return tasks[0].result()  # raises
            if clock() >= end:
                raise _NoAnswer
            done, waiting = await asyncio.wait(
                waiting, timeout=end - clock(), return_when=asyncio.FIRST_COMPLETED
            )
    finally:
        for task in tasks:
            task.cancel()
            task.add_done_callback(_retrieve_error)


def _retrieve_error(task: asyncio.Future[Any]) -> None:
    """Keep asyncio from reporting the error of the request that lost as never retrieved."""
    if not task.cancelled():
        task.exception()


_WARN_AFTER_S = 2.9  # without any answer, while requests wait or fail, before the first line
_WARN_EVERY_S = 60.0  # between lines
_LOOK_S = 0.05  # between looks, at least
_FORGOTTEN_S = 30.0  # after a failure without further requests: too old to judge the present
_SLOW = 1e6  # bytes per second: a large read may take longer, as long as nothing fails
# in the texts of clients' errors: no server took the connection
_REFUSALS = ("ConnectionRefused", "Connection refused", "Connect call failed")
_REFUSALS += ("error sending request", "ClientConnector", "Could not connect to the endpoint")
_REFUSALS += ("Name or service not known", "No route to host")
_answers: dict[str, float] = {}  # by endpoint: when it last answered a request of this process
_failing: dict[str, float] = {}  # by endpoint: when its first request failed since then
_cached: set[str] = set()


def last_answer(endpoint: str) -> float:
    """Time of the last answer of an endpoint such as "s3://bucket" (`time.monotonic`), or -inf."""
    return _answers.get(endpoint, -math.inf)


def failing_since(endpoint: str) -> float:
    """Time of the first failure since the last answer (`time.monotonic`), or inf."""
    return _failing.get(endpoint, math.inf)


def is_cached(endpoint: str) -> bool:
    """Return True if a disk cache may answer for the endpoint."""
    return endpoint in _cached


class Health:
    """The health of one endpoint. For one event loop: no lock."""

    def __init__(self, name: str, cached: bool = False) -> None:
        self._name = printable(name)
        if cached:
            _cached.add(name)
        # of the first request, or failure, after which nothing was answered
        self._since: float | None = None
        self._failing_since: float | None = None
        self._failed_last = 0.0
        self._only_refused = True
        self._warned = False
        self._last = ""
        # reads that wait or will be repeated; bytes of the largest one lately
        self._requests = 0
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, size: int) -> None:
        """Begin a read of about `size` bytes."""
        if not self._requests and _now() - self._failed_last > _FORGOTTEN_S:
            self._since = None
            self._forget()
        self._requests += 1
        self._size = max(self._size, size)
        if self._since is None:
            self._since = _now()
        if self._timer is None:
            self._watch(_WARN_AFTER_S)

    def end(self) -> None:
        """End a read, whether it succeeded or not."""
        self._requests -= 1
        if not self._requests:
            self._size = 0
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._failing_since is None:
                self._since = None  # idle is not silent

    def answered(self) -> None:
        """Note an answer, including errors such as "not found" that show the service at work."""
        if self._warned and self._since is not None:
            log.warning("%s answers again after %.0f s", self._name, _now() - self._since)
        _answers[self._name] = time.monotonic()
        self._since = _now() if self._requests else None
        self._forget()

    def _forget(self) -> None:
        self._failing_since = None
        self._only_refused = True
        self._warned = False
        self._last = ""
        _failing.pop(self._name, None)

    def failed(self, why: str) -> None:
        """An attempt has failed in a way that another one may not."""
        self._failed_last = _now()
        if self._failing_since is None:
            self._failing_since = self._failed_last
            _failing.setdefault(self._name, time.monotonic())
        self._only_refused &= any(word in why for word in _REFUSALS)
        self._last = why

    def down(self, refused_s: float, failed_s: float) -> bool:
        """Return True after these seconds of refused or failed requests: one attempt is enough."""
        return self.patience_left(refused_s, failed_s) <= 0

    def patience_left(self, refused_s: float, failed_s: float) -> float:
        """Seconds until it is down."""
        if self._failing_since is None:
            return math.inf
        return (refused_s if self._only_refused else failed_s) - (_now() - self._failing_since)

    def _watch(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """While reads wait, report an endpoint that does not answer."""
        self._timer = None
        if not self._requests or self._since is None:
            return
        silent = _now() - self._since
        patience = _WARN_AFTER_S + (0 if self._last else self._size / _SLOW)
        if silent < patience:
            self._watch(max(patience - silent, _LOOK_S))
            return
        self._warned = True
        why = f"; last error: {self._last}" if self._last else ""
        log.warning("%s has not answered for %.0f s, trying again%s", self._name, silent, why)
        self._watch(_WARN_EVERY_S)


def _now() -> float:
    return asyncio.get_running_loop().time()
