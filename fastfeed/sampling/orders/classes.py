"""Samples by class, which orders of classes draw from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError

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
        ids = np.empty(samples, np.min_scalar_type(samples - 1))
        firsts = np.cumsum(sizes) - sizes
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

    @classmethod
    def read(cls, source: Any, order: str) -> Classes:
        """Build from the labels of a source, for an order of this name."""

        def labels(first: int, last: int) -> np.ndarray:
            part = np.asarray(source.label(np.arange(first, last)))
            if part.dtype.kind not in "iu" or part.ndim > 1:
                dtype = "texts" if part.dtype == object else part.dtype
                of_label = f"[{', '.join(map(str, part.shape[1:]))}]" if part.ndim > 1 else ""
                raise ConfigError(
                    f"{order}() needs class numbers as labels, got"
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
                f"{order}() needs the class of every sample, got {missing} of {samples} without a"
                f" label, the first of them {source.uri(unlabeled)}; label them or leave them out"
                " of the source",
                field="source",
            )
        return cls.sorted(samples, labels, values, sizes)

    @staticmethod
    def bound(classes: Classes | None, order: str, samples: int) -> Classes:
        """The classes of an order that is bound to a source of this length, or ConfigError."""
        if classes is None:
            raise ConfigError(
                f"{order}() takes its classes from the labels of a source and is not bound to one; "
                "create a Feed with it, or call its bind(source)"
            )
        if len(classes.ids) != samples:
            raise ConfigError(
                f"this {order}() belongs to a source of {len(classes.ids)} samples, got a"
                f" source of {samples}; bind {order}() to it"
            )
        return classes

    def alike(self, id: int) -> np.ndarray:
        """The samples of the class that a sample is of: int64."""
        place = int((self.ids == id).argmax())
        number = np.searchsorted(self.firsts, place, side="right") - 1
        first = self.firsts[number]
        return self.ids[first : first + self.sizes[number]].astype(np.int64)

    def ids_at(self, classes: np.ndarray, index: np.ndarray) -> np.ndarray:
        """The samples of these numbers in their classes: int64."""
        return self.ids[self.firsts[classes] + index].astype(np.int64)


def count_labels(samples: int, labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """The labels that occur, ascending, and how many samples each has: int64, int64."""
    values = np.empty(0, np.int64)
    sizes = np.empty(0, np.int64)
    for first in range(0, samples, _PART):
        here, counts = np.unique(labels(first, min(first + _PART, samples)), return_counts=True)
        merged = np.union1d(values, here)
        total = np.zeros(len(merged), np.int64)
        total[np.searchsorted(merged, values)] += sizes
        total[np.searchsorted(merged, here)] += counts
        values = merged.astype(np.int64)
        sizes = total
    return values, sizes
