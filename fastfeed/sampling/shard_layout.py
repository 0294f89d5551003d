"""Units of storage laid end to end in an order that changes every epoch, and the windows in which lanes go through it.

A place is a sample's position in that row of permuted units. Keys name permutations (`permute`): with 1 added that of
the units, with 2 and more those inside windows (`windows`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.sampling.permute import permute

__all__ = ["EqualUnits", "Layout", "Units", "bounds_of", "equal_units", "lane_of", "windows"]

_KEPT = 4  # layouts of so many epochs: prefetching crosses from one to the next


class Layout(Protocol):
    """Permuted units: which samples lie at which places."""

    def units(self, places: np.ndarray) -> np.ndarray:
        """The unit at each place, as its number in the row: int64."""
        ...

    def starts(self, units: np.ndarray) -> np.ndarray:
        """The first place of each unit in the row; numbers outside of it give its ends: int64."""
        ...

    def ids(self, places: np.ndarray) -> np.ndarray:
        """The sample at each place: int64."""
        ...


@dataclass(frozen=True, slots=True)
class EqualUnits:
    """Layout of units of one size, the last of which may be shorter. Computed: it takes no memory."""

    size: int
    count: int
    lack: int  # samples the last unit is short of
    short: int  # where in the row it lies; all places behind are shifted by what it lacks
    key: tuple[int, ...]

    def units(self, places: np.ndarray) -> np.ndarray:
        return self._spread(places) // self.size

    def starts(self, units: np.ndarray) -> np.ndarray:
        units = np.minimum(np.maximum(units, 0), self.count)
        return units * self.size - np.where(units > self.short, self.lack, 0)

    def ids(self, places: np.ndarray) -> np.ndarray:
        units, inside = np.divmod(self._spread(places), self.size)
        return permute(units, self.count, (*self.key, 1)) * self.size + inside

    def _spread(self, places: np.ndarray) -> np.ndarray:
        """Places as if no unit were short."""
        return places + np.where(places >= (self.short + 1) * self.size - self.lack, self.lack, 0)


@lru_cache(maxsize=256)
def equal_units(samples: int, size: int, key: tuple[int, ...]) -> EqualUnits:
    """So many samples in units of this size, permuted."""
    count = -(-samples // size)
    short = int(permute(np.array([count - 1]), count, (*key, 1), inverse=True)[0])
    return EqualUnits(size, count, count * size - samples, short, key)


@dataclass(frozen=True, slots=True)
class _ListedUnits:
    """Layout of units of any size. Takes 16 bytes a unit."""

    edges: np.ndarray  # first place of each unit of the row, and the number of places
    firsts: np.ndarray  # first id of each

    def units(self, places: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.edges, places, side="right") - 1

    def starts(self, units: np.ndarray) -> np.ndarray:
        return self.edges[np.minimum(np.maximum(units, 0), len(self.firsts))]

    def ids(self, places: np.ndarray) -> np.ndarray:
        units = self.units(places)
        return self.firsts[units] + places - self.edges[units]


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """The units of a source, of any sizes; remembers how they lie in the last epochs."""

    bounds: np.ndarray  # first id of each, and the number of samples: int64, strictly ascending
    recent: dict[tuple[int, ...], _ListedUnits] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Units, (self.bounds,)

    def laid(self, key: tuple[int, ...]) -> _ListedUnits:
        """Permuted."""
        layout = self.recent.get(key)
        if layout is None:
            count = len(self.bounds) - 1
            units = permute(np.arange(count), count, (*key, 1))
            sizes = np.diff(self.bounds)[units]
            layout = _ListedUnits(np.concatenate([[0], np.cumsum(sizes)]), self.bounds[units])
            for old in list(self.recent)[: 1 - _KEPT]:
                self.recent.pop(old, None)
            self.recent[key] = layout
        return layout


def bounds_of(source: Any) -> np.ndarray:
    """The units of storage of a source: int64, strictly ascending from 0 to its length. Empty ones are left out."""
    bounds = getattr(source, "bounds", None)
    if bounds is None:
        raise ConfigError(
            f"Blocks() needs a source that lies in shards (with `bounds`), got {type(source).__name__}; "
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
            f"bounds of {type(source).__name__} must ascend from 0 to its length {len(source)}, got {bounds!r}"
        )
    return np.unique(bounds)


def lane_of(rows: np.ndarray, width: int, lanes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each row's lane, the lane's first row, and how many it has, when `width` rows are shared by so many lanes."""
    lane = ((rows + 1) * lanes - 1) // width
    first = width * lane // lanes
    return lane, first, width * (lane + 1) // lanes - first


def windows(
    layout: Layout, places: np.ndarray, first: np.ndarray, last: np.ndarray, lane: np.ndarray, window: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the window of each place begins, how long it is, and a number that no other window of the row has.

    A lane owns the places [first, last) and goes through them in order, with `window` units open at a time whose
    samples are to be mixed. Lanes open their next units at different times, so that not all of them wait for storage
    at once: each begins with a window of another length. All arrays are int64 of one shape.
    """
    begin = layout.units(first) - lane % window  # where the lane's first window would begin
    number = (layout.units(places) - begin) // window
    start = np.maximum(first, layout.starts(begin + number * window))
    stop = np.minimum(last, layout.starts(begin + (number + 1) * window))
    return start, stop - start, 2 + number + (lane << 32)
