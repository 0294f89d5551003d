"""Calls of file systems from the event loop. Those that block are made by threads that hold up no program's end."""

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
from fsspec.spec import AbstractFileSystem

from fastfeed.storage.byte_range import Span
from fastfeed.storage.clients import is_s3, s3_bytes
from fastfeed.storage.retry import Unread

__all__ = ["Threads", "call", "find", "read"]

T = TypeVar("T")


class Threads:
    """At most so many daemon threads, begun when there is none to spare. asyncio's own are waited for at exit."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads, self._busy = 0, 0  # busy: with tasks that run or wait

    async def run(self, call: Callable[[], T]) -> T:
        """What the call returns or raises. One that has begun cannot be called off; nobody waits for it then."""
        future: Future[T] = Future()
        with self._lock:
            self._busy += 1
            if self._threads < min(self._busy, self._most):
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
                self._threads += 1
        self._tasks.put((future, call))
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        while True:
            future, call = self._tasks.get()
            answer, error = None, None
            wanted = future.set_running_or_notify_cancel()
            try:
                answer = call() if wanted else None
            except BaseException as raised:  # raised again where it is waited for
                error = raised
            with self._lock:
                self._busy -= 1  # before the answer is given, which may bring the next task
            if error is not None:
                future.set_exception(error)
            elif wanted:
                future.set_result(answer)
            del future, call, answer, error  # or an idle thread would keep the last answer alive


_blocking = Threads(256, "storage")


async def call(system: Any, verb: str, *args: Any, **kwargs: Any) -> Any:
    """A method of a file system: in this loop where it is asynchronous, else in a thread."""
    if _is_async(system):
        return await getattr(system, "_" + verb)(*args, **kwargs)
    return await _blocking.run(partial(getattr(system, verb), *args, **kwargs))


async def find(system: Any, path: str, verb: str = "find") -> dict[str, dict[str, Any]]:
    """All below a folder, or what a pattern matches (verb "glob"): fsspec's infos by path. An error where some of it
    cannot be listed: fsspec's own walk would leave it out."""
    walks = type(system)._find is AsyncFileSystem._find if _is_async(system) else None
    if walks is None:
        walks = type(system).find is AbstractFileSystem.find
    return await call(system, verb, path, detail=True, **({"on_error": "raise"} if walks else {}))


async def read(system: Any, path: str, span: Span) -> bytes | Unread:
    """One request for a span: all of it, or an error, or what makes further requests useless."""
    whole, start, stop = span.whole, span.start, span.stop
    if start and stop is None:  # without an end, nothing would show that a server without ranges sent all
        stop = (await call(system, "info", path)).get("size")
        if stop is None:
            return Unread("io_error", "the server does not say how large it is")
        if stop <= start:
            return (
                b"" if stop == start else Unread("truncated", f"it ends at {stop}, bytes from {start} were asked for")
            )
    if start == 0 and (stop is None or (whole is not None and stop == whole.size)):
        ends = {}  # asked for in whole, it shows that it grew
    else:
        ends = {"start": start, "end": stop}
    if whole is not None and whole.version and is_s3(system):
        data = await s3_bytes(system, path, whole.version, **ends)
    else:
        data = await call(system, "cat_file", path, **ends)
    if stop is None or len(data) == stop - start:
        return data
    size = whole.size if whole is not None and whole.size == len(data) else None
    if size is None:
        size = (await call(system, "info", path)).get("size")
    if size is not None and whole is not None and size != whole.size:
        return Unread("changed", f"{size} bytes, {whole.size} when it was listed")
    if size is not None and size < stop:
        return Unread("truncated", f"it ends at {size}, bytes up to {stop} were asked for")
    if len(data) == size:  # all of it, from a web server that knows no ranges
        return data[start:stop]
    raise OSError(f"got {len(data)} of {stop - start} bytes at {start}")


def _is_async(system: Any) -> bool:
    return isinstance(system, AsyncFileSystem) and system.async_impl
