"""Places for requests: how many at once, in which order, and that none is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from helpers.clocks import now, run
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.storage.range_reads import Limiter


class Visits:
    """Who is inside, and what happened."""

    def __init__(self, places: int) -> None:
        self.limiter, self.inside, self.most = Limiter(places), 0, 0
        self.came: list[Any] = []

    async def visit(self, name: Any, *stays: float, rest: float = 1.0) -> None:
        """Stay so long, rest, stay again."""
        async with self.limiter.permit() as permit:
            for i, seconds in enumerate(stays):
                if i:
                    self.inside -= 1
                    await permit.pause(rest)
                self.came.append(name)
                self.inside += 1
                self.most = max(self.most, self.inside)
                try:
                    await asyncio.sleep(seconds)
                except asyncio.CancelledError:
                    self.inside -= 1
                    raise
            self.inside -= 1

    async def all_free(self, places: int) -> bool:
        """As many as that can enter at once."""
        held = [self.limiter.permit() for _ in range(places)]
        for place in held:
            await asyncio.wait_for(place.__aenter__(), 1)
        return True


def test_so_many_at_once_in_the_order_they_came():
    visits = Visits(3)

    async def work() -> float:
        await asyncio.gather(*(visits.visit(i, 1.0) for i in range(10)))
        return now()

    assert run(work()) == 4
    assert (visits.most, visits.came) == (3, list(range(10)))


def test_one_that_rests_lets_others_in():
    visits = Visits(1)

    async def work() -> None:
        await asyncio.gather(
            visits.visit("a", 1, 1, rest=1000), *(visits.visit(i, 1) for i in range(3))
        )

    run(work())
    assert visits.came == ["a", 0, 1, 2, "a"]
    assert visits.most == 1


def test_one_that_rested_goes_before_those_that_came_later():
    visits = Visits(1)

    async def work() -> None:
        await asyncio.gather(
            visits.visit("a", 1, 1, rest=1), *(visits.visit(i, 1) for i in range(5))
        )

    run(work())
    assert visits.came == ["a", 0, "a", 1, 2, 3, 4]


def test_giving_up_while_waiting():
    visits = Visits(1)

    async def work() -> None:
        first, second, third = (asyncio.ensure_future(visits.visit(i, 2)) for i in range(3))
        await asyncio.sleep(1)
        second.cancel()
        await asyncio.wait([first, second, third])
        assert now() == 4
        assert await visits.all_free(1)

    run(work())
    assert visits.came == [0, 2]


def test_giving_up_just_when_it_is_ones_turn():
    visits = Visits(1)

    async def work() -> None:
        tasks = [asyncio.ensure_future(visits.visit(i, 1)) for i in range(3)]
        await asyncio.sleep(0.5)
        asyncio.get_running_loop().call_later(
            0.5, lambda: asyncio.get_running_loop().call_soon(tasks[1].cancel)
        )
        await asyncio.wait(tasks)
        assert await visits.all_free(1)

    run(work())
    assert visits.came in ([0, 2], [0, 1, 2])


@pytest.mark.parametrize("when", [0.5, 1.5, 2.5])
def test_giving_up_inside_and_in_a_rest(when):
    visits = Visits(1)

    async def work() -> None:
        task = asyncio.ensure_future(visits.visit("a", 1, 1))
        await asyncio.sleep(when)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await visits.all_free(1)

    run(work())


Visit = st.tuples(
    st.floats(0, 3),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=3),
    st.floats(0, 9),
)


@given(st.integers(1, 3), st.lists(Visit, max_size=12))
def test_no_place_is_lost_or_made(places, plan):
    visits = Visits(places)

    async def late(name: int, at: float, stays: list[float]) -> None:
        await asyncio.sleep(at)
        await visits.visit(name, *stays)

    async def work() -> None:
        tasks = [asyncio.ensure_future(late(i, at, stays)) for i, (at, stays, _) in enumerate(plan)]
        for task, (_, _, end) in zip(tasks, plan, strict=True):
            asyncio.get_running_loop().call_later(end, task.cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert await visits.all_free(places)
        with pytest.raises(asyncio.TimeoutError):
            await visits.all_free(1)

    run(work())
    assert visits.most <= places
