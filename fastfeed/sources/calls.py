"""Calls that block, made from an event loop by threads that hold up nothing: not the loop, not the end of a program."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from fsspec.asyn import AsyncFileSystem

__all__ = ["Threads", "call"]

T = TypeVar("T")


class Threads:
    """At most so many daemon threads, begun when there is none to spare. asyncio's own are waited for at exit."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._spare = threading.Semaphore(0)  # threads that wait for a task
        self._lock, self._threads = threading.Lock(), 0

    async def run(self, call: Callable[[], T]) -> T:
        """What the call returns or raises. One that has begun cannot be called off; nobody waits for it then."""
        future: Future[T] = Future()
        self._tasks.put((future, call))
        if not self._spare.acquire(blocking=False):
            with self._lock:
                if self._threads < self._most:
                    name = f"{self._name}-{self._threads}"
                    threading.Thread(target=self._work, name=name, daemon=True).start()
                    self._threads += 1
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        while True:
            try:
                future, call = self._tasks.get_nowait()
            except queue.Empty:
                self._spare.release()
                future, call = self._tasks.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # raised again where it is waited for
                    future.set_exception(error)
            del future, call  # or an idle thread would keep the last answer alive


_blocking = Threads(256, "storage")


async def call(system: Any, verb: str, *args: Any, **kwargs: Any) -> Any:
    """A method of a file system: in this loop where it is asynchronous, else in a thread."""
    if isinstance(system, AsyncFileSystem) and system.async_impl:
        return await getattr(system, "_" + verb)(*args, **kwargs)
    return await _blocking.run(partial(getattr(system, verb), *args, **kwargs))
