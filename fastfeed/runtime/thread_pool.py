"""A pool of daemon threads, and jobs that run ahead and come out in order.

An error keeps its position: it is raised at its job's turn, after everything before it. Closing
ends the threads within the time of one image, or of one read; so do garbage collection and
interpreter exit.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar

from fastfeed.errors import ConfigError, FeedClosed

T = TypeVar("T")

_FIRST = itemgetter(0)
_STUCK_S = 5.0  # after this a daemon thread is abandoned in a read that does not return


class Stop(Protocol):
    """Stop flag, checked between images; a threading.Event fits."""

    def is_set(self) -> bool: ...


class CancelToken:
    """Cancels one stream of jobs, or one job of it.

    It is also set when its pool or stream is. Native threads read `flags` without the interpreter's
    lock: asking `is_set` there was most of the time that a feed held it.
    """

    def __init__(self, within: ThreadPool | CancelToken | None = None) -> None:
        self._flag = bytearray(1)
        outer = within.closed if isinstance(within, ThreadPool) else within
        self.flags: tuple[bytearray, ...] = (self._flag, *(outer.flags if outer else ()))

    def set(self) -> None:
        self._flag[0] = 1

    def is_set(self) -> bool:
        return any(map(_FIRST, self.flags))


class ThreadPool:
    """Threads that run tasks first in, first out. The threads start with the first task."""

    def __init__(self, threads: int, name: str = "fastfeed") -> None:
        self.size = threads
        self._name = name
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self.closed = CancelToken()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        # the threads hold the queue, not the pool, so dropping the pool ends them. Also runs at
        # interpreter exit
        self._end = weakref.finalize(
            self, _end, self._tasks, self._threads, self.closed, self._lock
        )

    def submit(self, task: Callable[[], None]) -> None:
        """Queue a task. It must not raise."""
        if os.getpid() != self._pid:
            raise FeedClosed(
                "this feed was started before fork(), its threads are missing here; create the feed"
                " in the child, or pass num_workers=0 if this is a worker of a DataLoader"
            )
        with self._lock:
            self.check_open()
            while len(self._threads) < self.size:
                thread = threading.Thread(
                    target=_work,
                    args=(self._tasks, self.closed),
                    name=f"{self._name}-{len(self._threads)}",
                    daemon=True,
                )
                # before start: Ctrl-C in between must not leave a thread running
                self._threads.append(thread)
                try:
                    thread.start()
                except RuntimeError as error:  # were it counted, jobs would wait for it without end
                    self._threads.remove(thread)
                    raise ConfigError(
                        f"the system starts no more threads than {len(self._threads)} of"
                        f" {self.size}; lower threads, or raise the process's limits (ulimit -u,"
                        " ulimit -v)"
                    ) from error
        self._tasks.put(task)

    def check_open(self) -> None:
        """FeedClosed if the pool is closed."""
        if self.closed.is_set():
            raise FeedClosed("this feed is closed; create a new one")

    def close(self) -> None:
        """Drop queued tasks and wait for the threads."""
        self._end()


def _work(tasks: queue.SimpleQueue[Callable[[], None] | None], stop: Stop) -> None:
    while True:
        task = tasks.get()
        if task is None or stop.is_set():
            return
        task()
        del task  # or an idle thread would keep the last batch alive


def _end(
    tasks: queue.SimpleQueue[Any],
    threads: list[threading.Thread],
    stop: CancelToken,
    lock: threading.Lock,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    with lock:  # no thread starts after this
        stop.set()
    deadline = clock() + _STUCK_S
    for _ in threads:
        tasks.put(None)
    for thread in threads:
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(timeout=max(0.0, deadline - clock()))


def _nothing() -> None:
    """The only part of a job without parts."""


def _raise(error: Exception) -> None:
    raise error


class ParallelJob(Generic[T]):
    """One result made by several tasks: `parts` of them run in any order, then `finish` once.

    Without parts, a thread of the pool runs `finish` alone.
    """

    def __init__(
        self, stop: Stop, parts: list[Callable[[], None]], finish: Callable[[], T]
    ) -> None:
        self._stop = stop
        self._finish = finish
        self._parts = parts or [_nothing]
        self._remaining = len(self._parts)
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    def then(self, after: Callable[[T], Any]) -> ParallelJob[Any]:
        """Apply a function to the result, on the thread that finished it.

        Call it before `start`.
        """
        finish = self._finish
        self._finish = lambda: after(finish())
        return self

    def start(self, pool: ThreadPool) -> None:
        """Queue all parts in the pool."""
        for part in self._parts:
            pool.submit(lambda part=part: self._run(part))
        self._parts = []

    def _run(self, part: Callable[[], None]) -> None:
        try:
            if self._error is None and not self._stop.is_set():
                part()
        except BaseException as error:
            # sources and decoders may raise anything; it is raised at this job's turn
            self._error = self._error or error
        with self._lock:
            self._remaining -= 1
            last = self._remaining == 0
        if last:
            try:
                if self._error is None and not self._stop.is_set():
                    self._result = self._finish()
            except BaseException as error:  # as above
                self._error = error
            self._done.set()

    @property
    def ready(self) -> bool:
        """True if `result` will not wait."""
        return self._done.is_set()

    def result(self, waits: Callable[[], None] | None = None) -> T:
        """Wait for the result, calling `waits` now and then; raises the job's error."""
        while not self._done.wait(0.2) and not self._stop.is_set():
            # a closed pool must not leave a caller waiting
            if waits is not None:
                waits()
        if self._error is not None:
            # an error holds its frames, and these hold the job: leave no cycle
            error = self._error
            self._error = None
            try:
                if isinstance(
                    error, StopIteration
                ):  # which would end an iteration as if there were nothing more
                    raise RuntimeError("StopIteration was raised while building a batch") from error
                raise error
            finally:
                del error
        if self._stop.is_set():
            raise FeedClosed("the feed was closed while waiting for a batch")
        return self._result  # type: ignore[return-value]


@dataclass(eq=False)
class Prefetcher(Generic[T]):
    """Jobs in order, `depth` of them ahead of the one being used."""

    _pool: ThreadPool
    _jobs: Iterator[ParallelJob[T]]
    _depth: int
    _stop: CancelToken
    _waits: Callable[[], None] | None = None  # called now and then while a result is waited for
    _on_close: Callable[[], None] = _nothing
    _closed: bool = False

    def __post_init__(self) -> None:
        self._running: deque[ParallelJob[T]] = deque()
        self._end = weakref.finalize(self, self._stop.set)  # if dropped it starts no more jobs

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._closed:
            raise FeedClosed(
                "these batches were closed, or ended by an error; begin a new iteration"
            )
        try:
            while len(self._running) <= self._depth:
                job = self._next_job()
                if job is None:
                    break
                self._running.append(job)
                job.start(self._pool)
            try:
                first = self._running.popleft()
            except IndexError:  # no job remains, or another thread has just closed this
                first = None
            if first is not None:
                return first.result(self._waits)
        except BaseException:
            # also Ctrl-C between two lines: a half-done step must not be continued
            self._cancel()
            raise
        if self._closed:
            raise FeedClosed("the feed was closed while waiting for a batch")
        raise StopIteration

    def _next_job(self) -> ParallelJob[T] | None:
        """The next job; one that raises, at its turn, the error that came in its place."""
        try:
            return next(self._jobs, None)
        except Exception as error:  # orders and sources may raise anything
            return ParallelJob(self._stop, [partial(_raise, error)], _nothing)  # type: ignore

    @property
    def ready(self) -> int:
        """Number of results ready to be taken; those behind an unready one do not count."""
        ready = 0
        for job in self._running.copy():
            if not job.ready:
                break
            ready += 1
        return ready

    @property
    def closed(self) -> bool:
        """True once no more results will come."""
        return self._stop.is_set()

    def close(self) -> None:
        """Cancel the running jobs and start no more."""
        self._cancel()
        self._on_close()

    def _cancel(self) -> None:
        self._closed = True
        self._stop.set()
        self._running.clear()
        self._jobs = iter(())


class LockedIterator(Generic[T]):
    """A generator that several threads may take from: each item is given to one of them.

    `interrupt` makes an item that is waited for end with an error. An error ends the iteration for
    all threads.
    """

    def __init__(self, generator: Generator[T, None, None], interrupt: Callable[[], None]) -> None:
        self._generator = generator
        self._interrupt = interrupt
        self._lock = threading.Lock()
        # by this error. Not the error itself, which holds its frames, and these hold this iterator
        self._ended = ""

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            if self._ended:
                raise FeedClosed(f"this iteration has ended with {self._ended}")
            try:
                return next(self._generator)
            except StopIteration:
                raise
            except BaseException as error:
                self._ended = f"{type(error).__name__}: {error}"
                raise

    def close(self) -> None:
        """End the generator.

        It may be called while a thread waits for an item, also from a signal handler there.
        """
        if self._lock.acquire(blocking=False):
            try:
                self._generator.close()
            finally:
                self._lock.release()
        else:
            self._interrupt()
