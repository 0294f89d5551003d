"""Buckets: batches of samples that are alike."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.printable import printable
from fastfeed.sampling.base import Epoch, SampleRefs, check_count
from fastfeed.sampling.orders.classes import Classes
from fastfeed.sampling.orders.columns import digest_of, read_column
from fastfeed.sampling.permute import permute

_RUNS = 2**32  # in keys, in the place of a bucket, which is smaller


@dataclass(frozen=True, slots=True)
class Grouping:
    """Samples by the value of a column."""

    samples: Classes = field(compare=False)
    values: np.ndarray = field(compare=False)  # of each bucket
    digest: str

    def __repr__(self) -> str:  # saved states hold this text
        return f"<{len(self.samples.ids)} samples in {len(self.values)} buckets, {self.digest}>"

    @classmethod
    def of(cls, values: Any) -> Grouping:
        """Build from one value per sample."""
        array = np.asarray(values)
        if array.dtype == object and all(isinstance(value, str) for value in array.flat):
            array = array.astype(str)
        if array.ndim != 1 or not len(array) or array.dtype.kind not in "iubU":
            raise ConfigError(
                "Buckets.by must be the name of a column or one value per sample, integers or texts,"
                f" got {array.dtype}{list(array.shape)}; group other numbers by np.digitize(numbers,"
                " bins)",
                field="by",
            )
        found, codes = np.unique(array, return_inverse=True)
        return cls(Classes.of(codes), found, digest_of(codes))


@checked
@dataclass(frozen=True, slots=True)
class Buckets:
    """Batches whose samples all have one value of a column: a length of text, a shape, a task.

    Every run of `batch` positions is of one bucket, the samples with one value. Runs come in random
    order, a bucket's samples in another random order in every epoch. The global batch is one run,
    so that all ranks have the same bucket in a step, or several. Reads from anywhere in storage;
    keeps 4 bytes per sample in memory.

    Args:
        by (str | Sequence | np.ndarray): A column of the source, or one value per sample: integers
            or texts.
        batch (int): Positions of a run, at least 1.
        leftovers (str): Samples of a bucket that do not fill a run: "drop" leaves them out of this
            epoch, others in every epoch; "fill" adds samples of the bucket that have come before in
            the epoch, augmented differently. Default: "drop".

    Raises:
        ConfigError: If an argument is out of range or `by` holds other values. A column that the
            source does not have, a bucket that would never fill a run, and a global batch that is
            not a multiple of `batch` are refused by `Feed`.

    Example:
        >>> source = ff.Arrays(np.zeros((8, 1, 1, 3), np.uint8), np.arange(8))
        >>> order = ff.Buckets(["long", "short"] * 4, batch=2)
        >>> feed = ff.Feed(source, [], batch=2, shuffle=order)
        >>> [batch.ids.tolist() for batch in feed]
        [[0, 4], [2, 6], [1, 5], [3, 7]]
    """

    open: ClassVar[bool] = True

    by: Any
    batch: int
    leftovers: Literal["drop", "fill"] = "drop"

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", check_count("Buckets.batch", self.batch))
        if self.leftovers not in ("drop", "fill"):
            raise ConfigError.of("Buckets.leftovers", '"drop" or "fill"', self.leftovers)
        if not isinstance(self.by, (str, Grouping)):
            object.__setattr__(self, "by", Grouping.of(self.by))

    @property
    def run(self) -> int:
        """Positions that belong together; the global batch must be a multiple of this."""
        return self.batch

    @property
    def once(self) -> bool:
        """True if no sample comes twice in an epoch."""
        return self.leftovers == "drop"

    def bind(self, source: Any) -> Buckets:
        if not isinstance(self.by, str):
            return self
        return replace(self, by=Grouping.of(read_column(source, self.by, "Buckets.by")))

    def positions(self, samples: int) -> int:
        if not isinstance(self.by, Grouping):
            raise ConfigError(
                f"Buckets(by={self.by!r}) takes a column of a source and is not bound to one;"
                " create a Feed with it, or call its bind(source)"
            )
        grouped = self.by.samples
        if len(grouped.ids) != samples:
            raise ConfigError(
                f"Buckets.by must be one value per sample: {samples}, got {len(grouped.ids)}",
                field="by",
            )
        runs = self._runs()
        empty = np.flatnonzero(runs == 0)
        if len(empty):
            more = f" and {len(empty) - 1} more such buckets" if len(empty) > 1 else ""
            value = printable(repr(self.by.values[empty[0]].item()))
            raise ConfigError(
                f"Buckets(batch={self.batch}) needs as many samples in every bucket, got"
                f" {grouped.sizes[empty[0]]} with the value {value}{more}; pass"
                ' leftovers="fill", a smaller batch, or fewer values',
                field="by",
            )
        return int(runs.sum()) * self.batch

    def visits(self, positions: np.ndarray, epoch: Epoch) -> SampleRefs:
        runs, grouped = self._runs(), self.by.samples
        ends = np.cumsum(runs)
        run, row = np.divmod(positions, self.batch)
        run = permute(run, int(ends[-1]), (epoch.seed, epoch.number, _RUNS))
        bucket = np.searchsorted(ends, run, side="right")
        size = grouped.sizes[bucket]
        place = (run - ends[bucket] + runs[bucket]) * self.batch + row
        # a last run that is filled continues with the first samples, which are in other runs
        occurrences, index = np.divmod(place, size)
        index = permute(index, size, (epoch.seed, epoch.number, bucket))
        return SampleRefs(grouped.ids_at(bucket, index), occurrences)

    def alike(self, id: int) -> np.ndarray:
        return self.by.samples.alike(id)

    def _runs(self) -> np.ndarray:
        """Runs of each bucket in an epoch: int64."""
        sizes = self.by.samples.sizes
        return sizes // self.batch if self.leftovers == "drop" else -(-sizes // self.batch)
