"""Weighted: every sample in proportion to its weight."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from fastfeed.arguments import check_count, checked
from fastfeed.errors import ConfigError
from fastfeed.sampling.base import Epoch, Recent, SampleRefs, set_count
from fastfeed.sampling.permute import permute

_BITS = 52  # the line is about 2**52 long, and an epoch's offset has as many bits
# in keys, in the place of an epoch number, which is smaller
_LINE = 2**32
_OFFSET = 2**32 + 1
_MOST = 2**31 - 1  # positions per epoch, so that products of two of them fit into 63 bits
_COLUMNS = 1 << 18


@dataclass(frozen=True, slots=True)
class CumulativeWeights:
    """All samples on a line, as long as their weights, in another order for every cycle.

    Sample i belongs to column i % 2**18, and the columns are permuted: up to 2**18 samples come in
    any order; of more samples, those with the same remainder stay together.
    """

    ends: np.ndarray = field(compare=False)  # of each sample in its column: int64, shape (samples,)
    digest: str  # of the weights
    total: int = field(compare=False)  # length of the line
    largest: int = field(compare=False)  # and of its longest sample
    recent: Recent = field(default_factory=Recent, compare=False)  # orders of columns

    def __repr__(self) -> str:  # saved states hold this text, which changes with the order
        return f"<{len(self.ends)} weights, {self.digest}, drawn per epoch>"

    @classmethod
    def of(cls, weights: Any) -> CumulativeWeights:
        """Build from the weight of every sample: any unit, finite, >= 0, some above 0."""
        try:
            array = np.asarray(weights)
            if not np.can_cast(array.dtype, np.float64, "same_kind"):
                array = np.asarray(weights, np.float64)
        except (TypeError, ValueError) as error:
            raise ConfigError.of("weights", "numbers, one per sample", weights) from error
        if array.ndim != 1 or not len(array):
            raise ConfigError(
                f"weights must be one number per sample, got an array of shape {array.shape}",
                field="weights",
            )
        return cls.read(len(array), lambda first, last: array[first:last])

    @classmethod
    def read(cls, samples: int, weights: Callable[[int, int], Any]) -> CumulativeWeights:
        """Build from weights read a part at a time, so that no second array of all is held."""
        lengths = np.empty(samples, np.int64)
        values = lengths.view(np.float64)
        digest = hashlib.sha256()
        parts = [
            slice(first, min(first + _COLUMNS, samples)) for first in range(0, samples, _COLUMNS)
        ]
        bad = 0
        wrong = None
        for part in parts:
            values[part] = weights(part.start, part.stop)
            digest.update(values[part].astype("<f8", copy=False).data)
            outside = np.flatnonzero(~((values[part] >= 0) & (values[part] < np.inf)))
            bad += len(outside)
            wrong = part.start + int(outside[0]) if wrong is None and len(outside) else wrong
        if wrong is not None:
            raise ConfigError(
                f"weights must be finite and >= 0, got {values[wrong]} for sample {wrong}"
                + (f" and {bad - 1} more such" if bad > 1 else ""),
                field="weights",
            )
        largest = max(values[part].max() for part in parts)
        if largest == 0:
            raise ConfigError(f"some weight must be above 0, all {samples} are 0", field="weights")
        exponent = np.frexp(largest)[1]
        bits = (
            exponent + np.frexp(sum(np.ldexp(values[part], -exponent).sum() for part in parts))[1]
        )
        most = 0
        for part in parts:  # a power of two times the weight: equal weights stay equal
            lengths[part] = np.rint(np.ldexp(values[part], _BITS - bits))
            most = max(most, int(lengths[part].max()))
            if part.start:
                lengths[part] += lengths[part.start - _COLUMNS : part.stop - _COLUMNS]
        return cls(lengths, digest.hexdigest()[:12], int(lengths[-_COLUMNS:].sum()), most)

    def turns(self, count: int) -> int:
        """Epochs of `count` positions that take turns on one line: a power of two."""
        return 1 << max(self.total // (self.largest * count), 1).bit_length() - 1

    def columns(self, seed: int, cycle: int) -> tuple[np.ndarray, np.ndarray]:
        """The columns in the order of this cycle, and where each ends on the line: int64, int64."""

        def make() -> tuple[np.ndarray, np.ndarray]:
            count = min(len(self.ends), _COLUMNS)
            last = self.ends[-count:]  # one of each column
            order = permute(np.arange(count), count, (seed, _LINE, cycle))
            return order, np.cumsum(last[(order - len(self.ends)) % count])

        return self.recent.get_or_make((seed, cycle), make)

    def samples(self, columns: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The sample at each offset of a column, and its start in the column: int64, int64."""
        low = np.zeros_like(columns)
        high = (len(self.ends) - 1 - columns) // _COLUMNS  # the last of the column
        for _ in range(int(high.max(initial=0)).bit_length()):
            middle = (low + high) // 2
            is_behind = self.ends[columns + middle * _COLUMNS] <= offsets
            low = np.where(is_behind, middle + 1, low)
            high = np.where(is_behind, high, middle)
        index = columns + low * _COLUMNS
        return index, np.where(low > 0, self.ends[np.maximum(index - _COLUMNS, 0)], 0)


@checked
@dataclass(frozen=True, slots=True)
class Weighted:
    """Each sample in proportion to its weight, weight 0 never.

    Systematic resampling: marks at equal distances, as many as the epoch has positions, on a line
    where each sample is as long as its weight; a sample comes once for every mark on it. So it
    comes as often as expected, rounded up or down, in every epoch. The line has another order in
    every epoch, so that samples come independently of each other.
    Short epochs take turns: where no sample is expected more than half (a quarter, ...) of the
    time, two (four, ...) consecutive epochs share no sample. A sample that comes several times in
    an epoch is augmented differently each time. Reads from anywhere in storage; keeps 8 bytes per
    sample in memory, and up to 8 MB for the epochs in use.

    Args:
        weights (Sequence[float] | np.ndarray | None): One per sample, finite and >= 0, in any unit.
            Default: None, those of the source (`Table(weight=...)`).
        length (int | None): Positions per epoch, at least 1. Default: None, as many as the source
            has samples.

    Raises:
        ConfigError: If weights are negative, not finite or all 0, or `length` is no integer >= 1.

    Example:
        >>> source = ff.Arrays(np.zeros((4, 1, 1, 3), np.uint8), [0, 1, 2, 3])
        >>> feed = ff.Feed(source, [], batch=4, shuffle=ff.Weighted([0, 1, 1, 2]))
        >>> np.bincount(next(iter(feed)).labels, minlength=4)
        array([0, 1, 1, 2])
    """

    open: ClassVar[bool] = False

    weights: Any = None
    length: int | None = None

    def __post_init__(self) -> None:
        set_count(self, "length", _MOST)
        if self.weights is not None and not isinstance(self.weights, CumulativeWeights):
            object.__setattr__(self, "weights", CumulativeWeights.of(self.weights))

    def bind(self, source: Any) -> Weighted:
        if self.weights is not None:
            self.positions(len(source))
            return self
        read = getattr(source, "weights", None)
        if read is None or read(np.arange(0)) is None:
            raise ConfigError(
                f"Weighted() takes the weights of the source, and {type(source).__name__} has none;"
                " pass one per sample, as in Weighted(weights)",
                field="weights",
            )
        line = CumulativeWeights.read(len(source), lambda first, last: read(np.arange(first, last)))
        return Weighted(line, self.length)

    def positions(self, samples: int) -> int:
        if self.weights is None:
            raise ConfigError(
                "Weighted() takes the weights of a source and is not bound to one; create a Feed"
                " with it, call its bind(source), or pass one per sample, as in Weighted(weights)"
            )
        if len(self.weights.ends) != samples:
            raise ConfigError(
                f"weights must be one per sample: {samples}, got {len(self.weights.ends)}",
                field="weights",
            )
        length = samples if self.length is None else self.length
        return check_count("positions per epoch of Weighted", length, most=_MOST)

    def visits(self, positions: np.ndarray, epoch: Epoch) -> SampleRefs:
        line = self.weights
        count = epoch.length
        total = line.total
        cycle, turn = divmod(epoch.number, line.turns(count))
        order, edges = line.columns(epoch.seed, cycle)
        quotient, rest = divmod(total, count)  # distance between two marks
        # of all marks, in units of 1 / count
        offset = total * _offset(epoch.seed, cycle, turn) >> _BITS

        def location(marks: np.ndarray) -> np.ndarray:
            return marks * quotient + (marks * rest + offset) // count

        marks = permute(positions, count, (epoch.seed, epoch.number, 0))
        at = location(marks)
        place = np.searchsorted(edges, at, side="right")
        before = np.where(place > 0, edges[place - 1], 0)  # of the column
        ids, begin = line.samples(order[place], at - before)
        begin += before
        # up to two before the first mark
        first = np.maximum((begin / total * count).astype(np.int64) - 1, 0)
        for _ in range(3):  # on it, since doubles may round either way
            first += location(first) < begin
        return SampleRefs(ids, marks - first)


def _offset(seed: int, cycle: int, turn: int) -> int:
    """Offset of an epoch's marks, in units of 2**-52: van der Corput's sequence plus a start."""
    return (int(f"{turn:0{_BITS}b}"[::-1], 2) + _start(seed, cycle)) % (1 << _BITS)


@lru_cache(maxsize=16)
def _start(seed: int, cycle: int) -> int:
    return int(permute(np.array([0]), 1 << _BITS, (seed, _OFFSET, cycle))[0])
