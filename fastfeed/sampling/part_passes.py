"""Passes through parts of a mixture that are read in Blocks, for all parts at once.

Of every part one pass is laid out, so that a batch costs a few look-ups however many parts there
are: units of unequal sizes stand end to end in one array, equal ones are computed. A part that is
asked for another pass is laid out again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastfeed.sampling.blocks import Blocks
from fastfeed.sampling.permute import permute
from fastfeed.sampling.proportions import Proportions
from fastfeed.sampling.shard_layout import EqualUnits, ShuffledUnits, equal_units, lane_of, windows

__all__ = ["PART", "PartPasses"]

PART = 2**32 + 2  # in keys, in the place of an epoch number, which is smaller


@dataclass(frozen=True, slots=True)
class _RowUnits:
    """The units of any sizes of the part that each row belongs to."""

    edges: np.ndarray  # first offset of each unit of all parts, and the number of offsets
    firsts: np.ndarray  # first id of each in its part
    units_before: np.ndarray  # of earlier parts; this and what follows per row
    samples_before: np.ndarray
    count: np.ndarray  # units of the part

    def units(self, offsets: np.ndarray) -> np.ndarray:
        return (
            np.searchsorted(self.edges, offsets + self.samples_before, side="right")
            - 1
            - self.units_before
        )

    def starts(self, units: np.ndarray) -> np.ndarray:
        units = np.minimum(np.maximum(units, 0), self.count)
        return self.edges[units + self.units_before] - self.samples_before

    def ids(self, offsets: np.ndarray) -> np.ndarray:
        offsets = offsets + self.samples_before
        units = np.searchsorted(self.edges, offsets, side="right") - 1
        return self.firsts[units] + offsets - self.edges[units]


class PartPasses:
    """Passes for one mixture, seed, epoch length and batch. Thread-safe."""

    def __init__(
        self,
        proportions: Proportions,
        parts: Sequence[tuple[int, Blocks | None]],  # its length; None: not in Blocks
        seed: int,
        length: int,
        batch: int,
        # of each part, to be laid out first: all at once cost less than one by one
        passes: np.ndarray,
    ) -> None:
        self._proportions = proportions
        self._parts = parts
        self._seed = seed
        self._batch = batch
        self._length = length
        self._steps = length // batch
        blocks = [(i, order) for i, (_, order) in enumerate(parts) if order is not None]
        count = len(parts)
        self._sizes = np.array([size for size, _ in parts])
        self._window, self._lanes, self._width = (np.ones(count, np.int64) for _ in range(3))
        for i, order in blocks:
            self._window[i] = order.window
            self._lanes[i] = order.lanes
            self._width[i] = proportions.minimum(i, batch)
        self._units = np.array([_listed_units(size, order) for size, order in parts], np.int64)
        self._listed = self._units > 0
        self._units_before = np.cumsum(self._units) - self._units
        samples = np.where(self._listed, self._sizes, 0)
        self._samples_before = np.cumsum(samples) - samples
        # ascending from the beginning: a part ends where the next one begins, laid out or not
        self._edges = np.append(np.repeat(self._samples_before, self._units), samples.sum())
        self._firsts = np.empty(len(self._edges) - 1, np.int64)
        self._equal = np.ones((4, count), np.int64)  # EqualUnits: size, count, missing, short
        self._pass = np.full(count, -1)  # that is laid out
        self._begin = np.zeros(count, np.int64)
        self._count = np.zeros(count, np.int64)
        self._lock = threading.Lock()
        first = np.array([i for i, _ in blocks])
        self._lay_out(first, passes[first])

    def indices(
        self,
        part: np.ndarray,
        passes: np.ndarray,
        number: np.ndarray,
        positions: np.ndarray,
        epoch: int,
    ) -> np.ndarray:
        """Ids in the part: int64 (n,).

        part, passes, number: of each row the part, the pass through it, and which of the part's
        slots of all epochs it is; positions: in the epoch.
        """
        found = np.empty(len(part), np.int64)
        lowest = np.full(len(self._parts), np.iinfo(np.int64).max)
        np.minimum.at(lowest, part, passes)
        turns = passes - lowest[part]
        for turn in np.unique(turns):  # of every part one pass
            rows = np.flatnonzero(turns == turn)
            with self._lock:
                self._lay_out(part[rows], passes[rows])
                for listed in (True, False):
                    own = rows[self._listed[part[rows]] == listed]
                    if len(own):
                        found[own] = self._within(
                            listed, part[own], passes[own], number[own], positions[own], epoch
                        )
        return found

    def _within(
        self,
        listed: bool,
        part: np.ndarray,
        passes: np.ndarray,
        number: np.ndarray,
        positions: np.ndarray,
        epoch: int,
    ) -> np.ndarray:
        key = self._seed, PART + part, passes
        if listed:
            before = self._units_before[part], self._samples_before[part]
            layout: ShuffledUnits = _RowUnits(self._edges, self._firsts, *before, self._units[part])
        else:
            layout = EqualUnits(*self._equal[:, part], key)  # type: ignore  # of arrays
        offsets, first, last, lane = self._offsets(part, passes, number, positions, epoch)
        start, size, label = windows(layout, offsets, first, last, lane, self._window[part])
        return layout.ids(start + permute(offsets - start, size, (*key, label)))

    def _offsets(
        self,
        part: np.ndarray,
        passes: np.ndarray,
        number: np.ndarray,
        positions: np.ndarray,
        epoch: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Offsets in the passes, the first and last offsets of their lanes, and the lanes' numbers.

        Every step has at least `width` slots of a part, in nearly the same rows of the global
        batch, so each of these has a lane. All further samples, and the steps in which a pass
        begins or ends, are one more lane.
        """
        width, count, size = self._width[part], self._count[part], self._sizes[part]
        lanes = np.minimum(self._lanes[part], width)
        step = positions // self._batch
        before_step = self._proportions.counts(part, epoch * self._length + step * self._batch)
        row = number - before_step  # among the part's slots of this step
        # complete steps of the pass before this one
        done = epoch * self._steps + step - self._begin[part]
        is_complete = (step < self._steps) & (done >= 0) & (done < count)
        in_lane = is_complete & (row < width)
        lane, edge, share = lane_of(
            np.minimum(row, width - 1), np.maximum(width, 1), np.maximum(lanes, 1)
        )
        first = count * np.where(in_lane, edge, width)
        last = np.where(in_lane, first + count * share, size)
        # earlier samples of lanes
        in_lanes = np.minimum(np.maximum(done + is_complete, 0), count) * width
        offsets = first + np.where(
            in_lane, done * share + row - edge, number - passes * size - in_lanes
        )
        return offsets, first, last, np.where(in_lane, lane, lanes)

    def _lay_out(self, part: np.ndarray, passes: np.ndarray) -> None:
        """Lay out these passes, one per part, where others are."""
        other = self._pass[part] != passes
        if not other.any():
            return
        changed, at = np.unique(part[other], return_index=True)
        wanted = passes[other][at]
        self._begin[changed], self._count[changed] = self._whole_steps(changed, wanted)
        for i, number in zip(changed.tolist(), wanted.tolist(), strict=True):
            size, order = self._parts[i]
            assert order is not None
            key = self._seed, PART + i, number
            unit = order.block if order.units is None else order.units.size
            if unit is not None:
                units = equal_units(size, unit, key)
                self._equal[:, i] = units.size, units.count, units.missing, units.short
                continue
            assert order.units is not None
            layout = order.units.listed(key)
            own = slice(int(self._units_before[i]), int(self._units_before[i] + self._units[i]))
            self._edges[own] = layout.edges[:-1] + self._samples_before[i]
            self._firsts[own] = layout.firsts
        self._pass[changed] = wanted

    def _whole_steps(self, part: np.ndarray, passes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First step within this pass through a part, over all epochs, and number of such steps."""
        if not self._steps:
            return np.zeros_like(part), np.zeros_like(part)
        size = self._sizes[part]
        reach = ((passes + 1) * size + 4) / (self._proportions.shares[part] * self._batch)
        high = reach.astype(np.int64) + 3

        def first(reached: np.ndarray, more: int) -> np.ndarray:
            """First step before whose position `more` a part has had `reached` samples."""
            low, above = np.zeros_like(part), high.copy()
            for _ in range(int(high.max()).bit_length()):
                middle = (low + above) // 2
                slots = (
                    middle // self._steps * self._length + middle % self._steps * self._batch + more
                )
                enough = self._proportions.counts(part, slots) >= reached
                low, above = np.where(enough, low, middle + 1), np.where(enough, middle, above)
                low = np.minimum(low, above)
            return above

        begin = first(passes * size, 0)
        return begin, np.maximum(first((passes + 1) * size + 1, self._batch) - begin, 0)


def _listed_units(size: int, order: Blocks | None) -> int:
    """Number of units of a part of this length; 0 if they are equal, and so need no list."""
    is_listed = order is not None and order.units is not None and order.units.size is None
    return order.count(size) if is_listed else 0  # type: ignore[union-attr]
