"""Blocks: an order for storage where sequential reads are much cheaper than random ones."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.sampling.base import Epoch, Visits, check_count
from fastfeed.sampling.permute import permute
from fastfeed.sampling.shard_layout import (
    ShuffledUnits,
    Units,
    bounds_of,
    equal_units,
    lane_of,
    windows,
)

__all__ = ["Blocks"]


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
        ConfigError: If a field is no integer >= 1.

    Example:
        >>> order = ff.Blocks(block=2, window=1, lanes=1)
        >>> order.count(samples=6)
        3
        >>> ff.Plan(6, 2, shuffle=order).ids(epoch=0, step=0)  # one block
        array([2, 3])
    """

    open: ClassVar[bool] = False

    block: int | None = None
    window: int = 4
    lanes: int = 64
    units: Units | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("block", "window", "lanes"):
            if name != "block" or self.block is not None:
                object.__setattr__(self, name, check_count(f"Blocks.{name}", getattr(self, name)))

    def bind(self, source: Any) -> Blocks:
        return self if self.block is not None else self.over(bounds_of(source))

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

    def visits(self, positions: np.ndarray, epoch: Epoch) -> Visits:
        key = (epoch.seed, epoch.number)
        layout = self.layout(epoch.samples, key)
        steps, lanes = epoch.samples // epoch.batch, min(self.lanes, epoch.batch)
        step, row = np.divmod(positions, epoch.batch)
        rest = step == steps  # after the last complete step; the last lane continues there
        lane, begin, width = lane_of(np.where(rest, epoch.batch - 1, row), epoch.batch, lanes)
        first = steps * begin
        last = np.where(lane == lanes - 1, epoch.samples, first + steps * width)
        offsets = first + step * width + np.where(rest, row, row - begin)
        start, size, label = windows(layout, offsets, first, last, lane, self.window)
        return Visits.once(layout.ids(start + permute(offsets - start, size, (*key, label))))
