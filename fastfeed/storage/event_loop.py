"""Work that threads begin and fsspec's event loop does."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from fsspec.asyn import get_loop

from fastfeed.storage.pending import Pending

__all__ = ["Begun", "known", "later", "launch", "results", "together"]

T = TypeVar("T")

Begun = list[tuple["Future[Any]", Callable[[], Awaitable[Any]]]]

_LOOK_S = 0.2  # how often a thread that waits looks for Ctrl-C

_running: set[asyncio.Task[None]] = set()  # an event loop holds its tasks weakly
_left: list[Any] = []  # tasks of the process that this one was forked from: ending them would be reported


class _Thread(threading.local):
    """What a thread has begun inside `together`; None outside of it."""

    begun: Begun | None = None


_thread = _Thread()


class _Promise(Future[T]):
    """Of work that may not have been handed to the event loop yet."""

    def result(self, timeout: float | None = None) -> T:
        _flush()
        while True:  # in steps: a signal that comes just before a wait without end would not be seen
            there = self.done()
            try:
                return super().result(_LOOK_S if timeout is None else timeout)
            except NotYet:
                if timeout is not None or there:  # else it is the work's own error
                    raise


def later(begun: Begun, work: Callable[[], Awaitable[T]]) -> Future[T]:
    """Note a piece of work for `launch`. It can be canceled at any time."""
    future: Future[T] = _Promise()
    begun.append((future, work))
    return future


def known(value: T) -> Future[T]:
    """What needs no work."""
    future: Future[T] = Future()
    future.set_result(value)
    return future


def launch(begun: Begun) -> None:
    """Begin all of it in the event loop."""
    if _thread.begun is not None:
        _thread.begun += begun
    elif begun:
        loop = get_loop()
        loop.call_soon_threadsafe(_begin, loop, begun)


@contextmanager
def together() -> Iterator[None]:
    """What this thread launches inside is begun at the end, all at once: waking the event loop costs most of the time.

    Where a result is asked for inside, it is begun then.
    """
    outer, _thread.begun = _thread.begun, []
    try:
        yield
    finally:
        begun, _thread.begun = _thread.begun, outer
        launch(begun)


def _flush() -> None:
    if _thread.begun:
        begun, _thread.begun = _thread.begun, None
        launch(begun)
        _thread.begun = []


def results(pendings: Sequence[Pending]) -> list[Any]:
    """Wait for all."""
    try:
        return [pending.result() for pending in pendings]
    except BaseException:  # Ctrl-C, too
        for pending in pendings:
            pending.cancel()
        raise


def _begin(loop: asyncio.AbstractEventLoop, begun: Begun) -> None:
    for future, work in begun:
        if not future.cancelled():
            task = loop.create_task(_deliver(future, work))
            _running.add(task)
            task.add_done_callback(_running.discard)
            future.add_done_callback(partial(_call_off, loop, task))


def _call_off(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None], future: Future[Any]) -> None:
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
    _left.extend(_running)
    _running.clear()


os.register_at_fork(after_in_child=_forked)
