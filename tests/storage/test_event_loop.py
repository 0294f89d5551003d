"""Work that threads begin and the event loop does: how often that is woken, and that nothing is
forgotten.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from helpers.lakes import LONG

from fastfeed.storage import event_loop
from fastfeed.storage.event_loop import batched, results, submit
from fastfeed.storage.reads import Completed


async def number(n: int) -> int:
    return n


def begin(n: int) -> Any:
    return submit(lambda: number(n))


@pytest.fixture
def woken(monkeypatch):
    """One entry each time that the event loop is woken."""
    loop, times = event_loop.get_loop(), []

    class Counting:
        def call_soon_threadsafe(self, *args: Any) -> None:
            times.append(1)
            loop.call_soon_threadsafe(args[0], loop, *args[2:])

    monkeypatch.setattr(event_loop, "get_loop", Counting)
    return times


def test_together(woken):
    with batched():
        found = [begin(i) for i in range(10)]
        assert not woken
    assert results(found) == list(range(10))
    with batched():
        pass
    assert len(woken) == 1
    assert begin(3).result(LONG) == 3
    assert len(woken) == 2


def test_a_result_that_is_asked_for_inside(woken):
    """A source may have to read something before it knows what to read."""
    with batched():
        first = begin(1)
        assert first.result(LONG) == 1
        second = begin(2)
    assert second.result(LONG) == 2
    assert len(woken) == 2


def test_inside_each_other(woken):
    with batched():
        first = begin(1)
        with batched():
            second = begin(2)
        assert second.result(LONG) == 2
    assert first.result(LONG) == 1


def test_an_error_inside(woken):
    with pytest.raises(KeyError), batched():
        found = begin(1)
        raise KeyError
    assert found.result(LONG) == 1


def test_other_threads_are_not_held_up(woken):
    found = []
    with batched():
        thread = threading.Thread(target=lambda: found.append(begin(1).result(LONG)))
        thread.start()
        thread.join(LONG)
        assert found == [1]


def test_an_error_of_the_work_is_raised():
    async def fails() -> None:
        raise KeyError("here")

    future = submit(fails)
    with pytest.raises(KeyError, match="here"):
        future.result(LONG)


def test_a_timeout_of_the_works_own():
    """It is not that of the one who waits."""

    async def fails() -> None:
        raise TimeoutError("of the work")

    future = submit(fails)
    with pytest.raises(TimeoutError, match="of the work"):
        future.result()


def test_waiting_for_all_is_given_up_together():
    """Whatever interrupts the wait, the rest is canceled."""
    began, ended = threading.Event(), threading.Event()

    async def hangs() -> None:
        began.set()
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()

    class Interrupting:
        def result(self, timeout: float | None = None) -> None:
            raise KeyboardInterrupt

        def cancel(self) -> None:
            pass

        def done(self) -> bool:
            return False

    hanging = submit(hangs)
    assert began.wait(LONG)
    with pytest.raises(KeyboardInterrupt):
        results([Interrupting(), hanging])
    assert ended.wait(LONG)
    assert hanging.cancelled()


def test_canceled_before_it_begins():
    ran = []

    async def work() -> None:
        ran.append(1)

    with batched():
        first, second = submit(work), begin(2)
        first.cancel()
    assert second.result(LONG) == 2
    assert not ran


def test_known():
    assert Completed(5).result() == 5
    assert Completed(5).done()
