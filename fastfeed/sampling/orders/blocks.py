"""Blocks: an order for storage with cheap sequential reads.

Units of storage are permuted and concatenated; an offset is a sample's index in that sequence. Keys
name permutations (`permute`): with 1 appended that of the units, with 2 and more those inside
windows (`windows`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.sampling.base import Epoch, Recent, SampleRefs, set_count
from fastfeed.sampling.permute import permute


@checked
@dataclass(frozen=True, slots=True)
class Blocks:
    """Every sample once, from few shards at a time: for storage with fast sequential reads.

    The shards of an epoch are laid end to end in random order and cut into lanes of equal length. A
    lane fills the same rows of every global batch, from `window` open shards, whose samples come in
    random order. A rank reads the lanes of its rows, so each of R ranks has about window * max(1,
    lanes / R) shards open, and all ranks together have the same ones open at every R. With fewer
    lanes than ranks, several ranks read a shard. Ops that mix samples (MixUp, CutMix, Mosaic)
    shuffle the rows of a global batch, and every rank then reads from the shards of all lanes.

    It mixes like a shuffle buffer of window * lanes shards: batches near in time come from the same
    shards, and which shards are combined changes every epoch. With the defaults, a batch of 256 has
    samples of about 160 of 640 shards; with shuffle="full" it has about 210. `lanes=1` reads one
    window after another on all ranks.

    Args:
        block (int | None): Consecutive samples that are read together, at least 1. Default: None,
            the source's own shards or row groups.
        window (int): Shards that a lane has open, at least 1. Default: 4.
        lanes (int): Lanes that are read at the same time, at least 1; at most one per row of the
            global batch is used. Default: 64.
        units (Units | None): Shards of the source, set by `bind`; not for callers. Default: None.

    Raises:
        ConfigError: If a field is not an integer >= 1.

    Example:
        >>> order = ff.Blocks(block=2, window=1, lanes=1)
        >>> order.count(samples=6)
        3
        >>> ff.Plan(6, 2, shuffle=order).ids(epoch=0, step=0)  # one block
        array([2, 3])
    """

    open: ClassVar[bool] = False
    once: ClassVar[bool] = True

    block: int | None = None
    window: int = 4
    lanes: int = 64
    units: Units | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("block", "window", "lanes"):
            set_count(self, name)

    def bind(self, source: Any) -> Blocks:
        return self if self.block is not None else self.over(storage_bounds(source))

    def over(self, bounds: np.ndarray) -> Blocks:
        """Return this order with these units of storage.

        Args:
            bounds (np.ndarray): First id of each unit, and the number of samples last: int64,
                strictly ascending.

        Returns:
            Blocks of these units.

        Example:
            >>> ff.Blocks().over(np.array([0, 100, 250])).count(250)
            2
        """
        return replace(self, units=Units(bounds))

    def positions(self, samples: int) -> int:
        if self.block is None and self.units is None:
            raise ConfigError(
                "Blocks() takes its blocks from the shards of a source and is not bound to one;"
                " create a Feed with it, call its bind(source), or say how many samples lie"
                " together, as in Blocks(1024)"
            )
        if self.block is None and self.units is not None and self.units.bounds[-1] != samples:
            raise ConfigError(
                f"these Blocks belong to a source of {self.units.bounds[-1]} samples, got a source"
                f" of {samples}; bind Blocks() to it"
            )
        return samples

    def count(self, samples: int) -> int:
        """Number of blocks.

        Args:
            samples (int): Samples in the source.

        Returns:
            Blocks; the last one may be shorter.
        """
        if self.units is not None:
            return len(self.units.bounds) - 1
        assert self.block is not None  # positions() has checked that
        return -(-samples // self.block)

    def layout(self, samples: int, key: tuple[int, ...]) -> ShuffledUnits:
        """The blocks of one epoch, end to end in random order.

        Args:
            samples (int): Samples in the source.
            key (tuple[int, ...]): What the order of blocks is drawn from.

        Returns:
            The units in their order, which maps offsets to sample ids.

        Example:
            >>> ff.Blocks(block=2).layout(6, (0, 0)).ids(np.arange(6))
            array([2, 3, 4, 5, 0, 1])
        """
        if self.units is not None:
            return self.units.shuffled(key)
        assert self.block is not None  # positions() has checked that
        return equal_units(samples, self.block, key)

    def visits(self, positions: np.ndarray, epoch: Epoch) -> SampleRefs:
        key = (epoch.seed, epoch.number)
        layout = self.layout(epoch.samples, key)
        steps = epoch.samples // epoch.batch
        lanes = min(self.lanes, epoch.batch)
        step, row = np.divmod(positions, epoch.batch)
        rest = step == steps  # after the last complete step; the last lane continues there
        lane, begin, width = find_lane(np.where(rest, epoch.batch - 1, row), epoch.batch, lanes)
        first = steps * begin
        last = np.where(lane == lanes - 1, epoch.samples, first + steps * width)
        offsets = first + step * width + np.where(rest, row, row - begin)
        start, size, label = windows(layout, offsets, first, last, lane, self.window)
        return SampleRefs.once(layout.ids(start + permute(offsets - start, size, (*key, label))))


_CACHED = 4  # permutations


class ShuffledUnits(Protocol):
    """Permuted units, which map each offset to a sample."""

    def units(self, offsets: np.ndarray) -> np.ndarray:
        """The unit at each offset, as its number in the sequence: int64."""
        ...

    def starts(self, units: np.ndarray) -> np.ndarray:
        """First offset of each unit of the sequence; numbers are clipped: int64."""
        ...

    def ids(self, offsets: np.ndarray) -> np.ndarray:
        """The sample at each offset: int64."""
        ...


@dataclass(frozen=True, slots=True)
class EqualUnits:
    """Units of one size, the last of which may be shorter. Computed: it takes no memory."""

    size: int
    count: int
    missing: int  # samples the last unit is short of
    short: int  # its number in the sequence; all later offsets are shifted by its missing samples
    key: tuple[int, ...]

    def units(self, offsets: np.ndarray) -> np.ndarray:
        return self._spread(offsets) // self.size

    def starts(self, units: np.ndarray) -> np.ndarray:
        units = np.minimum(np.maximum(units, 0), self.count)
        return units * self.size - np.where(units > self.short, self.missing, 0)

    def ids(self, offsets: np.ndarray) -> np.ndarray:
        units, inside = np.divmod(self._spread(offsets), self.size)
        return permute(units, self.count, (*self.key, 1)) * self.size + inside

    def _spread(self, offsets: np.ndarray) -> np.ndarray:
        """Offsets as if no unit were short."""
        return offsets + np.where(
            offsets >= (self.short + 1) * self.size - self.missing, self.missing, 0
        )


@lru_cache(maxsize=256)
def equal_units(samples: int, size: int, key: tuple[int, ...]) -> EqualUnits:
    """Samples in units of this size, permuted."""
    count = -(-samples // size)
    short = int(permute(np.array([count - 1]), count, (*key, 1), inverse=True)[0])
    return EqualUnits(size, count, count * size - samples, short, key)


@dataclass(frozen=True, slots=True)
class ListedUnits:
    """Units of any size. Takes 16 bytes per unit."""

    edges: np.ndarray  # first offset of each unit of the sequence, and the number of offsets
    firsts: np.ndarray  # first id of each

    def units(self, offsets: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.edges, offsets, side="right") - 1

    def starts(self, units: np.ndarray) -> np.ndarray:
        return self.edges[np.minimum(np.maximum(units, 0), len(self.firsts))]

    def ids(self, offsets: np.ndarray) -> np.ndarray:
        units = self.units(offsets)
        return self.firsts[units] + offsets - self.edges[units]


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Units of a source, with cached permutations unless all have one size."""

    bounds: np.ndarray  # first id of each, and the number of samples: int64, strictly ascending
    # samples of each; the last may have fewer. None: of any sizes
    size: int | None = field(init=False)
    recent: Recent = field(default_factory=lambda: Recent(_CACHED), repr=False)

    def __post_init__(self) -> None:
        size = int(self.bounds[1])
        missing = (len(self.bounds) - 1) * size - int(self.bounds[-1])
        is_equal = 0 <= missing < size and bool((np.diff(self.bounds[:-1]) == size).all())
        object.__setattr__(self, "size", size if is_equal else None)

    def shuffled(self, key: tuple[int, ...]) -> ShuffledUnits:
        """Units in the permutation of this key."""
        if self.size is not None:
            return equal_units(int(self.bounds[-1]), self.size, key)
        return self.recent.get_or_make(key, lambda: self.listed(key))

    def listed(self, key: tuple[int, ...]) -> ListedUnits:
        """Units in the permutation of this key, one by one."""
        count = len(self.bounds) - 1
        units = permute(np.arange(count), count, (*key, 1))
        sizes = np.diff(self.bounds)[units]
        return ListedUnits(np.concatenate([[0], np.cumsum(sizes)]), self.bounds[units])


def storage_bounds(source: Any) -> np.ndarray:
    """The units of storage of a source: int64, strictly ascending from 0 to its length.

    Empty ones are left out.
    """
    bounds = getattr(source, "bounds", None)
    if bounds is None:
        raise ConfigError(
            f"Blocks() needs a source in shards (with `bounds`), got {type(source).__name__}; "
            'say how many samples lie together, as in Blocks(1024), or use shuffle="full"',
            field="source",
        )
    bounds = np.asarray(bounds, np.int64)
    if (
        bounds.ndim != 1
        or len(bounds) < 2
        or bounds[0] != 0
        or bounds[-1] != len(source)
        or (np.diff(bounds) < 0).any()
    ):
        raise ConfigError(
            f"bounds of {type(source).__name__} must ascend from 0 to its length {len(source)}, got"
            f" {bounds!r}",
            field="bounds",
        )
    return bounds[np.concatenate([[True], np.diff(bounds) > 0])]


def find_lane(
    rows: np.ndarray, width: Any, lanes: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lane of each row, its first row and its width, for `width` rows in `lanes` lanes."""
    lane = ((rows + 1) * lanes - 1) // width
    first = width * lane // lanes
    return lane, first, width * (lane + 1) // lanes - first


def windows(
    layout: ShuffledUnits,
    offsets: np.ndarray,
    first: np.ndarray,
    last: np.ndarray,
    lane: np.ndarray,
    window: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start and length of the window around each offset, and a number that is unique to the window.

    A lane owns the offsets [first, last) and reads them in order, with `window` units open at a
    time, whose samples are to be mixed. Lanes start with windows of different lengths, so that they
    open units at different times and do not all wait for storage at once. All arrays are int64 of
    one shape.
    """
    begin = layout.units(first) - lane % window  # where the lane's first window would begin
    number = (layout.units(offsets) - begin) // window
    start = np.maximum(first, layout.starts(begin + number * window))
    stop = np.minimum(last, layout.starts(begin + (number + 1) * window))
    return start, stop - start, 2 + number + (lane << 32)
