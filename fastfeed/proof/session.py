"""One proof: decides at each request which batch the trainer gets, and times blocks of steps from request to request.

The time of a block is that between its first counted request and the one after its last, both after waiting for the
devices: it holds whatever the trainer does, whether the framework computes in the background or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fastfeed.errors import ProofError
from fastfeed.feed.feed import Feed
from fastfeed.feed.producer import PlaceFunction
from fastfeed.proof.batches import Batches, Busy, Cached, Real, Resident
from fastfeed.proof.design import Design, choose, settling_steps
from fastfeed.proof.first_steps import FirstSteps
from fastfeed.proof.modes import Mode, order
from fastfeed.proof.page_cache import FilePages
from fastfeed.proof.record import Block, Record
from fastfeed.runtime.thread_pool import ThreadPool

__all__ = ["Agree", "Session", "Settings"]

_DISTURBED = 3  # times that another feed was asked within one block: they are trained together
_RESTARTS = 3  # blocks in a row that an ending iteration has cut short

Agree = Callable[[Design], Design]  # of several ranks, all must take the design of one


@dataclass(frozen=True, slots=True)
class Settings:
    """What a proof was asked for."""

    seconds: float = 60.0
    cold: bool = True
    modes: tuple[Mode, ...] = tuple(Mode)


class OnChange(Protocol):
    """Called with the record when a round has ended."""

    def __call__(self, record: Record) -> None: ...


@dataclass(slots=True)
class _Running:
    """A block under way."""

    mode: Mode
    batches: Batches
    taken: int = 0  # steps
    since: dict[str, Any] = field(default_factory=dict)  # counters at the first counted request


class Session:
    """Of one feed. Its iterator never ends by itself before the proof does."""

    def __init__(
        self,
        feed: Feed,
        settings: Settings,
        synchronize: Callable[[], None],
        on_change: OnChange = lambda record: None,
        agree: Agree = lambda design: design,
    ) -> None:
        """synchronize: waits until the devices have nothing left to do."""
        self._feed, self._settings, self._synchronize = feed, settings, synchronize
        self._on_change, self._agree = on_change, agree
        self._pages = FilePages(feed.source)
        self._pool = ThreadPool(1, name="fastfeed-proof")
        self._first = FirstSteps(feed, synchronize)
        self._resident: Any = None
        self._place: PlaceFunction | None = None
        self._raw = False
        self._design: Design | None = None
        self._modes: list[Mode] = []
        self._queue: list[Mode] = []  # of this round
        self._round: list[Block] = []
        self._running: _Running | None = None
        self._windows = 0  # of steps that the blocks of a round share
        self._iterations, self._asked = 0, 0  # requests in this iteration
        self._restarts, self._disturbed, self._longest = 0, 0, 0
        self._was_disturbed = False
        self.record = Record.of(feed, settings.seconds)
        self.done = False

    def iterate(self, place: PlaceFunction | None, raw: bool) -> Generator[Any, None, None]:
        """Batches until the proof is done; a new iteration continues it."""
        self._enter(place, raw)
        while not self.done:
            batch = self._next()
            if self.done:
                return
            self.record.steps += 1
            yield batch

    def disturb(self) -> None:
        """Another feed was asked for a batch."""
        self._was_disturbed = True

    def close(self) -> None:
        """End all threads of the proof."""
        self._end_running()
        self._first.close()
        self._pool.close()
        self._first.batches.clear()

    def _enter(self, place: PlaceFunction | None, raw: bool) -> None:
        if self._iterations and self._running is not None:
            self._longest = max(self._longest, self._asked)
            self._restart()
        self._iterations += 1
        self._asked = 0
        self._place, self._raw = place, raw
        self._resident = None

    def _next(self) -> Any:
        self._asked += 1
        self._check_disturbed()
        if self._design is None:
            batch = self._first.next(self._place, self._raw)
            if self._first.step_s is None:
                return batch
            self._plan(self._first.step_s)
        design, running = self._known_design(), self._running
        if running is not None:
            if running.taken == design.warmup:
                running.since = self._counters()
            elif running.taken == design.block:
                self._end_block(running)
                running = None
        if running is None:
            if not self._queue and not self._begin_round():
                return None
            running = self._running = self._begin_block(self._queue[0])
        running.taken += 1
        return running.batches.next()

    def _plan(self, step_s: float) -> None:
        settings, feed = self._settings, self._feed
        modes = [mode for mode in settings.modes if mode is not Mode.COLD]
        if Mode.COLD in settings.modes:
            problem = "it was not asked for" if not settings.cold else ""
            if settings.cold:
                found = self._pages.check(self._ids(range(settling_steps(feed.prefetch) + 5)))
                problem, self.record.cold_verified = found.problem, found.verified
            if problem:
                self.record.no_cold = problem
            else:
                modes.append(Mode.COLD)
        self._modes = modes
        self._design = self._agree(choose(settings.seconds, step_s, len(modes), feed.prefetch))
        self.record.design, self.record.modes = self._design, [mode.value for mode in modes]
        self._on_change(self.record)

    def _begin_round(self) -> bool:
        """False where all rounds are done."""
        design = self._known_design()
        if self._round:
            self.record.blocks += self._round
            self.record.rounds += 1
            self._round = []
            self._on_change(self.record)
        if self.record.rounds == design.rounds:
            self.done = self.record.complete = True
            self._on_change(self.record)
            self.close()
            return False
        self._windows += 1
        self._queue = order(self._modes, self.record.rounds)
        return True

    def _begin_block(self, mode: Mode) -> _Running:
        feed, depth = self._feed, self._feed.prefetch
        if self._resident is None:
            self._resident = self._first.batches[0] if self._place is None else self._place(self._first.batches[0])
        if mode is Mode.RESIDENT:
            return _Running(mode, Resident(self._resident))
        if mode is Mode.CACHED:
            return _Running(mode, Cached(self._pool, self._first.batches, self._place, depth))
        steps = self._window()
        ids = self._ids(steps)
        if mode is Mode.COLD:
            self._pages.drop(ids)
        else:
            self._pages.warm(ids)
        epoch, step = divmod(steps[0], feed.plan.steps)
        if mode is Mode.BUSY:
            cached = Cached(self._pool, self._first.batches, self._place, depth)
            return _Running(mode, Busy(cached, feed.start_batches(epoch, step, None, self._raw), depth))
        return _Running(mode, Real(feed.open_batches(epoch, step, self._place, self._raw)))

    def _window(self) -> range:
        """The steps of the plan that this round's blocks are made of: the same for all, and others in each round."""
        length = self._known_design().block + self._feed.prefetch + 2
        first = (self._windows - 1) * length
        return range(first, first + length)

    def _ids(self, steps: range) -> np.ndarray:
        """Samples of this rank in these steps, counted from epoch 0."""
        plan = self._feed.plan
        return np.concatenate([plan.ids(*divmod(step, plan.steps)) for step in steps])

    def _end_block(self, running: _Running) -> None:
        now, design = self._counters(), self._known_design()
        since = running.since
        stages = {
            stage: ns - since["stages"].get(stage, (0, 0))[1]
            for stage, (_, ns) in now["stages"].items()
            if stage != "wait" and ns > since["stages"].get(stage, (0, 0))[1]
        }
        self._round.append(
            Block(
                mode=running.mode.value,
                round=self.record.rounds,
                steps=design.steps,
                ns=now["ns"] - since["ns"],
                cpu_ns=now["cpu_ns"] - since["cpu_ns"],
                wait_ns=now["wait_ns"] - since["wait_ns"],
                stage_ns=stages if running.mode in (Mode.WARM, Mode.COLD) else {},
            )
        )
        self._queue.pop(0)
        self._restarts = self._disturbed = 0
        self._end_running()

    def _counters(self) -> dict[str, Any]:
        self._synchronize()
        meter = self._feed.meter
        return {
            "ns": self._clock(),
            "cpu_ns": time.process_time_ns(),
            "wait_ns": meter.wait_ns,
            "stages": self._feed.timeline.totals(),
        }

    def _end_running(self) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        running.batches.close()
        if running.mode in (Mode.WARM, Mode.COLD):
            self._feed.meter.pause()
            self._feed.live.paused(self._clock())

    def _restart(self) -> None:
        """The block under way does not count; the same mode is tried again."""
        self._end_running()
        self._restarts += 1
        if self._restarts >= _RESTARTS and self._design is not None and self._longest <= self._design.block:
            raise ProofError(
                f"the trainer ends an epoch after {self._longest} steps, and a proof needs {self._design.block + 1} "
                f"steps in a row here; raise steps_per_epoch to {self._design.block + 1}, or lower --seconds"
            )

    def _check_disturbed(self) -> None:
        if not self._was_disturbed:
            return
        self._was_disturbed = False
        self._disturbed += 1
        if self._disturbed >= _DISTURBED:
            raise ProofError(
                "two feeds are iterated in turn, and a proof measures one of them; say which with --feed NAME "
                '(Feed(name="train")): the other is then a part of the step'
            )
        self._end_running()

    def _known_design(self) -> Design:
        assert self._design is not None
        return self._design

    def _clock(self) -> int:
        return self._feed.timeline.clock()
