"""Curriculum: easy samples first, more of them in every epoch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.sampling.base import Epoch, SampleRefs, set_count
from fastfeed.sampling.orders.columns import hash_numbers, read_column
from fastfeed.sampling.permute import permute


@dataclass(frozen=True, slots=True)
class Ranking:
    """Samples in ascending order of a value."""

    # in the smallest unsigned type that holds them
    ids: np.ndarray = field(compare=False)
    digest: str

    def __repr__(self) -> str:  # saved states hold this text
        return f"<{len(self.ids)} samples, {self.digest}>"

    @classmethod
    def of(cls, values: Any) -> Ranking:
        """Build from one number per sample; equal ones stay in the order of the source."""
        array = np.asarray(values)
        if array.ndim != 1 or not len(array) or array.dtype.kind not in "iufb":
            raise ConfigError(
                "Curriculum.by must be the name of a column or one number per sample, got"
                f" {array.dtype}{list(array.shape)}",
                field="by",
            )
        missing = np.flatnonzero(np.isnan(array))
        if len(missing):
            raise ConfigError(
                f"Curriculum.by must be a number for every sample, got NaN for sample {missing[0]}"
                f" and {len(missing) - 1} more",
                field="by",
            )
        ids = np.argsort(array, kind="stable")
        return cls(ids.astype(np.min_scalar_type(len(array) - 1)), hash_numbers(ids))


@checked
@dataclass(frozen=True, slots=True)
class Curriculum:
    """Samples with low values first, and more of the others in every epoch.

    Epoch 0 draws from the share `start` of the samples that has the lowest values, and later epochs
    from a share that grows evenly, until from epoch `epochs` on it holds all samples and an epoch
    has each once. All epochs have the same length: before, samples come several times, equally
    often to within one, each time augmented differently. Reads from anywhere in storage; keeps 4
    bytes per sample in memory.

    Args:
        by (str | np.ndarray): A column of the source that holds numbers, or one number per sample;
            pass -values to begin with high ones.
        start (float): Share of the samples in epoch 0, in (0, 1]. Default: 0.25.
        epochs (int): The first epoch with all samples, at least 1. Default: 10.

    Raises:
        ConfigError: If `start` or `epochs` is out of range, or `by` holds no numbers. A column that
            the source does not have is refused by `Feed`.

    Example:
        >>> source = ff.Arrays(np.zeros((8, 1, 1, 3), np.uint8), np.arange(8))
        >>> order = ff.Curriculum(np.arange(8), start=0.25, epochs=3)
        >>> feed = ff.Feed(source, [], batch=8, shuffle=order)
        >>> [np.unique(batch.ids).tolist() for epoch in range(3) for batch in feed]
        [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
    """

    open: ClassVar[bool] = True

    by: Any
    start: float = 0.25
    epochs: int = 10

    def __post_init__(self) -> None:
        if isinstance(self.start, bool) or not 0 < self.start <= 1:
            raise ConfigError.of("Curriculum.start", "in (0, 1]", self.start)
        set_count(self, "epochs")
        if not isinstance(self.by, (str, Ranking)):
            object.__setattr__(self, "by", Ranking.of(self.by))

    def bind(self, source: Any) -> Curriculum:
        if not isinstance(self.by, str):
            self.positions(len(source))
            return self
        return replace(self, by=Ranking.of(read_column(source, self.by, "Curriculum.by")))

    def positions(self, samples: int) -> int:
        if not isinstance(self.by, Ranking):
            raise ConfigError(
                f"Curriculum(by={self.by!r}) takes a column of a source and is not bound to one;"
                " create a Feed with it, or call its bind(source)"
            )
        if len(self.by.ids) != samples:
            raise ConfigError(
                f"Curriculum.by must be one number per sample: {samples}, got {len(self.by.ids)}",
                field="by",
            )
        return samples

    def visits(self, positions: np.ndarray, epoch: Epoch) -> SampleRefs:
        first = max(1, round(self.start * epoch.samples))
        rest = (epoch.samples - first) * min(epoch.number, self.epochs) // self.epochs
        occurrences, index = np.divmod(positions, first + rest)
        index = permute(index, first + rest, (epoch.seed, epoch.number, occurrences))
        return SampleRefs(self.by.ids[index].astype(np.int64), occurrences)
