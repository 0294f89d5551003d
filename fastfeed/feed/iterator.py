"""Batches in order from any position, and the position of a feed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from fastfeed.distributed.rank_agreement import check_process_groups
from fastfeed.errors import ConfigError, FastfeedError, FeedClosed, SampleError
from fastfeed.feed.producer import BatchStream, PlaceFunction, Producer
from fastfeed.live.meter import Meter
from fastfeed.live.status import LiveStatus
from fastfeed.runtime.thread_pool import LockedIterator
from fastfeed.runtime.timeline import Span, Timeline
from fastfeed.sampling.plan import Plan

T = TypeVar("T")


@dataclass(eq=False, repr=False)
class BatchIterator(Generic[T]):
    """An iterator of batches, or of the results of a place function.

    Several threads may take from it.
    """

    _stream: BatchStream
    # the stream yields (ids, what a place function made of the batch), else batches
    _placed: bool
    _plan: Plan
    _meter: Meter
    _timeline: Timeline
    _status: LiveStatus
    position: tuple[int, int]  # (epoch, step) of the next batch

    def __post_init__(self) -> None:
        self._lockstep = Lockstep(self._plan)
        self._number = 0
        self._lock = threading.Lock()  # of `__next__`

    def __iter__(self) -> BatchIterator[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            return self._next()

    def _next(self) -> T:
        clock = self._timeline.clock
        requested = clock()
        ready = self._stream.ready
        leads = self._status.is_led_by(self)
        self._meter.record_request(requested, ready)
        self._status.requested(requested, ready, leads)
        try:
            batch = next(self._stream)
            ids, batch = batch if self._placed else (batch.ids, batch)
            self._lockstep.delivered(self.position, ids)
        # Ctrl-C too: whatever ended it, no batch is waited for now; raised again
        except BaseException as error:
            is_end = isinstance(error, (StopIteration, FeedClosed))
            failed = isinstance(error, Exception) and not is_end
            if leads:
                self._status.paused(clock(), failed)
            raise
        now = clock()
        self._meter.record_delivery(requested, now, len(ids))
        self._timeline.record(Span("wait", self._number, requested, now, threading.get_native_id()))
        self._number += 1
        epoch, step = self.position
        self.position = (epoch, step + 1) if step + 1 < self._plan.steps else (epoch + 1, 0)
        if leads:
            self._status.delivered(now, self.position)
        return batch

    @property
    def closed(self) -> bool:
        """True once no more batches will come."""
        return self._stream.closed

    def close(self) -> None:
        """Stop making batches and end the iteration."""
        self._lockstep.end()
        self._stream.close()


@dataclass(eq=False, repr=False)
class Cursor:
    """The position of a feed.

    One iteration at a time moves it; it draws from one batch iterator, also across epochs.
    """

    _producer: Producer
    _plan: Plan
    _meter: Meter
    _timeline: Timeline
    _status: LiveStatus
    _after_epoch: Callable[[], None]  # called when an iteration has come to its epoch's end
    position: tuple[int, int] = (0, 0)  # (epoch, step) of the next batch
    moves: int = 0  # calls of `seek`
    error: FastfeedError | None = None  # that ended an iteration
    _inside_epoch: bool = False  # the last iteration ended before its epoch did
    _owner: object = None  # the iteration that may draw from the batch iterator
    _iterator: BatchIterator[Any] | None = None
    _options: tuple[PlaceFunction | None, bool] = (None, False)  # place and raw, of that iterator

    def open(
        self,
        epoch: int,
        start: int,
        place: PlaceFunction | None = None,
        raw: bool = False,
        epochs: int | None = None,
    ) -> BatchIterator[Any]:
        """Open batches from any position, counted and recorded; this cursor keeps its position."""
        if epochs is not None and epochs < 0:
            raise ConfigError.of("epochs", ">= 0, or None for no end", epochs)
        if epoch < 0 or not 0 <= start < self._plan.steps:
            raise ConfigError(
                f"start must be in [0, {self._plan.steps}) and epoch >= 0, got start={start},"
                f" epoch={epoch}; this feed has {self._plan.steps} steps per epoch",
                field="start",
            )
        check_process_groups(self._plan.world)
        placing = None if place is None else lambda batch: (batch.ids, place(batch))
        stream = self._producer.start(epoch, start, placing, raw, epochs)
        return BatchIterator(
            stream,
            place is not None,
            self._plan,
            self._meter,
            self._timeline,
            self._status,
            (epoch, start),
        )

    def iterate(self, place: PlaceFunction | None, raw: bool) -> LockedIterator[Any]:
        """The rest of this epoch, or the next epoch if the last iteration ended within one.

        After an error of the feed the next iteration continues where it was raised. Several threads
        may take from the result: each batch is given to one of them.
        """
        return LockedIterator(self._iterate(place, raw), self.close)

    def _iterate(self, place: PlaceFunction | None, raw: bool) -> Generator[Any, None, None]:
        if self._inside_epoch:
            self.position = (self.next_epoch, 0)
            self._inside_epoch = False
        owner = self._owner = object()
        epoch = self.position[0]
        iterator = self._continue(place, raw)
        more = True
        while more:
            # the position does not tell: it belongs to the other iteration now
            if self._owner is not owner:
                raise FeedClosed(
                    "another iteration of this feed has begun, or seek() moved it; "
                    "for two at once use feed.batches(epoch)"
                )
            try:
                batch = next(iterator)
            # the next iteration continues at `position`, with the batch that failed
            except BaseException as error:
                self._inside_epoch = False
                if isinstance(error, FastfeedError):
                    self.error = error
                raise
            self.position = iterator.position
            self._inside_epoch = more = self.position[0] == epoch
            yield batch
        self.epoch_ended()
        self._after_epoch()

    def _continue(self, place: PlaceFunction | None, raw: bool) -> BatchIterator[Any]:
        """The last batch iterator if it is at this position with the same options, or a new one."""
        iterator = self._iterator
        stands_here = (
            iterator is not None and not iterator.closed and iterator.position == self.position
        )
        if iterator is None or not stands_here or self._options != (place, raw):
            self.close()
            self._iterator = iterator = self.open(*self.position, place, raw)
            self._options = (place, raw)
            self._status.set_leader(iterator)
        self._meter.pause()
        return iterator

    @property
    def next_epoch(self) -> int:
        """Epoch of the next iteration: the one after an epoch that was left early."""
        return self.position[0] + self._inside_epoch

    def epoch_ended(self) -> None:
        """Count the time of the last batch as the consumer's."""
        now = self._timeline.clock()
        self._meter.record_request(now, 0)
        self._status.paused(now)

    def seek(self, epoch: int, step: int) -> None:
        """Let the next iteration begin here."""
        self.open(epoch, step, epochs=1).close()  # checks the arguments
        self.advance(epoch, step)
        self.moves += 1

    def advance(self, epoch: int, step: int) -> None:
        """Move as `seek` does, not counted as a move by the user."""
        self.position = (epoch, step)
        self._inside_epoch = False
        self._owner = None

    def use_plan(self, plan: Plan) -> None:
        """Take later batches from another plan of the same length."""
        self.close()
        self._plan = plan

    def close(self) -> None:
        """Close the iterator of batches, if one is open."""
        if self._iterator is not None:
            self._iterator.close()


_LOCK = threading.Lock()  # of the set


# references instead of a WeakSet, which takes seven calls per batch to iterate
_LIVE: set[weakref.ref[Lockstep]] = set()


Position = tuple[int, int]  # epoch, step


class Lockstep:
    """Position of one iteration, and the iterations that were at the same step."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._key = (plan.samples, plan.global_batch, plan.seed, plan.tail, plan.mixed, plan.world)
        self._position: Position | None = None  # of the last batch that was delivered
        self._ids = np.empty(0, np.int64)
        self._alongside: Collection[Lockstep] = ()
        self._reference: weakref.ref[Lockstep] = weakref.ref(self, _LIVE.discard)
        with _LOCK:
            _LIVE.add(self._reference)

    def delivered(self, position: Position, ids: np.ndarray) -> None:
        """Note a batch that is about to be delivered.

        Raises:
            SampleError: If an iteration that is taken from in turn with this one has delivered
                other samples for the same step of the same order.
        """
        with _LOCK:
            held = [reference() for reference in _LIVE.copy()]
        same = [
            other
            for other in held
            if other is not None and other._key == self._key and other._position == position
        ]
        first = self._position is None
        before = self._alongside
        self._position = position
        self._ids = ids
        self._alongside = weakref.WeakSet(same) if same else ()
        for other in same:
            if other is not self and (first or other in before):
                self._compare(other, position)

    def end(self) -> None:
        """Stop comparing this iteration with others."""
        with _LOCK:
            _LIVE.discard(self._reference)

    def _compare(self, other: Lockstep, position: Position) -> None:
        if np.array_equal(self._ids, other._ids) or not np.array_equal(
            self._plan.ids(*position), other._plan.ids(*position)
        ):
            return
        row = int((self._ids != other._ids).argmax())
        (epoch, step) = position
        raise SampleError(
            f"feeds of one order that are iterated together differ at epoch {epoch}, step {step}:"
            f" row {row} is sample {self._ids[row]} here and {other._ids[row]} there, since a bad"
            ' sample was replaced in one of them; pass on_bad="mask" to both and multiply their'
            " weights, so that pairs stay together. Feeds that are not pairs take different seeds"
        )
