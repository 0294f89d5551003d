"""Reads that other threads note while one looks for samples to probe."""

from __future__ import annotations

import threading

import pytest

from fastfeed.feed.faults.outages import FeedEndpoints
from fastfeed.runtime.thread_pool import ParallelJob, Prefetcher, ThreadPool


@pytest.mark.parametrize("endpoint", ["s3://bucket", None])
def test_a_probe_is_chosen_while_another_thread_notes_a_read(endpoint):
    """Whatever happens between two samples that it looks at: here, a read by another thread at each
    of them.
    """

    def uri(id: int) -> str:
        if endpoints is not None and not endpoints._lock.locked():
            reader = threading.Thread(target=endpoints.note, args=(id + 1,))
            reader.start()
            reader.join()
        return f"s3://bucket/{id}"

    endpoints: FeedEndpoints | None = None
    endpoints = FeedEndpoints(1000, uri)
    for id in range(16):
        endpoints.note(id)
    assert (
        next(endpoints.candidates(endpoint, 3)) == 15
    )  # the newest, as the list was when it was asked for


def test_ready_batches_are_counted_while_another_thread_takes_one():
    """What a live page asks on one thread, and a training loop changes on another."""
    pool = ThreadPool(1)
    stop = threading.Event()
    ahead: Prefetcher[int] = Prefetcher(pool, iter(()), 4, stop)  # type: ignore[arg-type]

    class Job(ParallelJob[int]):
        @property
        def ready(self) -> bool:
            taker = threading.Thread(target=ahead._running.popleft)
            taker.start()
            taker.join()
            return True

    ahead._running.extend(Job(stop, [], lambda: 0) for _ in range(3))  # type: ignore[arg-type]
    try:
        assert ahead.ready == 3
    finally:
        ahead.close()
        pool.close()
