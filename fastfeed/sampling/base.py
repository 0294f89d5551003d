"""The seam between a plan and its orders: positions of an epoch go in, visits to samples come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.sampling.permute import permute

__all__ = ["MOST_SAMPLES", "AsStored", "Epoch", "Full", "Order", "Visits", "check_count"]

_ID_BITS = 40
MOST_SAMPLES = 1 << _ID_BITS  # ids above would run into the turns of a key


class Visits(NamedTuple):
    """Which samples come, and which of its times in the epoch each one has."""

    ids: np.ndarray  # int64
    turns: np.ndarray  # int64, same shape: no (id, turn) comes twice in an epoch; 0 where each sample comes once

    @property
    def keys(self) -> np.ndarray:
        """What random numbers are looked up by: int64. The id at turn 0, another number at every other turn (up to
        2**24 of them)."""
        return self.ids | self.turns << _ID_BITS

    @classmethod
    def once(cls, ids: np.ndarray) -> Visits:
        """Of samples that come once per epoch."""
        return cls(ids, np.zeros_like(ids))


@dataclass(frozen=True, slots=True)
class Epoch:
    """What an order may look at besides a position."""

    number: int
    samples: int  # in the source
    length: int  # positions that are served: without those that tail="drop" leaves out
    batch: int  # samples per step over all ranks; position p belongs to step p // batch
    seed: int


class Order(Protocol):
    """Which sample comes at which position. A frozen value; its `repr` is saved with a run's state."""

    open: ClassVar[bool]  # it knows who would come at the positions that tail="drop" leaves out

    def bind(self, source: Any) -> Order:
        """The same order, having looked once at what it needs of the source; ConfigError where that is not there."""
        ...

    def positions(self, samples: int) -> int:
        """Positions per epoch over a source of so many samples; ConfigError where the order does not fit it."""
        ...

    def visits(self, positions: np.ndarray, epoch: Epoch) -> Visits:
        """Who comes at these positions (int64, any number of them). Pure: no position depends on the others."""
        ...


@dataclass(frozen=True, slots=True)
class Full:
    """shuffle="full": every sample once, in an order that is as good as random."""

    open: ClassVar[bool] = True

    def bind(self, source: Any) -> Full:
        return self

    def positions(self, samples: int) -> int:
        return samples

    def visits(self, positions: np.ndarray, epoch: Epoch) -> Visits:
        return Visits.once(permute(positions, epoch.samples, (epoch.seed, epoch.number, 0)))


@dataclass(frozen=True, slots=True)
class AsStored:
    """shuffle="none": every sample once, in the order of the source."""

    open: ClassVar[bool] = True

    def bind(self, source: Any) -> AsStored:
        return self

    def positions(self, samples: int) -> int:
        return samples

    def visits(self, positions: np.ndarray, epoch: Epoch) -> Visits:
        return Visits.once(positions.copy())


def check_count(name: str, value: Any, most: int = 2**31) -> int:
    """An integer in [1, most], as an int; ConfigError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ConfigError(f"{name} must be an integer >= 1, got {value!r}")
    if value > most:
        raise ConfigError(f"{name} must be at most {most}, got {value}")
    return int(value)
