"""Mixtures: several sources in one epoch, each with its share and order.

Of every part in Blocks one pass is laid out, so that a batch costs a few look-ups for any number of
parts: units of unequal sizes follow each other in one array, equal ones are computed. A part that
is asked for another pass is laid out again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fastfeed.arguments import check_count
from fastfeed.errors import ConfigError
from fastfeed.sampling.base import MOST_SAMPLES, Epoch, SampleRefs
from fastfeed.sampling.orders.blocks import (
    Blocks,
    EqualUnits,
    ShuffledUnits,
    find_lane,
    storage_bounds,
    windows,
)
from fastfeed.sampling.orders.proportions import Proportions, exact_proportions
from fastfeed.sampling.permute import permute

_AS_STORED, _SHUFFLED, _BLOCKS = range(3)  # how a part is read


@dataclass(frozen=True, slots=True)
class MixturePart:
    """The samples [first, first + length) of a source."""

    first: int
    length: int
    weight: float  # of its share of every batch, in any unit
    order: Literal["full", "none"] | Blocks = "full"

    def __repr__(self) -> str:  # saved states hold this text
        return (
            f"Part(first={self.first!r}, length={self.length!r}, weight={self.weight!r},"
            f" order={self.order!r})"
        )

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ConfigError.of("Part.first", ">= 0", self.first)
        check_count("Part.length", self.length, most=MOST_SAMPLES)
        if not 0 < self.weight < float("inf"):
            raise ConfigError.of(
                "Part.weight", "finite and above 0", self.weight, "leave the part out instead"
            )
        if self.order not in ("full", "none") and not isinstance(self.order, Blocks):
            raise ConfigError.of("Part.order", '"full", "none" or Blocks(...)', self.order)


@dataclass(frozen=True, slots=True)
class MixtureOrder:
    """Parts of a source in fixed proportions, spread evenly over every batch.

    In any range of positions a part has its share, to within four samples; in the range from the
    start of the first epoch, to within two. The samples of a part alternate, also across epochs:
    none comes a second time before all came once. Within such a pass they come in the order of the
    part, which for Blocks means from few shards at a time on every rank. A sample that comes
    several times in an epoch is augmented differently each time.
    """

    open: ClassVar[bool] = False

    parts: tuple[MixturePart, ...]
    length: int | None = None  # positions per epoch; None: as many as the parts have samples
    _parts: _Parts = field(init=False, repr=False, compare=False)

    def __repr__(self) -> str:  # saved states hold this text
        return f"Mixed(parts={self.parts!r}, length={self.length!r})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise ConfigError("Mixed needs at least one part, got none", field="parts")
        if self.length is not None:
            object.__setattr__(
                self, "length", check_count("Mixed.length", self.length, most=MOST_SAMPLES)
            )
        ordered = sorted(self.parts, key=lambda part: part.first)
        for part, following in pairwise(ordered):
            if part.first + part.length > following.first:
                raise ConfigError(
                    f"parts must not overlap, got {part!r} and {following!r}", field="parts"
                )
        object.__setattr__(self, "_parts", _Parts(self.parts))

    def __reduce__(self) -> tuple[Any, ...]:
        return MixtureOrder, (self.parts, self.length)

    def bind(self, source: Any) -> MixtureOrder:
        if not any(map(_needs_units, self.parts)):
            return self
        bounds = storage_bounds(source)
        return replace(self, parts=tuple(_bound(part, bounds) for part in self.parts))

    def positions(self, samples: int) -> int:
        parts = self._parts
        if not parts.checked:
            for part in self.parts:
                if isinstance(part.order, Blocks):
                    part.order.positions(part.length)
            parts.checked = True
        if parts.last > samples:
            part = next(part for part in self.parts if part.first + part.length > samples)
            raise ConfigError(
                f"parts must lie in the source's {samples} samples, got {part!r}", field="parts"
            )
        return parts.total if self.length is None else self.length

    def visits(self, positions: np.ndarray, epoch: Epoch) -> SampleRefs:
        parts = self._parts
        begin = epoch.number * epoch.length  # in the sequence of all epochs
        part_of, number = parts.proportions.assign(begin + positions)
        sizes = parts.sizes[part_of]
        # completed passes through the part, and the index in this pass
        passes, indices = np.divmod(number, sizes)
        kinds = parts.kinds[part_of]
        rows = np.flatnonzero(kinds == _SHUFFLED)
        key = (epoch.seed, PART + part_of[rows], passes[rows], np.zeros_like(rows))
        indices[rows] = permute(indices[rows], sizes[rows], key)
        rows = np.flatnonzero(kinds == _BLOCKS)
        if len(rows):
            slots = Slots(part_of[rows], passes[rows], number[rows], positions[rows])
            indices[rows] = parts.walk(epoch).indices(slots, epoch.number)
        return SampleRefs(parts.firsts[part_of] + indices, passes - parts.completed(begin)[part_of])


class _Parts:
    """The parts as arrays, and the passes through them that are under way."""

    def __init__(self, parts: tuple[MixturePart, ...]) -> None:
        self._parts = parts
        self.proportions = exact_proportions(tuple(float(part.weight) for part in parts))
        self.firsts = np.array([part.first for part in parts])
        self.sizes = np.array([part.length for part in parts])
        self.last = int((self.firsts + self.sizes).max())
        self.total = int(self.sizes.sum())
        self.checked = False  # its Blocks are bound, and fit
        self._walks: dict[tuple[int, int, int], PartPasses] = {}
        self._completed: tuple[int, np.ndarray] = (-1, self.sizes)

    @cached_property  # orders that are not bound to a source have none
    def kinds(self) -> np.ndarray:
        """Kind of order of each part."""
        return np.array([_kind(part) for part in self._parts])

    def walk(self, epoch: Epoch) -> PartPasses:
        """Passes through the parts, cached for one plan."""
        key = epoch.seed, epoch.length, epoch.batch
        walk = self._walks.get(key)
        if walk is None:
            kinds = self.kinds.tolist()
            parts = zip(self._parts, kinds, strict=True)
            blocks = [(p.length, p.order if kind == _BLOCKS else None) for p, kind in parts]
            passes = self.completed(epoch.number * epoch.length)
            walk = PartPasses(self.proportions, blocks, *key, passes)  # type: ignore[arg-type]
            self._walks = {key: walk}  # of one plan at a time
        return walk

    def completed(self, slots: int) -> np.ndarray:
        """The passes through each part that the first `slots` slots complete."""
        known, counts = self._completed
        if known != slots:
            parts = np.arange(len(self.sizes))
            counts = self.proportions.counts(parts, np.full(len(parts), slots)) // self.sizes
            self._completed = slots, counts
        return counts


def _kind(part: MixturePart) -> int:
    if isinstance(part.order, Blocks):  # with all blocks in one window, Blocks are a full shuffle
        return _BLOCKS if part.order.count(part.length) > part.order.window else _SHUFFLED
    return _AS_STORED if part.order == "none" else _SHUFFLED


def _bound(part: MixturePart, bounds: np.ndarray) -> MixturePart:
    """The part with the units of storage in it; a unit that it cuts counts as two."""
    if not _needs_units(part):
        return part
    assert isinstance(part.order, Blocks)
    last = part.first + part.length
    inside = slice(np.searchsorted(bounds, part.first, side="right"), np.searchsorted(bounds, last))
    own = np.concatenate([[0], bounds[inside] - part.first, [part.length]])
    return replace(part, order=part.order.over(own))


def _needs_units(part: MixturePart) -> bool:
    return isinstance(part.order, Blocks) and part.order.block is None


_GROUP = 2**12  # units of several parts that are laid out together
PART = 2**32 + 2  # in keys, in the place of an epoch number, which is smaller


@dataclass(frozen=True, slots=True)
class _RowUnits:
    """The units of any sizes of the part that each row belongs to."""

    edges: np.ndarray  # first offset of each unit of all parts, and the number of offsets
    firsts: np.ndarray  # first id of each in its part
    units_before: np.ndarray  # of earlier parts; this and the next fields are per row
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


class Slots(NamedTuple):
    """Slots of an epoch: int64 (n,) each."""

    part: np.ndarray
    passes: np.ndarray  # completed ones through the part
    number: np.ndarray  # among the part's slots of all epochs
    positions: np.ndarray  # in the epoch


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
        self._equal = np.ones((4, count), np.int64)  # EqualUnits: size, count, missing, short
        for i, order in blocks:
            self._window[i] = order.window
            self._lanes[i] = order.lanes
            self._width[i] = proportions.minimum(i, batch)
            unit = order.block if order.units is None else order.units.size
            if unit is not None:
                units = order.count(self._sizes[i])
                self._equal[:3, i] = unit, units, units * unit - self._sizes[i]
        self._units = np.array([_listed_units(size, order) for size, order in parts], np.int64)
        self._listed = self._units > 0
        self._units_before = np.cumsum(self._units) - self._units
        samples = np.where(self._listed, self._sizes, 0)
        self._samples_before = np.cumsum(samples) - samples
        # ascending from the beginning: a part ends where the next one begins, laid out or not
        self._edges = np.append(np.repeat(self._samples_before, self._units), samples.sum())
        self._firsts = np.empty(len(self._edges) - 1, np.int64)
        self._pass = np.full(count, -1)  # that is laid out
        self._begin = np.zeros(count, np.int64)
        self._count = np.zeros(count, np.int64)
        self._lock = threading.Lock()
        first = np.array([i for i, _ in blocks])
        self._lay_out(first, passes[first])

    def indices(self, slots: Slots, epoch: int) -> np.ndarray:
        """Ids in the part of each slot: int64 (n,)."""
        part = slots.part
        passes = slots.passes
        found = np.empty(len(part), np.int64)
        lowest = np.full(len(self._parts), np.iinfo(np.int64).max)
        np.minimum.at(lowest, part, passes)
        turns = passes - lowest[part]
        by_part = np.argsort(part)  # look-ups that are near each other take half the time
        for turn in np.unique(turns):  # of every part one pass
            rows = by_part[turns[by_part] == turn]
            with self._lock:
                self._lay_out(part[rows], passes[rows])
                for listed in (True, False):
                    own = rows[self._listed[part[rows]] == listed]
                    if len(own):
                        of_own = Slots(*(array[own] for array in slots))
                        found[own] = self._within(listed, of_own, epoch)
        return found

    def _within(self, listed: bool, slots: Slots, epoch: int) -> np.ndarray:
        part = slots.part
        passes = slots.passes
        key = self._seed, PART + part, passes
        if listed:
            before = self._units_before[part], self._samples_before[part]
            layout: ShuffledUnits = _RowUnits(self._edges, self._firsts, *before, self._units[part])
        else:
            layout = EqualUnits(*self._equal[:, part], key)  # type: ignore  # of arrays
        offsets, first, last, lane = self._offsets(slots, epoch)
        start, size, label = windows(layout, offsets, first, last, lane, self._window[part])
        return layout.ids(start + permute(offsets - start, size, (*key, label)))

    def _offsets(self, slots: Slots, epoch: int) -> tuple[np.ndarray, ...]:
        """Offsets in the passes, the first and last offsets of their lanes, and the lanes' numbers.

        Every step has at least `width` slots of a part, in nearly the same rows of the global
        batch, so each of these has a lane. All further samples, and the steps in which a pass
        begins or ends, are one more lane.
        """
        part, passes, number, positions = slots
        width = self._width[part]
        count = self._count[part]
        size = self._sizes[part]
        lanes = np.minimum(self._lanes[part], width)
        step = positions // self._batch
        before_step = self._proportions.counts(part, epoch * self._length + step * self._batch)
        row = number - before_step  # among the part's slots of this step
        # complete steps of the pass before this one
        done = epoch * self._steps + step - self._begin[part]
        is_complete = (step < self._steps) & (done >= 0) & (done < count)
        in_lane = is_complete & (row < width)
        lane, edge, share = find_lane(
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
        listed = self._listed[changed]
        self._lay_out_equal(changed[~listed], wanted[~listed])
        self._lay_out_listed(changed[listed], wanted[listed])
        self._pass[changed] = wanted

    def _lay_out_equal(self, part: np.ndarray, passes: np.ndarray) -> None:
        """Find which unit of each pass is the one that may be short."""
        count = self._equal[1, part]
        key = self._seed, PART + part, passes, np.ones_like(part)
        self._equal[3, part] = permute(count - 1, count, key, inverse=True)

    def _lay_out_listed(self, part: np.ndarray, passes: np.ndarray) -> None:
        """Permute the units of each pass, in groups of parts: keys take 64 bytes per unit."""
        groups = np.cumsum(self._units[part]) // _GROUP
        for group in np.unique(groups):
            self._lay_out_group(part[groups == group], passes[groups == group])

    def _lay_out_group(self, part: np.ndarray, passes: np.ndarray) -> None:
        count = self._units[part]
        size = self._sizes[part]
        units_before = np.cumsum(count) - count  # in this group
        samples_before = np.cumsum(size) - size
        # the part of each unit; of a single part one entry stands for all
        row = np.repeat(np.arange(len(part)), count if len(part) > 1 else 1)
        number = np.arange(count.sum()) - units_before[row]
        key = self._seed, PART + part[row], passes[row], np.ones_like(row)
        bounds = np.concatenate([self._parts[i][1].units.bounds for i in part.tolist()])  # type: ignore[union-attr]
        units = permute(number, count[row], key) + units_before[row] + row
        firsts = bounds[units]
        lengths = bounds[units + 1] - firsts
        own = number + self._units_before[part][row]
        moved = self._samples_before[part] - samples_before
        self._edges[own] = np.cumsum(lengths) - lengths + moved[row]
        self._firsts[own] = firsts

    def _whole_steps(self, part: np.ndarray, passes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First step within this pass through a part, over all epochs, and number of such steps."""
        if not self._steps:
            return np.zeros_like(part), np.zeros_like(part)
        # the first step before which a part has had `reached` samples, and the first whose samples
        # reach beyond the pass
        reached = self._sizes[part] * np.stack([passes, passes + 1]) + [[0], [1]]
        more = np.array([[0], [self._batch]])
        share = self._proportions.shares[part]
        slots = reached / share - more
        error = 3 / share + slots * 1e-12  # a part is less than two slots off its share
        low = np.maximum(self._step_at(slots - error) - 1, 0)
        high = self._step_at(slots + error) + 2
        while (low < high).any():
            middle = (low + high) // 2
            epoch, step = np.divmod(middle, self._steps)
            slots = epoch * self._length + step * self._batch + more
            enough = self._proportions.counts(part, slots) >= reached
            low = np.where(enough, low, middle + 1)
            high = np.where(enough, middle, high)
        begin, end = high
        return begin, np.maximum(end - begin, 0)

    def _step_at(self, slots: np.ndarray) -> np.ndarray:
        """The step that each slot belongs to, over all epochs; after the last one, the next."""
        epoch, slot = np.divmod(slots.astype(np.int64), self._length)
        return epoch * self._steps + np.minimum(slot // self._batch, self._steps)


def _listed_units(size: int, order: Blocks | None) -> int:
    """Number of units of a part of this length; 0 if they are equal, and so need no list."""
    is_listed = order is not None and order.units is not None and order.units.size is None
    return order.count(size) if is_listed else 0  # type: ignore[union-attr]
