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

from fastfeed.errors import ProofError
from fastfeed.feed.producer import PlaceFunction
from fastfeed.feed.session import FeedSession
from fastfeed.proof.measure.batches import Batches
from fastfeed.proof.measure.block_sizes import BlockSizes, choose, least_block, shortened
from fastfeed.proof.measure.inputs import Inputs
from fastfeed.proof.measure.modes import FEED_MODES, Mode, order
from fastfeed.proof.measure.page_cache import FilePages
from fastfeed.proof.measure.record import Block, Record
from fastfeed.proof.measure.warmup import Warmup
from fastfeed.proof.synchronize import uses_gpu

_DISTURBED = 3  # times that another feed was asked within one block: they are trained together
# batches in a row of other feeds, before the first steps are done: this one is not trained with
_ELSEWHERE = 200
_RESTARTS = 3  # blocks in a row that an ending iteration has cut short


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
