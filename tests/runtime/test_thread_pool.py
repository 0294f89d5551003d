"""Work ahead: order, errors in their place, how much is under way, and how it ends.

Threads meet by events.
"""

from __future__ import annotations

import gc
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastfeed.errors import ConfigError, FeedClosed
from fastfeed.runtime.thread_pool import CancelToken, ParallelJob, Prefetcher, ThreadPool, _end

LONG = 20  # seconds; a wait that gets this far has failed


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool(2)
    yield pool
    pool.close()


def prefetcher(
    pool: ThreadPool,
    works: list[Callable[[], Any]],
    depth: int = 1,
    stop: CancelToken | None = None,
) -> Prefetcher[Any]:
    """One job per function, one part each."""
    stop = stop or CancelToken(pool)

    def job(work: Callable[[], Any]) -> ParallelJob[Any]:
        made: list[Any] = []
        return ParallelJob(stop, [lambda: made.append(work())], lambda: made[0])

    return Prefetcher(pool, (job(work) for work in works), depth, stop)


def wait(event: threading.Event) -> None:
    assert event.wait(LONG), "what was waited for did not happen"


def test_results_keep_their_order(pool):
    second_done = threading.Event()

    def first() -> str:
        wait(second_done)
        return "first"

    def second() -> str:
        second_done.set()
        return "second"

    assert list(prefetcher(pool, [first, second, lambda: "third"])) == ["first", "second", "third"]


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_an_error_keeps_its_place(pool, depth):
    failed = threading.Event()

    def fails() -> None:
        failed.set()
        raise KeyError("sample 3")

    walk = prefetcher(pool, [lambda: 0, lambda: 1, fails, lambda: 3], depth)
    assert next(walk) == 0
    if depth > 1:
        wait(failed)
    assert next(walk) == 1
    with pytest.raises(KeyError, match="sample 3"):
        next(walk)
    with pytest.raises(FeedClosed):
        next(walk)


def test_finish_runs_once_after_all_parts(pool):
    done: list[int] = []
    job = ParallelJob(
        CancelToken(pool), [lambda i=i: done.append(i) for i in range(20)], lambda: sorted(done)
    )
    job.start(pool)
    assert job.result() == list(range(20))
    assert job.ready


def test_a_job_without_parts_finishes(pool):
    job = ParallelJob(CancelToken(pool), [], threading.current_thread)
    job.start(pool)
    assert job._done.wait(10)
    assert job.result() in pool._threads


def test_an_error_in_finish_is_raised(pool):
    def finish() -> None:
        raise ValueError("labels")

    job = ParallelJob(CancelToken(pool), [], finish)
    job.start(pool)
    with pytest.raises(ValueError, match="labels"):
        job.result()


def test_the_first_of_two_errors_is_raised():
    pool = ThreadPool(1)  # so that parts run in turn

    def fails(error: Exception) -> None:
        raise error

    job = ParallelJob(
        CancelToken(pool),
        [lambda: fails(KeyError("first")), lambda: fails(ValueError("second"))],
        lambda: None,
    )
    job.start(pool)
    with pytest.raises(KeyError, match="first"):
        job.result()
    pool.close()


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_at_most_depth_jobs_beyond_the_one_asked_for(pool, depth):
    started: list[int] = []
    stop = CancelToken(pool)

    def jobs() -> Iterator[ParallelJob[int]]:
        for i in range(10):
            started.append(i)
            yield ParallelJob(stop, [], lambda i=i: i)

    walk = Prefetcher(pool, jobs(), depth, stop)
    assert started == [], "nothing is made before the first is asked for"
    for i in range(10):
        assert next(walk) == i
        assert len(started) == min(10, i + depth + 1)
    with pytest.raises(StopIteration):
        next(walk)
    with pytest.raises(StopIteration):
        next(walk)


def test_ready_counts_what_lies_there(pool):
    third, done = threading.Event(), threading.Event()
    walk = prefetcher(pool, [lambda: 0, lambda: 1, lambda: (wait(third), done.set())], depth=2)
    next(walk)
    job = walk._running[0]
    job._done.wait(LONG)
    assert walk.ready == 1
    third.set()
    wait(done)


def test_close_cancels_what_has_not_begun(pool):
    entered, leave, ran = threading.Barrier(3), threading.Event(), []

    def busy() -> None:
        entered.wait(LONG)
        wait(leave)

    stop = CancelToken(pool)
    jobs = [
        ParallelJob(stop, [busy, busy], lambda: None),
        ParallelJob(stop, [lambda: ran.append(1)], lambda: None),
    ]
    for job in jobs:
        job.start(pool)
    entered.wait(LONG)  # both threads are in the first job
    stop.set()
    leave.set()
    pool.close()
    assert not ran
    for job in jobs:
        with pytest.raises(FeedClosed):
            job.result()


def test_close_lets_a_waiting_consumer_go(pool):
    leave, asked = threading.Event(), threading.Event()
    stop, errors = CancelToken(pool), []
    walk = prefetcher(pool, [lambda: (asked.set(), wait(leave))], stop=stop)

    def consume() -> None:
        try:
            next(walk)
        except FeedClosed as error:
            errors.append(str(error))

    consumer = threading.Thread(target=consume)
    consumer.start()
    wait(asked)
    stop.set()
    consumer.join(LONG)
    assert errors == ["the feed was closed while waiting for a batch"]
    leave.set()


def test_closed_walk_says_so(pool):
    walk = prefetcher(pool, [lambda: 0, lambda: 1])
    next(walk)
    walk.close()
    with pytest.raises(FeedClosed):
        next(walk)


def test_closed_pool_says_so(pool):
    pool.submit(lambda: None)
    pool.close()
    with pytest.raises(FeedClosed) as error:
        pool.submit(lambda: None)
    assert str(error.value) == "this feed is closed; create a new one"
    pool.close()


def test_threads_start_with_the_first_task_and_have_names():
    before = threading.active_count()
    pool = ThreadPool(3, "fastfeed-test")
    assert threading.active_count() == before
    pool.submit(lambda: None)
    names = {thread.name for thread in threading.enumerate()}
    assert {"fastfeed-test-0", "fastfeed-test-1", "fastfeed-test-2"} <= names
    pool.close()
    assert threading.active_count() == before


def test_dropping_the_pool_ends_its_threads():
    pool = ThreadPool(2, "fastfeed-dropped")
    pool.submit(lambda: None)
    threads = [t for t in threading.enumerate() if t.name.startswith("fastfeed-dropped")]
    assert len(threads) == 2
    del pool
    gc.collect()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()


def test_dropping_the_walk_stops_its_jobs(pool):
    stop = CancelToken(pool)
    walk = prefetcher(pool, [lambda: 0] * 5, stop=stop)
    next(walk)
    del walk
    gc.collect()
    assert stop.is_set()
    assert not pool.closed.is_set()


def test_an_idle_thread_holds_no_result(pool):
    class Result:
        pass

    walk = prefetcher(pool, [Result], depth=0)
    result = next(walk)
    gone = threading.Event()
    weakref.finalize(result, gone.set)
    del result
    gc.collect()
    wait(gone)


def test_an_error_that_was_handled_holds_nothing(pool):
    """An error keeps its frames, these keep the walk: without care the threads would live until a
    collection.
    """
    gc.disable()
    try:
        stop = CancelToken(pool)
        walk = prefetcher(pool, [lambda: 1 / 0], stop=stop)
        dead = weakref.ref(walk)
        with pytest.raises(ZeroDivisionError):
            next(walk)
        pool.close()  # its threads have let go
        del walk
        assert dead() is None
    finally:
        gc.enable()


def test_stuck_threads_are_waited_for_together():
    """A read that never returns must not hold up the end of a run once per thread."""
    now = 100.0

    class Stuck(threading.Thread):
        ident = 1

        def join(self, timeout: float | None = None) -> None:
            nonlocal now
            assert timeout is not None
            now += timeout

    _end(
        queue.SimpleQueue(),
        [Stuck() for _ in range(8)],
        threading.Event(),
        threading.Lock(),
        clock=lambda: now,
    )
    assert now == 105


def test_a_thread_that_cannot_start_is_not_waited_for(
    pool: ThreadPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ended = threading.Event()
    with monkeypatch.context() as lack:
        lack.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(
            ConfigError, match=r"^the system starts no more threads than 0 of 2; lower threads"
        ):
            pool.submit(ended.set)
    pool.submit(ended.set)
    wait(ended)
