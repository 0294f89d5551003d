"""Session of one proof: chooses the batch of each request, and times blocks of steps.

The time of a block is that between its first counted request and the one after its last, both after
waiting for the devices: it holds whatever the trainer does, whether the framework computes in the
background or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice, repeat
from typing import Any, Protocol

import numpy as np

from fastfeed.errors import ProofError
from fastfeed.feed.producer import BatchStream, PlaceFunction
from fastfeed.feed.session import FeedSession
from fastfeed.proof.measure.block_sizes import (
    BlockSizes,
    choose,
    least_block,
    settling_steps,
    shortened,
)
from fastfeed.proof.measure.modes import FEED_MODES, Mode, order
from fastfeed.proof.measure.page_cache import FilePages
from fastfeed.proof.measure.record import Block, ProofRecord
from fastfeed.proof.synchronize import uses_gpu
from fastfeed.runtime.batch import Batch
from fastfeed.runtime.buffers import Allocate
from fastfeed.runtime.placement import flatten
from fastfeed.runtime.thread_pool import CancelToken, ParallelJob, Prefetcher, ThreadPool

_DISTURBED = 3  # times that another feed was asked within one block: they are trained together
# batches in a row of other feeds, before the first steps are done: this one is not trained with
_ELSEWHERE = 200
_RESTARTS = 3  # blocks in a row that the trainer has cut short
SETTLE = 10  # first steps, at least, in which compilers and caches settle
TIMED = 5  # more steps, which tell how long one takes


@dataclass(frozen=True, slots=True)
class ProofJob:
    """Options of a proof, also in the trainer's process."""

    seconds: float = 60.0
    cold: bool = True
    feed: str | None = None  # name of the feed; None: the first that is iterated
    modes: tuple[Mode, ...] = FEED_MODES


@dataclass(frozen=True, slots=True)
class Schedule:
    """Sizes and modes that the first steps have shown to be possible."""

    sizes: BlockSizes
    modes: tuple[Mode, ...]
    no_cold: str  # why COLD is not among them
    seed: int = 0  # of the order of modes


Agree = Callable[[Schedule], Schedule]  # of several ranks, all must take the schedule of one
OnChange = Callable[[ProofRecord], None]  # called with the record when a round has ended


class Ended(Exception):
    """The input has ended, with the reason why that may be too early."""


class Inputs(Protocol):
    """The kinds of input of one proof, of which one at a time is open."""

    settling: int  # first steps, which do not count

    def clock(self) -> int:
        """Nanoseconds now, when the devices have nothing left to do."""
        ...

    def counters(self) -> tuple[int, dict[str, int]]:
        """Nanoseconds waited for batches, and of threads by stage, so far."""
        ...

    def warm_up(self, raw: bool) -> Iterator[Any]:
        """Batches of the first steps, not placed."""
        ...

    def schedule(self, step_s: float, agree: Agree) -> Schedule:
        """Choose the schedule, by the time of a step with real input."""
        ...

    def begin_round(self, block: int) -> None:
        """Prepare blocks of this many steps, one for each mode."""
        ...

    def open(self, mode: Mode, place: PlaceFunction | None, raw: bool) -> Iterator[Any]:
        """Batches of this mode."""
        ...

    def end(self) -> None:
        """Close what is open."""
        ...

    def close(self) -> None:
        """End all threads of the proof."""
        ...

    def too_short(self, longest: int, least: int) -> str:
        """Sentence for a trainer that takes too few batches in a row."""
        ...


class Session:
    """One proof. Its iterator never ends by itself before the proof does."""

    def __init__(
        self,
        inputs: Inputs,
        record: ProofRecord,
        on_change: OnChange = lambda record: None,
        agree: Agree = lambda schedule: schedule,
    ) -> None:
        self.record = record
        self.done = False
        self.mode: Mode | None = None  # of the block under way
        self._inputs = inputs
        self._on_change = on_change
        self._agree = agree
        self._place: PlaceFunction | None = None
        self._raw = False
        self._schedule: Schedule | None = None  # None until the first steps are done
        self._batch_iterator = self._batches()
        self._is_closed = False
        self._asked = 0  # requests since the trainer began an epoch, or did something else
        self._longest = 0
        self._is_cut = False
        self._restarts = 0
        self._is_disturbed = False
        self._disturbed = 0
        self._elsewhere = 0

    def iterate(
        self, place: PlaceFunction | None = None, raw: bool = False
    ) -> Generator[Any, None, None]:
        """Batches until the proof is done; a new iteration continues it."""
        self.cut()
        self._place = place
        self._raw = raw
        while not self.done:
            self._elsewhere = 0
            self._check_disturbed()
            try:
                batch = next(self._batch_iterator)
            except StopIteration:
                if self.done or self._is_closed:
                    return
                self._batch_iterator = (
                    self._batches()
                )  # ended by an error that the trainer has caught
                continue
            except Ended as error:
                if self.record.rounds < 2:
                    raise ProofError(str(error)) from None
                self._finish()
                return
            self._asked += 1
            self.record.steps += 1
            yield batch

    def cut(self) -> None:
        """The trainer does something else between two steps: the block under way does not count."""
        if self.mode is not None and not self._is_cut:
            self._longest = max(self._longest, self._asked)
            self._restarts += 1
        self._asked = 0
        self._is_cut = True

    def disturb(self) -> None:
        """Another feed was asked for a batch."""
        if self.record.sizes is not None:
            self._is_disturbed = True
            return
        self._elsewhere += 1
        if self._elsewhere >= _ELSEWHERE:
            steps = self.record.steps
            raise ProofError(
                f"the first feed that was iterated gave {steps} batch{'es' * (steps != 1)}, and"
                " then another one gave "
                f'{_ELSEWHERE}; say which of them to measure with --feed NAME (Feed(name="train"))'
            )

    def _check_disturbed(self) -> None:
        if not self._is_disturbed:
            return
        self._is_disturbed = False
        self._disturbed += 1
        if self._disturbed >= _DISTURBED:
            raise ProofError(
                "two feeds are iterated in turn, and a proof measures one of them; name it with"
                ' --feed NAME (Feed(name="train")): the other is then a part of the step'
            )
        self._is_cut = True

    def close(self) -> None:
        """End all threads of the proof."""
        self._is_closed = True
        with suppress(ValueError):  # a thread waits for a batch in it, and gets an error instead
            self._batch_iterator.close()
        self._inputs.close()

    def _batches(self) -> Generator[Any, None, None]:
        inputs = self._inputs
        record = self.record
        schedule = self._schedule
        if schedule is None:
            self._schedule = schedule = yield from self._first_steps()
            record.modes = [mode.value for mode in schedule.modes]
            record.no_cold = schedule.no_cold
            record.sizes = schedule.sizes
            self._on_change(record)
        while record.rounds < self._known_sizes().rounds:
            inputs.begin_round(self._known_sizes().block)
            blocks = []
            for mode in order(schedule.modes, record.rounds, schedule.seed):
                blocks.append((yield from self._whole_block(mode)))
            record.blocks += blocks
            record.rounds += 1
            self._on_change(record)
        record.complete = True
        self._finish()

    def _first_steps(self) -> Generator[Any, None, Schedule]:
        inputs = self._inputs
        warm_up = (
            batch if self._place is None else self._place(batch)
            for batch in inputs.warm_up(self._raw)
        )
        try:
            yield from islice(warm_up, inputs.settling)
            begin = inputs.clock()
            yield from islice(warm_up, TIMED)
            step_s = (inputs.clock() - begin) / TIMED / 1e9
        finally:
            inputs.end()
        self.record.gpu = uses_gpu()
        return inputs.schedule(step_s, self._agree)

    def _finish(self) -> None:
        self.done = True
        self._inputs.close()
        self._on_change(self.record)

    def _whole_block(self, mode: Mode) -> Generator[Any, None, Block]:
        """A block that the trainer has not interrupted, shorter if its epochs are."""
        while True:
            sizes = self._known_sizes()
            block = yield from self._block(mode, sizes)
            if block is not None:
                self._restarts = self._disturbed = 0
                return block
            if self._restarts < _RESTARTS or self._longest > sizes.block:
                continue
            shorter = shortened(sizes, self._longest - 1)
            if shorter is None:
                least = least_block(self.record.feed["prefetch"]) + 1
                raise ProofError(self._inputs.too_short(self._longest, least))
            self._restarts = 0
            self.record.sizes = shorter
            self._on_change(self.record)

    def _block(self, mode: Mode, sizes: BlockSizes) -> Generator[Any, None, Block | None]:
        """One block of steps, timed from request to request; None if it was interrupted."""
        self._is_cut = False
        self.mode = mode
        since = 0, 0, 0, dict[str, int]()
        try:
            batches = self._inputs.open(mode, self._place, self._raw)
            for step in range(sizes.block):
                if step == sizes.warmup:
                    since = self._counters()
                yield next(batches)
                if self._is_cut:
                    return None
            now = self._counters()
        finally:
            self.mode = None
            self._inputs.end()
        ns, cpu_ns, wait_ns = (
            int(after - before) for after, before in zip(now[:3], since[:3], strict=True)
        )
        spent = {stage: total - since[3].get(stage, 0) for stage, total in now[3].items()}
        is_real = mode in (Mode.WARM, Mode.COLD)
        stage_ns = {stage: total for stage, total in spent.items() if is_real and total > 0}
        return Block(mode.value, self.record.rounds, sizes.steps, ns, cpu_ns, wait_ns, stage_ns)

    def _counters(self) -> tuple[int, int, int, dict[str, int]]:
        """Nanoseconds on the clock, of the process, waited, and by stage."""
        return (self._inputs.clock(), time.process_time_ns(), *self._inputs.counters())

    def _known_sizes(self) -> BlockSizes:
        assert self.record.sizes is not None
        return self.record.sizes


def feed_session(
    feed: FeedSession,
    job: ProofJob,
    synchronize: Callable[[], None],
    on_change: OnChange = lambda record: None,
    agree: Agree = lambda schedule: schedule,
) -> Session:
    """The proof of one feed; `synchronize` waits until the devices have nothing left to do."""
    record = ProofRecord.of(feed, job.seconds)
    return Session(_FeedInputs(feed, job, record, synchronize), record, on_change, agree)


class _FeedInputs:
    """The inputs of one feed."""

    def __init__(
        self, feed: FeedSession, job: ProofJob, record: ProofRecord, synchronize: Callable[[], None]
    ) -> None:
        self.settling = max(SETTLE - TIMED, settling_steps(feed.prefetch))
        self._feed = feed
        self._job = job
        self._record = record
        self._synchronize = synchronize
        self._pages = FilePages(feed.source)
        self._pool = ThreadPool(1, name="fastfeed-proof")
        self._finished: list[Batch] = []  # copies, apart from the feed's buffers
        self._opened = ExitStack()
        self._windows = 0
        # steps of the plan, counted from epoch 0, that the blocks of this round read
        self._window = range(0)

    def clock(self) -> int:
        self._synchronize()
        return self._feed.timeline.clock()

    def counters(self) -> tuple[int, dict[str, int]]:
        totals = self._feed.timeline.totals()
        stages = {stage: ns for stage, (_, ns) in totals.items() if stage != "wait"}
        return self._feed.meter.wait_ns, stages

    def warm_up(self, raw: bool) -> Iterator[Any]:
        """Batches from the feed's beginning on."""
        stream = self._opened.enter_context(closing(self._feed.producer.start(0, 0, None, raw)))
        while True:
            batch: Batch = next(stream)
            if len(self._finished) < self._feed.prefetch + 2:
                self._finished.append(_copied(batch, self._feed.allocate))
            yield batch

    def schedule(self, step_s: float, agree: Agree) -> Schedule:
        job = self._job
        plan = self._feed.plan
        record = self._record
        modes = tuple(mode for mode in job.modes if mode is not Mode.COLD)
        longest = plan.steps - self._margin  # of the longest block that reads no file twice
        problem = ""
        if Mode.COLD in job.modes:
            problem = "it was not asked for"
            if job.cold:  # a few files show if they can be made cold
                found = self._pages.check(self._ids(range(settling_steps(self._feed.prefetch) + 5)))
                problem = found.problem
                record.cold_verified = found.verified
            if not problem:
                modes = (*modes, Mode.COLD)
        limit = longest if Mode.COLD in modes else None
        sizes = choose(job.seconds, step_s, len(modes), self._feed.prefetch, limit)
        # the clock draws another order in each proof: a load may happen to fit one of them
        schedule = agree(Schedule(sizes, modes, problem, self._feed.timeline.clock()))
        if Mode.COLD in schedule.modes and schedule.sizes.block > longest:
            record.notes.append(
                f"an epoch has {plan.steps} steps, too few for a cold block: its files were"
                " read from storage once and then from memory, so fetch is underestimated"
            )
        return schedule

    def begin_round(self, block: int) -> None:
        """Take other steps of the plan for the next blocks, within one epoch if it has enough."""
        length = block + self._margin
        steps = self._feed.plan.steps
        whole = steps // length
        epoch, number = divmod(self._windows, whole) if whole else (0, self._windows)
        first = epoch * steps + number * length
        self._window = range(first, first + length)
        self._windows += 1

    def open(self, mode: Mode, place: PlaceFunction | None, raw: bool) -> Iterator[Any]:
        """Batches of this mode; those of a round read the same files."""
        if mode is Mode.RESIDENT:  # nothing is read, made or copied
            batch = self._finished[0]
            return repeat(batch if place is None else place(batch))
        if mode is Mode.CACHED:
            return self._cached(place)
        feed = self._feed
        ids = self._ids(self._window)
        if mode is Mode.COLD:
            self._pages.drop(ids)
        else:
            self._pages.warm(ids)
        epoch, step = divmod(self._window[0], feed.plan.steps)
        if mode is Mode.BUSY:
            cached = self._cached(place)
            stream = feed.producer.start(epoch, step, None, raw)
            return _busy(cached, self._opened.enter_context(closing(stream)), feed.prefetch)
        self._opened.callback(self._pause)
        batches = feed.cursor.open(epoch, step, place, raw)
        return self._opened.enter_context(closing(batches))

    def end(self) -> None:
        self._opened.close()

    def close(self) -> None:
        self.end()
        self._pool.close()
        self._finished.clear()

    def too_short(self, longest: int, least: int) -> str:
        return (
            f"the trainer ends an epoch after {longest} steps, and a proof needs {least}"
            f" steps in a row here; raise steps_per_epoch to {least}"
        )

    def _cached(self, place: PlaceFunction | None) -> Iterator[Any]:
        """Finished batches, placed by a separate thread as far ahead as the feed works."""
        batches = cycle(self._finished)
        if place is None:
            return batches
        stop = CancelToken(self._pool)
        jobs = (ParallelJob[Any](stop, [], partial(place, batch)) for batch in batches)
        prefetcher = Prefetcher(self._pool, jobs, self._feed.prefetch, stop)
        return self._opened.enter_context(closing(prefetcher))

    def _pause(self) -> None:
        self._feed.meter.pause()
        self._feed.live.paused(self._feed.timeline.clock())

    @property
    def _margin(self) -> int:
        """Steps that a block's feed may read beyond those that the trainer takes."""
        return self._feed.prefetch + 2

    def _ids(self, steps: range) -> np.ndarray:
        """Samples of this rank in these steps."""
        plan = self._feed.plan
        return np.concatenate([plan.ids(*divmod(step, plan.steps)) for step in steps])


def _busy(cached: Iterator[Any], stream: BatchStream, depth: int) -> Iterator[Any]:
    """Cached batches, while the feed makes one per step that no one waits for.

    It never gets further behind than its queue is long, as with a trainer that does wait.
    """
    next(stream)  # starts the threads: it is the only one that waits, and does not count
    owed = 0  # batches that a trainer would have taken
    while True:
        owed = min(owed + 1, depth + 1)
        while owed and stream.ready:
            next(stream)
            owed -= 1
        yield next(cached)


def _copied(batch: Batch, allocate: Allocate) -> Batch:
    """Copy a batch out of the feed's buffers, which are few and needed for real batches."""
    arrays, rebuild = flatten(batch)
    return rebuild(iter([_copy(array, allocate) for array in arrays]))


def _copy(array: Any, allocate: Allocate) -> Any:
    if not isinstance(array, np.ndarray):  # decoded on a GPU
        return array.copy()
    own = allocate(array.shape, array.dtype.name) if array.nbytes else np.empty_like(array)
    own[...] = array
    return own
