"""Runs coroutines that threads submit in fsspec's event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from fsspec.asyn import get_loop

from fastfeed.storage.reads import Pending
from fastfeed.system.processes import after_fork

T = TypeVar("T")

_Submissions = list[tuple["Future[Any]", Callable[[], Awaitable[Any]]]]

_POLL_S = 0.2  # how often a thread that waits looks for Ctrl-C

_running: set[asyncio.Task[None]] = set()  # an event loop holds its tasks weakly
# tasks of the process that this one was forked from: ending them would be reported
_inherited: list[Any] = []


class _Deferred(threading.local):
    """Submissions of a thread inside `batched`; None outside of it."""

    submissions: _Submissions | None = None


_deferred = _Deferred()


class _Submitted(Future[T]):
    """The future of work that may not have been passed to the event loop yet."""

    def result(self, timeout: float | None = None) -> T:
        _flush()
        while True:
            # in steps: a signal that comes just before a wait without end would not be seen
            is_done = self.done()
            try:
                return super().result(_POLL_S if timeout is None else timeout)
            except NotYet:
                if timeout is not None or is_done:  # else it is the work's own error
                    raise


def submit(work: Callable[[], Awaitable[T]]) -> Future[T]:
    """Start work in the event loop; its future can be canceled at any time."""
    future: Future[T] = _Submitted()
    _launch([(future, work)])
    return future


def _launch(submissions: _Submissions) -> None:
    if _deferred.submissions is not None:
        _deferred.submissions += submissions
    elif submissions:
        loop = get_loop()
        loop.call_soon_threadsafe(_begin, loop, submissions)


@contextmanager
def batched() -> Iterator[None]:
    """Launch all submissions of this thread at the end of the block, waking the loop once.

    A call of `result` inside starts it at once.
    """
    outer = _deferred.submissions
    _deferred.submissions = []
    try:
        yield
    finally:
        submissions = _deferred.submissions
        _deferred.submissions = outer
        _launch(submissions)


def _flush() -> None:
    if _deferred.submissions:
        submissions = _deferred.submissions
        _deferred.submissions = None
        _launch(submissions)
        _deferred.submissions = []


def results(pendings: Sequence[Pending]) -> list[Any]:
    """Wait for all results; cancel them on an error."""
    try:
        return [pending.result() for pending in pendings]
    except BaseException:  # Ctrl-C, too
        for pending in pendings:
            pending.cancel()
        raise


def _begin(loop: asyncio.AbstractEventLoop, submissions: _Submissions) -> None:
    for future, work in submissions:
        if not future.cancelled():
            task = loop.create_task(_deliver(future, work))
            _running.add(task)
            task.add_done_callback(_running.discard)
            future.add_done_callback(partial(_cancel_task, loop, task))


def _cancel_task(
    loop: asyncio.AbstractEventLoop, task: asyncio.Task[None], future: Future[Any]
) -> None:
    if future.cancelled():
        loop.call_soon_threadsafe(task.cancel)


async def _deliver(future: Future[Any], work: Callable[[], Awaitable[Any]]) -> None:
    try:
        answer = await work()
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError):
            future.cancel()
        elif future.set_running_or_notify_cancel():
            future.set_exception(error)
    else:
        if future.set_running_or_notify_cancel():
            future.set_result(answer)


def _forked() -> None:
    _inherited.extend(_running)
    _running.clear()


after_fork(_forked)
