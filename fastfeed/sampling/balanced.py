"""Balanced: all classes equally often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.sampling.base import MOST_SAMPLES, Epoch, SampleRefs, check_count
from fastfeed.sampling.permute import permute

_ROUND, _PASS = 2**32, 2**32 + 1  # in keys, in the place of an epoch number, which is smaller
_PART = 1 << 18  # labels that are read at once

Labels = Callable[[int, int], np.ndarray]  # of the samples [first, last)


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """Sample ids, grouped by class."""

    # of all samples, class after class, in the smallest unsigned type that holds them
    ids: np.ndarray
    firsts: np.ndarray  # where each class begins there: int64
    sizes: np.ndarray  # samples of each class: int64

    @classmethod
    def of(cls, labels: np.ndarray) -> Classes:
        """Build from the label of every sample, all >= 0. Labels without samples are no classes."""

        def read(first: int, last: int) -> np.ndarray:
            return labels[first:last]

        return cls.sorted(len(labels), read, *count_labels(len(labels), read))

    @classmethod
    def sorted(cls, samples: int, labels: Labels, values: np.ndarray, sizes: np.ndarray) -> Classes:
        """Build from labels that are read in parts, and their counts, holding only the ids."""
        ids, firsts = np.empty(samples, np.min_scalar_type(samples - 1)), np.cumsum(sizes) - sizes
        table = np.full(int(values[-1]) + 1, -1) if values[-1] < _PART else None
        if table is not None:
            table[values] = np.arange(len(values))
        following = firsts.copy()
        for first in range(0, samples, _PART):
            part = labels(first, min(first + _PART, samples))
            classes = np.searchsorted(values, part) if table is None else table[part]
            # sorts several times as fast
            classes = classes.astype(np.min_scalar_type(len(values) - 1))
            order = np.argsort(classes, kind="stable")
            counts = np.bincount(classes, minlength=len(values))
            targets = np.repeat(following - (np.cumsum(counts) - counts), counts)
            targets += np.arange(len(part))
            ids[targets] = first + order
            following += counts
        return cls(ids, firsts, sizes)


def count_labels(samples: int, labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """The labels that occur, ascending, and how many samples each has: int64, int64."""
    values, sizes = np.empty(0, np.int64), np.empty(0, np.int64)
    for first in range(0, samples, _PART):
        here, counts = np.unique(labels(first, min(first + _PART, samples)), return_counts=True)
        merged = np.union1d(values, here)
        total = np.zeros(len(merged), np.int64)
        total[np.searchsorted(merged, values)] += sizes
        total[np.searchsorted(merged, here)] += counts
        values, sizes = merged.astype(np.int64), total
    return values, sizes


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
        if self.length is not None:
            object.__setattr__(
                self, "length", check_count("Balanced.length", self.length, MOST_SAMPLES)
            )

    def bind(self, source: Any) -> Balanced:
        def labels(first: int, last: int) -> np.ndarray:
            part = np.asarray(source.label(np.arange(first, last)))
            if part.dtype.kind not in "iu" or part.ndim > 1:
                dtype = "texts" if part.dtype == object else part.dtype
                of_label = f"[{', '.join(map(str, part.shape[1:]))}]" if part.ndim > 1 else ""
                raise ConfigError(
                    "Balanced() needs class numbers as labels, got"
                    f" {dtype}{of_label}; pass label_kind='name', or another order",
                    field="source",
                )
            return part.astype(np.int64, copy=False)

        samples = len(source)
        values, sizes = count_labels(samples, labels)
        if missing := int(sizes[values < 0].sum()):
            parts = (
                (first, labels(first, min(first + _PART, samples)))
                for first in range(0, samples, _PART)
            )
            unlabeled = next(
                first + int((part < 0).argmax()) for first, part in parts if part.min() < 0
            )
            raise ConfigError(
                f"Balanced() needs the class of every sample, got {missing} of {samples} without a"
                f" label, the first of them {source.uri(unlabeled)}; label them or leave them out"
                " of the source",
                field="source",
            )
        return replace(self, classes=Classes.sorted(samples, labels, values, sizes))

    def positions(self, samples: int) -> int:
        if self.classes is None:
            raise ConfigError(
                "Balanced() takes its classes from the labels of a source and is not bound to one; "
                "create a Feed with it, or call its bind(source)"
            )
        if len(self.classes.ids) != samples:
            raise ConfigError(
                f"this Balanced() belongs to a source of {len(self.classes.ids)} samples, got a"
                f" source of {samples}; bind Balanced() to it"
            )
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
        ids = self.classes.ids[self.classes.firsts[chosen] + index].astype(np.int64)
        return SampleRefs(ids, passes - before // size)
