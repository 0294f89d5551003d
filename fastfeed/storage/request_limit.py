"""Limits how many requests run at once."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

__all__ = ["Limiter", "Permit"]


class Limiter:
    """Permits for `limit` requests at once, first come first served, also after a pause.

    For one event loop.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._numbers = count()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # a heap

    def permit(self) -> Permit:
        """For one read; use it with `async with`."""
        return Permit(self, next(self._numbers))

    async def acquire(self, number: int) -> None:
        """Wait for a permit; lower numbers go first."""
        if self._free:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (number, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # it got the permit before it was canceled
                self.release()
            raise

    def release(self) -> None:
        """Hand the permit to the next waiter."""
        while self._waiting:
            _, waiter = heapq.heappop(self._waiting)
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


class Permit:
    """Permit of a read."""

    def __init__(self, limiter: Limiter, number: int) -> None:
        self._limiter = limiter
        self._number = number
        self._in_use = False

    async def __aenter__(self) -> Permit:
        await self._limiter.acquire(self._number)
        self._in_use = True
        return self

    async def __aexit__(self, *error: object) -> None:
        self._release()

    async def pause(self, seconds: float) -> None:
        """Release the permit for so long, then wait for it again."""
        self._release()
        await asyncio.sleep(seconds)
        await self.__aenter__()

    def _release(self) -> None:
        if self._in_use:
            self._in_use = False
            self._limiter.release()
