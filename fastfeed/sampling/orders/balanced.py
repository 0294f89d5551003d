"""Balanced: all classes equally often."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fastfeed.arguments import checked
from fastfeed.sampling.base import MOST_SAMPLES, Epoch, SampleRefs, set_count
from fastfeed.sampling.orders.classes import Classes
from fastfeed.sampling.permute import permute

# in keys, in the place of an epoch number, which is smaller
_ROUND = 2**32
_PASS = 2**32 + 1


@checked
@dataclass(frozen=True, slots=True)
class Balanced:
    """Every class equally often, whatever its size.

    Counts of two classes differ by at most one, in an epoch and in any run of batches from its
    beginning. The samples of a class alternate, also across epochs: none repeats before all others
    have been read once. A sample that comes several times in an epoch is augmented differently each
    time. Reads from anywhere in storage; keeps 4 bytes per sample in memory.

    Args:
        length (int | None): Positions per epoch, at least 1. Default: None, as many as the source
            has samples.
        classes (Classes | None): Samples by class, set by `bind`; not for callers. Default: None.

    Raises:
        ConfigError: If `length` is no integer >= 1. A source without labels is refused by `Feed`.

    Example:
        >>> source = ff.Arrays(np.zeros((100, 1, 1, 3), np.uint8), [0] * 90 + [1] * 10)
        >>> feed = ff.Feed(source, [], batch=20, shuffle=ff.Balanced())
        >>> np.bincount(next(iter(feed)).labels)
        array([10, 10])
    """

    open: ClassVar[bool] = False

    length: int | None = None
    classes: Classes | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_count(self, "length", MOST_SAMPLES)

    def bind(self, source: Any) -> Balanced:
        return replace(self, classes=Classes.read(source, "Balanced"))

    def positions(self, samples: int) -> int:
        Classes.bound(self.classes, "Balanced", samples)
        return samples if self.length is None else self.length

    def visits(self, positions: np.ndarray, epoch: Epoch) -> SampleRefs:
        """Rounds of one sample per class in random order; a shorter last round rotates classes."""
        assert self.classes is not None  # positions() has checked that
        count = len(self.classes.sizes)
        rounds, extra = divmod(epoch.length, count)
        number, row = np.divmod(positions, count)
        full_round = number < rounds
        row = permute(
            row, np.where(full_round, count, extra), (epoch.seed, _ROUND, epoch.number, number)
        )
        chosen = np.where(full_round, row, (epoch.number * extra + row) % count)
        # of the class, so far
        before = epoch.number * rounds + (epoch.number * extra - chosen + count - 1) // count
        size = self.classes.sizes[chosen]
        # through the class, and the sample in this one
        passes, index = np.divmod(before + number, size)
        index = permute(index, size, (epoch.seed, _PASS, chosen, passes))
        return SampleRefs(self.classes.ids_at(chosen, index), passes - before // size)
