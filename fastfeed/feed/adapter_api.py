"""What adapters ask a feed for, beyond its batches."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fastfeed.feed.explain import placed_text
from fastfeed.gpu_support import gpu_note
from fastfeed.runtime.buffers import Allocate, aligned
from fastfeed.sources.base import Optionals

if TYPE_CHECKING:
    from fastfeed.errors import FastfeedError
    from fastfeed.feed.faults.quarantine import Quarantine
    from fastfeed.feed.iterator import BatchIterator, Cursor
    from fastfeed.feed.producer import BatchStream, PlaceFunction, Producer
    from fastfeed.live.meter import Meter
    from fastfeed.ops.program.program import Program
    from fastfeed.runtime.placement import Placement
    from fastfeed.runtime.thread_pool import LockedIterator
    from fastfeed.runtime.timeline import Timeline
    from fastfeed.sampling.plan import Plan
    from fastfeed.sources.base import Source

__all__ = ["PROVE", "ForAdapters"]

PROVE = "FASTFEED_PROVE"  # the job of `fastfeed prove`, which runs this trainer


class ForAdapters:
    """The part of a feed that adapters use."""

    source: Source
    plan: Plan
    program: Program
    prefetch: int
    notes: list[str]
    _cursor: Cursor
    _producer: Producer
    _quarantine: Quarantine
    _timeline: Timeline
    _meter: Meter
    _drawn_by_weight: bool
    _backend_name: str
    proof: Any = None  # the session of a proof that measures this feed's trainer
    _allocate: Allocate = staticmethod(aligned)

    def placed(self, place: PlaceFunction | None, raw: bool = False) -> LockedIterator[Any]:
        """Iterate one epoch, with each batch passed to a function by the thread that finished it,
        ahead of its turn.

        Args:
            place (Callable[[Batch], Any] | None): Its result is yielded at the batch's turn, an
                exception from it raised then; None yields the batches.
            raw (bool): Images are uint8 HWC, and the caller still has to apply `program.convert`.
                Default: False.

        Returns:
            An iterator that threads may share.

        Example:
            >>> feed = ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [], batch=2)
            >>> list(feed.placed(lambda batch: batch.images.nbytes))
            [384, 384]
        """
        if self.is_proving:
            return self._proven(place, raw, lambda: self._cursor.iterate(place, raw))
        return self._cursor.iterate(place, raw)

    def _proven(
        self, place: PlaceFunction | None, raw: bool, unproven: Callable[[], Any]
    ) -> LockedIterator[Any]:
        """What the proof gives instead; `unproven` begins the iteration if another feed is
        measured.
        """
        return importlib.import_module("fastfeed.proof.run.trainer").iterate(
            self, place, raw, unproven
        )

    @property
    def is_proving(self) -> bool:
        """Training is only measured: what it learns is meaningless and must not be saved."""
        return self.proof is not None or bool(os.environ.get(PROVE))

    def open_batches(
        self, epoch: int, step: int, place: PlaceFunction | None, raw: bool
    ) -> BatchIterator[Any]:
        """Endless batches from a position, counted and recorded; this feed's own position does not
        change.

        Args:
            epoch (int): Counts from 0.
            step (int): Within the epoch.
            place (Callable[[Batch], Any] | None): As in `placed`.
            raw (bool): As in `placed`.

        Returns:
            An iterator of batches.

        Example:
            >>> feed = ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [], batch=2)
            >>> next(feed.open_batches(3, 1, None, False)).epoch
            3
        """
        return self._cursor.open(epoch, step, None, place, raw)

    def start_batches(
        self, epoch: int, step: int, place: PlaceFunction | None, raw: bool
    ) -> BatchStream:
        """Like open_batches, but not counted in the statistics.

        Args:
            epoch (int): Counts from 0.
            step (int): Within the epoch.
            place (Callable[[Batch], Any] | None): As in `placed`.
            raw (bool): As in `placed`.

        Returns:
            A stream of batches.

        Example:
            >>> feed = ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [], batch=2)
            >>> next(feed.start_batches(3, 1, None, False)).step
            1
        """
        return self._producer.start(epoch, step, None, place, raw)

    @property
    def allocate(self) -> Allocate:
        """Allocates memory that is fast to copy to the device."""
        return self._allocate

    @property
    def meter(self) -> Meter:
        """The counters behind `stats`."""
        return self._meter

    def epoch_ended(self) -> None:
        """The epoch is complete: for trainers that count steps and so never iterate past the last
        batch.

        Example:
            >>> feed = ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [], batch=2)
            >>> batches = iter(feed)
            >>> _ = next(batches), next(batches)
            >>> feed.epoch_ended()
        """
        self._cursor.epoch_ended()

    def advance(self, epoch: int, step: int) -> None:
        """Begin the next iteration here if that is ahead of this feed's position, unless seek() or
        restore() set it.

        Args:
            epoch (int): Counts from 0.
            step (int): Within the epoch.

        Example:
            >>> feed = ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [], batch=2)
            >>> feed.advance(3, 0)
            >>> next(iter(feed)).epoch
            3
        """
        if not self.moves and self._cursor.position < (epoch, step):
            self._cursor.advance(epoch, step)

    @property
    def error(self) -> FastfeedError | None:
        """The error that ended an iteration; TensorFlow replaces it with an error of its own."""
        return self._cursor.error

    @property
    def moves(self) -> int:
        """How often seek() or restore() has moved this feed."""
        return self._cursor.moves

    @property
    def partial(self) -> bool:
        """Whether the last batch ends in padding that no other rank needs; adapters cut it off."""
        return (
            self.plan.tail == "pad"
            and self.plan.world.size == 1
            and self.plan.length % self.plan.batch != 0
        )

    @property
    def weighted(self) -> bool:
        """Whether weights of samples may differ from 1: masked samples, weights of the source."""
        if self._quarantine.policy.action == "mask":
            return True
        return (
            not self._drawn_by_weight
            and Optionals(self.source).weights(np.empty(0, np.int64)) is not None
        )

    @property
    def timeline(self) -> Timeline:
        """Spans of every stage."""
        return self._timeline

    @property
    def converts(self) -> bool:
        """Whether images are converted after decoding and a device may do that instead."""
        one_array = not self.program.others  # devices convert one array
        return one_array and self.program.raw() != self.program and self._backend_name == "cpu"

    def place_on(self, placement: Placement, raw: bool = False) -> None:
        """Make batches in memory that is fast to copy to a device, and report it in `explain`.

        Args:
            placement (Placement): The device, as an adapter describes it.
            raw (bool): As in `placed`. Default: False.

        Example:
            >>> feed = ff.Feed(ff.Arrays(np.zeros((4, 8, 8, 3), np.uint8)), [], batch=2)
            >>> feed.place_on(placement)  # doctest: +SKIP
        """
        self._producer.use_memory(placement.memory)
        self._allocate = placement.memory
        self.notes = [line for line in self.notes if not line.startswith("placed on ")]
        name = placement.name
        if placement.accelerator:  # it begins with its framework
            name = gpu_note(name, name.split()[0].lower())
        self.notes.append(
            placed_text(name, self.source, self.plan, self.program, self.prefetch + 2, raw)
        )
