"""Places for requests: so many may be under way at once."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

__all__ = ["Place", "Room"]


class Room:
    """So many places. Who asked first goes first, also after a pause outside. For one event loop, hence no lock."""

    def __init__(self, places: int) -> None:
        self._free, self._asked = places, count()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # a heap

    def place(self) -> Place:
        """For one read; to be entered with `async with`."""
        return Place(self, next(self._asked))

    async def enter(self, number: int) -> None:
        """Wait for a free place; lower numbers go first."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (number, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was given the place before it heard that it should stop
                self.leave()
            raise

    def leave(self) -> None:
        """Give the place to the next one."""
        while self._waiting:
            _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Place:
    """That of one read."""

    def __init__(self, room: Room, number: int) -> None:
        self._room, self._number = room, number
        self._inside = False

    async def __aenter__(self) -> Place:
        await self._room.enter(self._number)
        self._inside = True
        return self

    async def __aexit__(self, *error: object) -> None:
        self._leave()

    async def rest(self, seconds: float) -> None:
        """Let others in for so long, and wait until there is room again."""
        self._leave()
        await asyncio.sleep(seconds)
        await self.__aenter__()

    def _leave(self) -> None:
        if self._inside:
            self._inside = False
            self._room.leave()
