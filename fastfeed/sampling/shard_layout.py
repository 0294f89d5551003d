"""Units of storage in an order that changes every epoch, and the windows in which lanes read it.

The units are permuted and concatenated; an offset is a sample's index in that sequence. Keys name
permutations (`permute`): with 1 appended that of the units, with 2 and more those inside windows
(`windows`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.sampling.permute import permute

__all__ = [
    "EqualUnits",
    "ListedUnits",
    "ShuffledUnits",
    "Units",
    "bounds_of",
    "equal_units",
    "lane_of",
    "windows",
]

_CACHED = 4  # permutations: prefetching crosses from one epoch to the next


class ShuffledUnits(Protocol):
    """Permuted units: which sample is at which offset."""

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
    short: int  # its number in the sequence; all later offsets are shifted by what it misses
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
    recent: dict[tuple[int, ...], ListedUnits] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        size = int(self.bounds[1])
        missing = (len(self.bounds) - 1) * size - int(self.bounds[-1])
        is_equal = 0 <= missing < size and bool((np.diff(self.bounds[:-1]) == size).all())
        object.__setattr__(self, "size", size if is_equal else None)

    def __reduce__(self) -> tuple[Any, ...]:
        return Units, (self.bounds,)

    def shuffled(self, key: tuple[int, ...]) -> ShuffledUnits:
        """In the permutation of this key."""
        if self.size is not None:
            return equal_units(int(self.bounds[-1]), self.size, key)
        layout = self.recent.get(key)
        if layout is None:
            layout = self.listed(key)
            for old in list(self.recent)[: 1 - _CACHED]:
                self.recent.pop(old, None)
            self.recent[key] = layout
        return layout

    def listed(self, key: tuple[int, ...]) -> ListedUnits:
        """In the permutation of this key, one by one."""
        count = len(self.bounds) - 1
        units = permute(np.arange(count), count, (*key, 1))
        sizes = np.diff(self.bounds)[units]
        return ListedUnits(np.concatenate([[0], np.cumsum(sizes)]), self.bounds[units])


def bounds_of(source: Any) -> np.ndarray:
    """The units of storage of a source: int64, strictly ascending from 0 to its length.

    Empty ones are left out.
    """
    bounds = getattr(source, "bounds", None)
    if bounds is None:
        raise ConfigError(
            f"Blocks() needs a source in shards (with `bounds`), got {type(source).__name__}; "
            'say how many samples lie together, as in Blocks(1024), or use shuffle="full"'
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
            f" {bounds!r}"
        )
    return bounds[np.concatenate([[True], np.diff(bounds) > 0])]


def lane_of(rows: np.ndarray, width: Any, lanes: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
