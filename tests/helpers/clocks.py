"""An event loop whose time passes only where nothing else is to be done: hours in no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Skip(selectors.DefaultSelector):
    """Does not wait, but notes that time has passed."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing is left that could happen"
            self.now += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Skip()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from second 0 on.

    Whatever the loop would have reported, such as a lost exception, fails.
    """
    loop, reported = _Loop(), []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    try:
        answer = loop.run_until_complete(work)
        left = asyncio.all_tasks(loop)
        loop.run_until_complete(asyncio.sleep(0))
        assert not reported, reported
        assert all(task.done() for task in left), f"left behind: {left}"
        return answer
    finally:
        loop.close()


def now() -> float:
    """Seconds since the loop began."""
    return asyncio.get_running_loop().time()
