"""MixtureOrder: several sources in one epoch, each in proportion to its weight and in its own order."""

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
from fastfeed.sampling.proportions import Proportions, proportions_of
from fastfeed.sampling.shard_layout import ShuffledUnits, bounds_of, lane_of, windows

__all__ = ["MixtureOrder", "MixturePart"]

_PART = 2**32 + 2  # in keys, in the place of an epoch number, which is smaller
_STEPS = range(1 << 50)  # an upper bound of all steps


@dataclass(frozen=True, slots=True)
class MixturePart:
    """The samples [first, first + length) of a source."""

    first: int
    length: int
    weight: float  # of its share of every batch, in any unit
    order: Literal["full", "none"] | Blocks = "full"

    def __repr__(self) -> str:  # saved states hold this text
        return f"Part(first={self.first!r}, length={self.length!r}, weight={self.weight!r}, order={self.order!r})"

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ConfigError(f"Part.first must be >= 0, got {self.first}")
        check_count("Part.length", self.length, MOST_SAMPLES)
        if not 0 < self.weight < float("inf"):
            raise ConfigError(
                f"Part.weight must be finite and above 0, got {self.weight!r}; leave the part out instead"
            )
        if self.order not in ("full", "none") and not isinstance(self.order, Blocks):
            raise ConfigError(f'Part.order must be "full", "none" or Blocks(...), got {self.order!r}')


@dataclass(frozen=True, slots=True)
class MixtureOrder:
    """Parts of a source in fixed proportions, spread evenly over every batch.

    In any range of positions a part has its share, to within four samples; in the range from the start of the first
    epoch, to within two. The samples of a part alternate, also across epochs: none comes a second time before all came
    once. Within such a pass they come in the order of the part, which for Blocks means from few shards at a time on
    every rank. A sample that comes several times in an epoch is augmented differently each time.
    """

    open: ClassVar[bool] = False

    parts: tuple[MixturePart, ...]
    length: int | None = None  # positions per epoch; None: as many as the parts have samples

    def __repr__(self) -> str:  # saved states hold this text
        return f"Mixed(parts={self.parts!r}, length={self.length!r})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise ConfigError("Mixed needs at least one part, got none")
        if self.length is not None:
            object.__setattr__(self, "length", check_count("Mixed.length", self.length, MOST_SAMPLES))
        ordered = sorted(self.parts, key=lambda part: part.first)
        for part, following in pairwise(ordered):
            if part.first + part.length > following.first:
                raise ConfigError(f"parts must not overlap, got {part!r} and {following!r}")

    def bind(self, source: Any) -> MixtureOrder:
        return replace(self, parts=tuple(_bound(part, source) for part in self.parts))

    def positions(self, samples: int) -> int:
        for part in self.parts:
            if part.first + part.length > samples:
                raise ConfigError(f"parts must lie in the source's {samples} samples, got {part!r}")
            if isinstance(part.order, Blocks):
                part.order.positions(part.length)
        return sum(part.length for part in self.parts) if self.length is None else self.length

    def visits(self, positions: np.ndarray, epoch: Epoch) -> Visits:
        proportions = proportions_of(tuple(float(part.weight) for part in self.parts))
        begin = epoch.number * epoch.length  # in the sequence of all epochs
        part_of, number = proportions.assign(begin + positions)
        sizes = np.array([part.length for part in self.parts])[part_of]
        passes, indices = np.divmod(number, sizes)  # completed passes through the part, and the index in this pass
        start, size, label = np.zeros_like(indices), sizes.copy(), np.zeros_like(indices)  # of the window to mix
        layouts: list[tuple[np.ndarray, ShuffledUnits]] = []
        for i, part in enumerate(self.parts):  # with all blocks in one window, Blocks are a full shuffle
            if isinstance(part.order, Blocks) and part.order.count(part.length) > part.order.window:
                own = np.flatnonzero(part_of == i)
                for pass_number in np.unique(passes[own]).tolist():
                    rows = own[passes[own] == pass_number]
                    layout = part.order.layout(part.length, (epoch.seed, _PART + i, pass_number))
                    lanes = _lanes(proportions, i, part, pass_number, positions[rows], number[rows], epoch)
                    indices[rows] = lanes[0]
                    start[rows], size[rows], label[rows] = windows(layout, *lanes, part.order.window)
                    layouts.append((rows, layout))
        mixed = np.flatnonzero(np.array([part.order != "none" for part in self.parts])[part_of])
        key = (epoch.seed, _PART + part_of[mixed], passes[mixed], label[mixed])
        indices[mixed] = start[mixed] + permute(indices[mixed] - start[mixed], size[mixed], key)
        for rows, layout in layouts:
            indices[rows] = layout.ids(indices[rows])
        firsts = np.array([part.first for part in self.parts])
        earlier = _completed_passes(proportions, tuple(part.length for part in self.parts), begin)
        return Visits(firsts[part_of] + indices, passes - earlier[part_of])


def _bound(part: MixturePart, source: Any) -> MixturePart:
    """The part with the units of storage in it; a unit that it cuts counts as two."""
    if part.order in ("full", "none") or part.order.block is not None:
        return part
    edges = bounds_of(source) - part.first
    inside = edges[(edges > 0) & (edges < part.length)]
    return replace(part, order=part.order.over(np.concatenate([[0], inside, [part.length]])))


def _lanes(
    proportions: Proportions,
    i: int,
    part: MixturePart,
    pass_number: int,
    positions: np.ndarray,
    number: np.ndarray,
    epoch: Epoch,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Offsets in one pass through a part in Blocks, the first and last offsets of their lanes, and the lanes' numbers.

    `number` counts the part's slots. Every step has at least `width` of them, in nearly the same rows of the global
    batch, so each of these has a lane. All further samples, and the steps in which a pass begins or ends, are one more
    lane.
    """
    assert isinstance(part.order, Blocks)
    width, begin, count = _whole_steps(proportions, i, part.length, pass_number, epoch.length, epoch.batch)
    steps, lanes = epoch.length // epoch.batch, min(part.order.lanes, width)
    step = positions // epoch.batch
    before_step = proportions.count(i, epoch.number * epoch.length + step * epoch.batch)
    row = number - before_step  # among the part's slots of this step
    done = epoch.number * steps + step - begin  # complete steps of the pass before this one
    is_complete = (step < steps) & (done >= 0) & (done < count)
    in_lane = is_complete & (row < width)
    lane, edge, share = lane_of(np.minimum(row, width - 1), max(width, 1), max(lanes, 1))
    first = count * np.where(in_lane, edge, width)
    last = np.where(in_lane, first + count * share, part.length)
    in_lanes = (
        np.minimum(np.maximum(done + is_complete, 0), count) * width
    )  # samples of the pass before one outside of lanes
    others = number - pass_number * part.length - in_lanes
    indices = first + np.where(in_lane, done * share + row - edge, others)
    return indices, first, last, np.where(in_lane, lane, lanes)


@lru_cache(maxsize=256)
def _whole_steps(
    proportions: Proportions, i: int, size: int, pass_number: int, length: int, batch: int
) -> tuple[int, int, int]:
    """The minimum number of samples of a part in a step; the first step that is completely within one pass through the
    part, counted over all epochs, and the number of such steps."""
    steps, width = length // batch, proportions.minimum(i, batch)
    if not steps:
        return width, 0, 0

    def before(step: int, more: int = 0) -> int:
        return proportions.count(i, step // steps * length + step % steps * batch + more)

    first = bisect_left(_STEPS, pass_number * size, key=before)
    last = bisect_right(_STEPS, (pass_number + 1) * size, key=lambda step: before(step, batch))
    return width, first, max(0, last - first)


@lru_cache(maxsize=16)
def _completed_passes(proportions: Proportions, sizes: tuple[int, ...], slots: int) -> np.ndarray:
    """The passes through each part that the first `slots` slots complete."""
    return np.array([proportions.count(i, slots) // size for i, size in enumerate(sizes)])
