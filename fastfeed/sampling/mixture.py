"""Mixed: several sources in one epoch, each by its weight and each in an order of its own."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.sampling.base import MOST_SAMPLES, Epoch, Visits, check_count
from fastfeed.sampling.blocks import Blocks
from fastfeed.sampling.permute import permute
from fastfeed.sampling.proportions import Shares, shares_of
from fastfeed.sampling.shard_layout import Layout, bounds_of, lane_of, windows

__all__ = ["Mixed", "Part"]

_PART = 2**32 + 2  # stands in keys where other orders put an epoch, which is smaller
_STEPS = range(1 << 50)  # as many as there can be


@dataclass(frozen=True, slots=True)
class Part:
    """The samples [first, first + length) of a source."""

    first: int
    length: int
    weight: float  # of its share of every batch, in any unit
    order: Literal["full", "none"] | Blocks = "full"

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ConfigError(f"Part.first must be >= 0, got {self.first}")
        check_count("Part.length", self.length, MOST_SAMPLES)
        if not 0 < self.weight < float("inf"):
            raise ConfigError(
                f"Part.weight must be finite and above 0, got {self.weight!r}; leave out a part that is not to come"
            )
        if self.order not in ("full", "none") and not isinstance(self.order, Blocks):
            raise ConfigError(f'Part.order must be "full", "none" or Blocks(...), got {self.order!r}')


@dataclass(frozen=True, slots=True)
class Mixed:
    """Parts of a source in fixed shares, spread evenly over every batch.

    Of any run of positions a part has its share, to less than four samples; from the first epoch's beginning to any
    position, to less than two. The samples of a part take turns, also across epochs: none comes a second time before
    all came once. Within such a pass they come in the order of the part, which for Blocks means from few shards at a
    time on every rank. A sample that comes several times in an epoch is augmented anew each time.
    """

    open: ClassVar[bool] = False

    parts: tuple[Part, ...]
    length: int | None = None  # positions per epoch; None: as many as the parts have samples

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise ConfigError("Mixed needs at least one part, got none")
        if self.length is not None:
            object.__setattr__(self, "length", check_count("Mixed.length", self.length, MOST_SAMPLES))
        ordered = sorted(self.parts, key=lambda part: part.first)
        for one, other in pairwise(ordered):
            if one.first + one.length > other.first:
                raise ConfigError(f"parts must not overlap, got {one!r} and {other!r}")

    def bind(self, source: Any) -> Mixed:
        return replace(self, parts=tuple(_bound(part, source) for part in self.parts))

    def positions(self, samples: int) -> int:
        for part in self.parts:
            if part.first + part.length > samples:
                raise ConfigError(f"parts must lie in the source's {samples} samples, got {part!r}")
            if isinstance(part.order, Blocks):
                part.order.positions(part.length)
        return sum(part.length for part in self.parts) if self.length is None else self.length

    def visits(self, positions: np.ndarray, epoch: Epoch) -> Visits:
        shares = shares_of(tuple(float(part.weight) for part in self.parts))
        begin = epoch.number * epoch.length  # of the endless row that all epochs make
        which, number = shares.deal(begin + positions)
        sizes = np.array([part.length for part in self.parts])[which]
        turns, places = np.divmod(number, sizes)  # passes through the part so far, and where in this one
        start, size, label = np.zeros_like(places), sizes.copy(), np.zeros_like(places)  # of the window to mix
        laid: list[tuple[np.ndarray, Layout]] = []
        for i, part in enumerate(self.parts):  # where one window has all blocks open, Blocks are a full shuffle
            if isinstance(part.order, Blocks) and part.order.count(part.length) > part.order.window:
                mine = np.flatnonzero(which == i)
                for turn in np.unique(turns[mine]).tolist():
                    here = mine[turns[mine] == turn]
                    layout = part.order.layout(part.length, (epoch.seed, _PART + i, turn))
                    lanes = _lanes(shares, i, part, turn, positions[here], number[here], epoch)
                    places[here] = lanes[0]
                    start[here], size[here], label[here] = windows(layout, *lanes, part.order.window)
                    laid.append((here, layout))
        mixed = np.flatnonzero(np.array([part.order != "none" for part in self.parts])[which])
        key = (epoch.seed, _PART + which[mixed], turns[mixed], label[mixed])
        places[mixed] = start[mixed] + permute(places[mixed] - start[mixed], size[mixed], key)
        for here, layout in laid:
            places[here] = layout.ids(places[here])
        firsts = np.array([part.first for part in self.parts])
        earlier = _passes(shares, tuple(part.length for part in self.parts), begin)
        return Visits(firsts[which] + places, turns - earlier[which])


def _bound(part: Part, source: Any) -> Part:
    """With the units of storage that lie in it; one that it cuts counts as two."""
    if part.order in ("full", "none") or part.order.block is not None:
        return part
    edges = bounds_of(source) - part.first
    inside = edges[(edges > 0) & (edges < part.length)]
    return replace(part, order=part.order.over(np.concatenate([[0], inside, [part.length]])))


def _lanes(
    shares: Shares, i: int, part: Part, turn: int, positions: np.ndarray, number: np.ndarray, epoch: Epoch
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Places in one pass through a part in Blocks, the first and last places of their lanes, and which lanes these are.

    `number` counts the part's slots. Of its samples in a step, the first `width` are always there, and in nearly the
    same rows of the global batch, so each of these has a lane. What comes besides, and the steps in which a pass begins
    or ends, is one more lane.
    """
    assert isinstance(part.order, Blocks)
    width, begin, count = _whole_steps(shares, i, part.length, turn, epoch.length, epoch.batch)
    steps, lanes = epoch.length // epoch.batch, min(part.order.lanes, width)
    step = positions // epoch.batch
    row = number - shares.count(i, epoch.number * epoch.length + step * epoch.batch)  # among the part's of this step
    done = epoch.number * steps + step - begin  # whole steps of the pass before this one
    whole = (step < steps) & (done >= 0) & (done < count)
    laned = whole & (row < width)
    lane, edge, share = lane_of(np.minimum(row, width - 1), max(width, 1), max(lanes, 1))
    first = count * np.where(laned, edge, width)
    last = np.where(laned, first + count * share, part.length)
    in_lanes = np.minimum(np.maximum(done + whole, 0), count) * width  # of the pass, before a sample that is in none
    others = number - turn * part.length - in_lanes
    places = first + np.where(laned, done * share + row - edge, others)
    return places, first, last, np.where(laned, lane, lanes)


@lru_cache(maxsize=256)
def _whole_steps(shares: Shares, i: int, size: int, turn: int, length: int, batch: int) -> tuple[int, int, int]:
    """How many samples of a part every step has at least; the first step that lies wholly in one pass through the part,
    counted over all epochs, and how many do."""
    steps, width = length // batch, shares.least(i, batch)
    if not steps:
        return width, 0, 0

    def before(step: int, more: int = 0) -> int:
        return shares.count(i, step // steps * length + step % steps * batch + more)

    first = bisect_left(_STEPS, turn * size, key=before)
    return width, first, max(0, bisect_right(_STEPS, (turn + 1) * size, key=lambda step: before(step, batch)) - first)


@lru_cache(maxsize=16)
def _passes(shares: Shares, sizes: tuple[int, ...], slots: int) -> np.ndarray:
    """Of so many slots: the passes through each part that they complete."""
    return np.array([shares.count(i, slots) // size for i, size in enumerate(sizes)])
