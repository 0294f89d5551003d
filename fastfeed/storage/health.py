"""Health of endpoints: one state for all reads, logged while an endpoint is down."""

from __future__ import annotations

import asyncio
import logging
import math
import time

from fastfeed.printable import printable

__all__ = ["Health", "failing_since", "is_cached", "last_answer"]

_log = logging.getLogger("fastfeed")

_TOLD_S = 2.9  # without any answer, while requests wait or fail, before the first line
_AGAIN_S = 60.0  # between lines
_LOOK_S = 0.05  # between looks, at least
_FORGOTTEN_S = 30.0  # after a failure, without any request: what failed then says nothing about now
_SLOW = 1e6  # bytes per second: a large read may take longer, as long as nothing fails
# in the texts of clients' errors: no server took the connection
_REFUSALS = (
    *("ConnectionRefused", "Connection refused", "Connect call failed", "error sending request"),
    *(
        "Name or service not known",
        "No route to host",
        "ClientConnector",
        "Could not connect to the endpoint",
    ),
)

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
        self._told = False
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
            self._watch(_TOLD_S)

    def end(self) -> None:
        """A read has ended, whichever way."""
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
        if self._told and self._since is not None:
            _log.warning("%s answers again after %.0f s", self._name, _now() - self._since)
        _answers[self._name] = time.monotonic()
        self._since = _now() if self._requests else None
        self._forget()

    def _forget(self) -> None:
        self._failing_since = None
        self._only_refused = True
        self._told = False
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
        """While reads wait: tell of an endpoint from which nothing comes."""
        self._timer = None
        if not self._requests or self._since is None:
            return
        silent, patience = _now() - self._since, _TOLD_S + (0 if self._last else self._size / _SLOW)
        if silent < patience:
            self._watch(max(patience - silent, _LOOK_S))
            return
        self._told = True
        why = f"; last error: {self._last}" if self._last else ""
        _log.warning("%s has not answered for %.0f s, trying again%s", self._name, silent, why)
        self._watch(_AGAIN_S)


def _now() -> float:
    return asyncio.get_running_loop().time()
