"""Calls file systems from the event loop; blocking ones in daemon threads."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem

from fastfeed.storage.byte_sizes import BodyTooLarge, check_announced
from fastfeed.storage.reads import ByteRange, Unread
from fastfeed.storage.s3 import S3Reader
from fastfeed.system.processes import after_fork

# whose clients have limits, see `clients.settings`
_LIMITED = frozenset({"http", "https", "gs", "gcs"})
T = TypeVar("T")


class DaemonThreads:
    """Up to `limit` daemon threads, which do not delay exit as asyncio's executor does."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._forget()
        after_fork(self._forget)

    def _forget(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # busy: with tasks that run or wait
        self._threads = 0
        self._busy = 0

    async def run(self, call: Callable[[], T]) -> T:
        """Run the call in a thread; canceling does not stop a call that has started."""
        future: Future[T] = Future()
        with self._lock:
            self._busy += 1
            if self._threads < min(self._busy, self._limit):
                threading.Thread(
                    target=self._work, name=f"{self._name}-{self._threads}", daemon=True
                ).start()
                self._threads += 1
        self._tasks.put((future, call))
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        while True:
            future, call = self._tasks.get()
            answer = None
            error = None
            active = future.set_running_or_notify_cancel()
            try:
                answer = call() if active else None
            except BaseException as raised:  # raised again where it is waited for
                error = raised
            with self._lock:
                self._busy -= 1  # before the answer is delivered, which may bring the next task
            if error is not None:
                future.set_exception(error)
            elif active:
                future.set_result(answer)
            del future, call, answer, error  # or an idle thread would keep the last answer alive


_blocking = DaemonThreads(256, "storage")


async def call(system: Any, verb: str, *args: Any, **kwargs: Any) -> Any:
    """Call a file system's method: in this loop if it is asynchronous, else in a thread."""
    if _is_async(system):
        return await getattr(system, "_" + verb)(*args, **kwargs)
    return await _blocking.run(partial(getattr(system, verb), *args, **kwargs))


async def list_files(system: Any, path: str, verb: str = "find") -> dict[str, dict[str, Any]]:
    """fsspec's infos of files below a folder, or matching a pattern (verb "glob"), by path.

    Raises where some of it cannot be listed; fsspec's own walk would leave that out.
    """
    walks = type(system)._find is AsyncFileSystem._find if _is_async(system) else None
    if walks is None:
        walks = type(system).find is AbstractFileSystem.find
    return await call(system, verb, path, detail=True, **({"on_error": "raise"} if walks else {}))


async def read_range(
    system: Any, s3: S3Reader | None, path: str, span: ByteRange, limit: int
) -> bytes | Unread:
    """One request for a byte range: all of it, an error, or Unread where retries are useless.

    BodyTooLarge for a whole object of more than `limit` bytes whose size was not known.
    """
    stat = span.stat
    start = span.start
    stop = span.stop
    if start and stop is None:
        # without an end, nothing would show that a server without ranges sent all
        stop = (await call(system, "info", path)).get("size")
        if stop is None:
            return Unread("io_error", "the server does not say how large it is")
        if stop <= start:
            if stop == start:
                return b""
            return Unread("truncated", f"it ends at {stop}, bytes from {start} were asked for")
    is_whole = start == 0 and (stop is None or (stat is not None and stop == stat.size))
    # a whole read shows that the object grew
    ends: dict[str, Any] = {} if is_whole else {"start": start, "end": stop}
    protocols = {system.protocol} if isinstance(system.protocol, str) else {*system.protocol}
    if is_whole and s3 is None and not _LIMITED & protocols:
        if stop is None:
            stop = (await call(system, "info", path)).get("size")
            check_announced(stop, limit)
        # one byte more shows as much, and such clients would read whatever there is
        ends = {"start": 0, "end": (limit if stop is None else stop) + 1}
    if s3 is None:
        data = await call(system, "cat_file", path, **ends)
    elif stat is None:
        data = await s3.read(path, **ends, limit=limit if is_whole else None)
    else:
        try:
            data = await s3.read(path, stat.version, **ends, limit=stat.size if is_whole else None)
        except BodyTooLarge:
            return Unread("changed", f"it has more than the {stat.size} bytes that were listed")
    if stop is None:
        check_announced(len(data), limit)
        return data
    if len(data) == stop - start:
        return data
    size = stat.size if stat is not None and stat.size == len(data) else None
    if size is None:
        size = (await call(system, "info", path)).get("size")
    if size is not None and stat is not None and size != stat.size:
        return Unread("changed", f"{size} bytes, {stat.size} when it was listed")
    if size is not None and size < stop:
        return Unread("truncated", f"it ends at {size}, bytes up to {stop} were asked for")
    if len(data) == size:  # all of it, from a web server that knows no ranges
        return data[start:stop]
    raise OSError(f"got {len(data)} of {stop - start} bytes at {start}")


def _is_async(system: Any) -> bool:
    return isinstance(system, AsyncFileSystem) and system.async_impl
