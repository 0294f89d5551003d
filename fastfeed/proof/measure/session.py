"""Session of one proof: chooses the batch of each request, and times blocks of steps.

The time of a block is that between its first counted request and the one after its last, both after
waiting for the devices: it holds whatever the trainer does, whether the framework computes in the
background or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fastfeed.errors import ProofError
from fastfeed.feed.producer import BatchStream, PlaceFunction
from fastfeed.feed.session import FeedSession
from fastfeed.proof.measure.batches import Batches, Busy, Cached, Real, Resident, copied
from fastfeed.proof.measure.block_sizes import (
    BlockSizes,
    choose,
    least_block,
    settling_steps,
    shortened,
)
from fastfeed.proof.measure.modes import FEED_MODES, Mode, order
from fastfeed.proof.measure.page_cache import ColdCheck, FilePages
from fastfeed.proof.measure.record import Block, Record
from fastfeed.proof.synchronize import uses_gpu
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.thread_pool import ThreadPool

_DISTURBED = 3  # times that another feed was asked within one block: they are trained together
# batches in a row of other feeds, before the first steps are done: this one is not trained with
_ELSEWHERE = 200
_RESTARTS = 3  # blocks in a row that an ending iteration has cut short
_SETTLE = 10  # steps, at least
_TIMED = 5  # of these, the last ones tell how long a step takes


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of one proof."""

    seconds: float = 60.0
    cold: bool = True
    modes: tuple[Mode, ...] = FEED_MODES


@dataclass(frozen=True, slots=True)
class Schedule:
    """Sizes and modes that the first steps have shown to be possible."""

    sizes: BlockSizes
    modes: tuple[Mode, ...]
    no_cold: str  # why COLD is not among them
    seed: int = 0  # of the order of modes


Agree = Callable[[Schedule], Schedule]  # of several ranks, all must take the schedule of one


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
    """The proof of one feed. Its iterator never ends by itself before the proof does."""

    def __init__(
        self,
        feed: FeedSession,
        settings: Settings,
        synchronize: Callable[[], None],
        on_change: OnChange = lambda record: None,
        agree: Agree = lambda schedule: schedule,
    ) -> None:
        """synchronize: waits until the devices have nothing left to do."""
        self._feed = feed
        self._settings = settings
        self._synchronize = synchronize
        self._on_change = on_change
        self._agree = agree
        self._warmup = Warmup(feed, synchronize)
        self._inputs = Inputs(feed, FilePages(feed.source), self._warmup.batches)
        self._place: PlaceFunction | None = None
        self._raw = False
        self._sizes: BlockSizes | None = None
        self._modes: tuple[Mode, ...] = ()
        self._seed = 0
        self._queue: list[Mode] = []  # of this round
        self._round: list[Block] = []
        self._running: _Running | None = None
        self._asked = 0  # requests in this iteration
        self._restarts = 0
        self._disturbed = 0
        self._longest = 0
        self._elsewhere = 0
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
        if self._sizes is not None:
            self._was_disturbed = True
            return
        self._elsewhere += 1
        if self._elsewhere >= _ELSEWHERE:
            steps = self.record.steps
            raise ProofError(
                f"the first feed that was iterated gave {steps} batch{'es' * (steps != 1)}, and"
                " then another one gave "
                f'{_ELSEWHERE}; say which of them to measure with --feed NAME (Feed(name="train"))'
            )

    def close(self) -> None:
        """End all threads of the proof."""
        self._end_running()
        self._warmup.close()
        self._inputs.close()
        self._warmup.batches.clear()

    def _enter(self, place: PlaceFunction | None, raw: bool) -> None:
        if self._running is not None:
            self._longest = max(self._longest, self._asked)
            self._restart()
        self._asked = 0
        self._place = place
        self._raw = raw
        self._inputs.place_with(place, raw)

    def _next(self) -> Any:
        self._asked += 1
        self._elsewhere = 0
        self._check_disturbed()
        if self._sizes is None:
            batch = self._warmup.next(self._place, self._raw)
            if self._warmup.step_s is None:
                return batch
            self._plan(self._warmup.step_s)
        sizes, running = self._known_sizes(), self._running
        if running is not None:
            if running.taken == sizes.warmup:
                running.since = self._counters()
            elif running.taken == sizes.block:
                self._end_block(running)
                running = None
        if running is None:
            if not self._queue and not self._begin_round():
                return None
            mode = self._queue[0]
            running = self._running = _Running(mode, self._inputs.open(mode))
        running.taken += 1
        return running.batches.next()

    def _plan(self, step_s: float) -> None:
        settings, feed, record = self._settings, self._feed, self.record
        record.gpu = uses_gpu()
        modes = tuple(mode for mode in settings.modes if mode is not Mode.COLD)
        problem, longest = "", None
        if Mode.COLD in settings.modes:
            problem = "it was not asked for"
            if settings.cold:
                found = self._inputs.check_cold()
                problem, record.cold_verified = found.problem, found.verified
            if not problem:
                modes = (*modes, Mode.COLD)
                longest = self._inputs.longest_cold
        schedule = self._agree(
            # the clock draws another order in each proof: a load may happen to fit one of them
            Schedule(
                choose(settings.seconds, step_s, len(modes), feed.prefetch, longest),
                modes,
                problem,
                self._clock(),
            )
        )
        self._modes = schedule.modes
        self._seed = schedule.seed
        record.modes = [mode.value for mode in schedule.modes]
        record.no_cold = schedule.no_cold
        if Mode.COLD in schedule.modes and schedule.sizes.block > self._inputs.longest_cold:
            record.notes.append(
                f"an epoch has {feed.plan.steps} steps, too few for a cold block: its files were"
                " read from storage once and then from memory, so fetch is underestimated"
            )
        self._take(schedule.sizes)

    def _take(self, sizes: BlockSizes) -> None:
        self._sizes = self.record.sizes = sizes
        self._on_change(self.record)

    def _begin_round(self) -> bool:
        """Start the next round; False after the last."""
        sizes = self._known_sizes()
        if self._round:
            self.record.blocks += self._round
            self.record.rounds += 1
            self._round = []
            self._on_change(self.record)
        if self.record.rounds == sizes.rounds:
            self.done = self.record.complete = True
            self._on_change(self.record)
            self.close()
            return False
        self._inputs.begin_round(sizes.block)
        self._queue = order(self._modes, self.record.rounds, self._seed)
        return True

    def _end_block(self, running: _Running) -> None:
        now, sizes = self._counters(), self._known_sizes()
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
                steps=sizes.steps,
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
        """Discard the block under way and try its mode again, in a shorter block if necessary."""
        self._end_running()
        self._restarts += 1
        sizes = self._known_sizes()
        if self._restarts < _RESTARTS or self._longest > sizes.block:
            return
        shorter = shortened(sizes, self._longest - 1)
        if shorter is None:
            least = least_block(self._feed.prefetch) + 1
            raise ProofError(
                f"the trainer ends an epoch after {self._longest} steps, and a proof needs {least}"
                f" steps in a row here; raise steps_per_epoch to {least}"
            )
        self._restarts = 0
        self._queue = []
        self._round = []
        self._take(shorter)

    def _check_disturbed(self) -> None:
        if not self._was_disturbed:
            return
        self._was_disturbed = False
        self._disturbed += 1
        if self._disturbed >= _DISTURBED:
            raise ProofError(
                "two feeds are iterated in turn, and a proof measures one of them; name it with"
                ' --feed NAME (Feed(name="train")): the other is then a part of the step'
            )
        self._end_running()

    def _known_sizes(self) -> BlockSizes:
        assert self._sizes is not None
        return self._sizes

    def _clock(self) -> int:
        return self._feed.timeline.clock()


class Inputs:
    """The inputs of one feed.

    `finished` are batches in their own memory; the first block needs one when it begins.
    """

    def __init__(self, feed: FeedSession, pages: FilePages, finished: list[Batch]) -> None:
        self._feed = feed
        self._pages = pages
        self._finished = finished
        self._pool = ThreadPool(1, name="fastfeed-proof")
        self._place: PlaceFunction | None = None
        self._raw = False
        self._resident: Any = None
        self._windows = 0
        # steps of the plan, counted from epoch 0, that the blocks of this round read
        self._window = range(0)

    def place_with(self, place: PlaceFunction | None, raw: bool) -> None:
        """Place batches with this function from now on."""
        self._place = place
        self._raw = raw
        self._resident = None

    def check_cold(self) -> ColdCheck:
        """Try on a few files if they can be made cold."""
        return self._pages.check(self._ids(range(settling_steps(self._feed.prefetch) + 5)))

    @property
    def longest_cold(self) -> int:
        """Steps of the longest block that reads no file twice."""
        return self._feed.plan.steps - self._margin

    def begin_round(self, block: int) -> None:
        """Take other steps of the plan for the next blocks, within one epoch if it has enough."""
        length, steps = block + self._margin, self._feed.plan.steps
        whole = steps // length
        epoch, number = divmod(self._windows, whole) if whole else (0, self._windows)
        first = epoch * steps + number * length
        self._window = range(first, first + length)
        self._windows += 1

    def open(self, mode: Mode) -> Batches:
        """Batches of this mode; those of a round read the same files."""
        feed, depth = self._feed, self._feed.prefetch
        if mode is Mode.RESIDENT:
            if self._resident is None:
                self._resident = (
                    self._finished[0] if self._place is None else self._place(self._finished[0])
                )
            return Resident(self._resident)
        if mode is Mode.CACHED:
            return Cached(self._pool, self._finished, self._place, depth)
        ids = self._ids(self._window)
        if mode is Mode.COLD:
            self._pages.drop(ids)
        else:
            self._pages.warm(ids)
        epoch, step = divmod(self._window[0], feed.plan.steps)
        if mode is Mode.BUSY:
            cached = Cached(self._pool, self._finished, self._place, depth)
            return Busy(cached, feed.producer.start(epoch, step, None, self._raw), depth)
        return Real(feed.cursor.open(epoch, step, self._place, self._raw))

    def close(self) -> None:
        """End the thread that places finished batches, and let go of them."""
        self._pool.close()
        self._resident = None

    @property
    def _margin(self) -> int:
        """Steps that a block's feed may read beyond those that the trainer takes."""
        return self._feed.prefetch + 2

    def _ids(self, steps: range) -> np.ndarray:
        """Samples of this rank in these steps."""
        plan = self._feed.plan
        return np.concatenate([plan.ids(*divmod(step, plan.steps)) for step in steps])


class Warmup:
    """Batches from the feed's beginning on, each placed when it is asked for."""

    def __init__(self, feed: FeedSession, synchronize: Callable[[], None]) -> None:
        self._feed = feed
        self._synchronize = synchronize
        self._steps = max(_SETTLE, settling_steps(feed.prefetch) + _TIMED)
        self._stream: BatchStream | None = None
        self._taken = 0
        self._since_ns = 0
        self.batches: list[Batch] = []  # copies, apart from the feed's buffers
        self.step_s: float | None = None  # of a step; None until the first steps are done

    def next(self, place: PlaceFunction | None, raw: bool) -> Any:
        """A batch; None where the first steps are done."""
        if self._taken == self._steps - _TIMED:
            self._since_ns = self._now()
        elif self._taken == self._steps:
            self.step_s = (self._now() - self._since_ns) / _TIMED / 1e9
            self.close()
            return None
        if self._stream is None:
            self._stream = self._feed.producer.start(0, 0, None, raw)
        batch: Batch = next(self._stream)
        if len(self.batches) < self._feed.prefetch + 2:
            self.batches.append(copied(batch, self._feed.allocate))
        self._taken += 1
        return batch if place is None else place(batch)

    def close(self) -> None:
        """End the threads' work for them."""
        if self._stream is not None:
            self._stream.close()
        self._stream = None

    def _now(self) -> int:
        self._synchronize()
        return self._feed.timeline.clock()
