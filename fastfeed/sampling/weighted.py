"""Weighted: every sample in proportion to its weight."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.sampling.base import Epoch, Visits, check_count
from fastfeed.sampling.permute import permute

__all__ = ["WeightLine", "Weighted"]

_BITS = 52  # the line is about 2**52 long, and an epoch's offset has as many bits
_LINE, _OFFSET = 2**32, 2**32 + 1  # in keys, in the place of an epoch number, which is smaller
_MOST = 2**31 - 1  # positions per epoch, so that products of two of them fit into 63 bits
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class WeightLine:
    """All samples on a line, each as long as its weight. Their order is unrelated to storage, so that a pattern there
    (every second sample is a cat) has no effect here."""

    ends: np.ndarray = field(compare=False)  # of each sample on the line: int64, shape (samples,)
    digest: str  # of the weights

    def __repr__(self) -> str:
        return f"<{len(self.ends)} weights, {self.digest}>"

    @classmethod
    def of(cls, weights: Any) -> WeightLine:
        """From the weight of every sample: any unit, finite, >= 0, some above 0."""
        try:
            weights = np.ascontiguousarray(weights, np.float64)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"weights must be numbers, one per sample, got {weights!r}") from error
        if weights.ndim != 1 or not len(weights):
            raise ConfigError(f"weights must be one number per sample, got an array of shape {weights.shape}")
        wrong = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
        if len(wrong):
            raise ConfigError(
                f"weights must be finite and >= 0, got {weights[wrong[0]]} for sample {wrong[0]}"
                + (f" and {len(wrong) - 1} more such" if len(wrong) > 1 else "")
            )
        largest = weights.max()
        if largest == 0:
            raise ConfigError(f"some weight must be above 0, all {len(weights)} are 0")
        total = np.frexp(largest)[1] + np.frexp(np.ldexp(weights, -np.frexp(largest)[1]).sum())[1]
        lengths = np.empty(len(weights), np.int64)
        for first in range(0, len(weights), _CHUNK):  # a power of two times the weight: equal weights stay equal
            indices = np.arange(first, min(first + _CHUNK, len(weights)))
            lengths[indices] = np.rint(np.ldexp(weights[_samples_at(indices, len(weights))], _BITS - total))
        return cls(np.cumsum(lengths, out=lengths), hashlib.sha256(weights.astype("<f8").tobytes()).hexdigest()[:12])


@dataclass(frozen=True, slots=True)
class Weighted:
    """Each sample in proportion to its weight, weight 0 never.

    Systematic resampling: marks at equal distances, as many as the epoch has positions, on a line where each sample is
    as long as its weight; a sample comes once for every mark on it. So it comes as often as expected, rounded up or
    down: in one epoch, and also in all of 2**k epochs taken together, since the marks of later epochs halve the
    distances of earlier ones. A sample that comes several times in an epoch is augmented differently each time. Reads
    from anywhere in storage; keeps 8 bytes per sample in memory.

    Args:
        weights (Sequence[float] | np.ndarray | None): One per sample, finite and >= 0, in any unit. Default: None,
            those of the source (`Table(weight=...)`).
        length (int | None): Positions per epoch, at least 1. Default: None, as many as the source has samples.

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
        if self.length is not None:
            object.__setattr__(self, "length", check_count("Weighted.length", self.length, _MOST))
        if self.weights is not None and not isinstance(self.weights, WeightLine):
            object.__setattr__(self, "weights", WeightLine.of(self.weights))

    def bind(self, source: Any) -> Weighted:
        if self.weights is not None:
            self.positions(len(source))
            return self
        read = getattr(source, "weights", None)
        weights = None if read is None else read(np.arange(len(source)))
        if weights is None:
            raise ConfigError(
                f"Weighted() takes the weights of the source, and {type(source).__name__} has none; "
                "pass one per sample, as in Weighted(weights)"
            )
        return Weighted(weights, self.length)

    def positions(self, samples: int) -> int:
        if self.weights is None:
            raise ConfigError(
                "Weighted() takes the weights of a source and is not bound to one; create a Feed with it, "
                "call its bind(source), or pass one per sample, as in Weighted(weights)"
            )
        if len(self.weights.ends) != samples:
            raise ConfigError(f"weights must be one per sample: {samples}, got {len(self.weights.ends)}")
        return check_count("positions per epoch of Weighted", samples if self.length is None else self.length, _MOST)

    def visits(self, positions: np.ndarray, epoch: Epoch) -> Visits:
        ends, count = self.weights.ends, epoch.length
        quotient, rest = divmod(int(ends[-1]), count)  # distance between two marks
        offset = int(ends[-1]) * _offset(epoch) >> _BITS  # of all marks, in units of 1 / count

        def location(marks: np.ndarray) -> np.ndarray:
            return marks * quotient + (marks * rest + offset) // count

        marks = permute(positions, count, (epoch.seed, epoch.number, 0))
        index = np.searchsorted(ends, location(marks), side="right")
        begin = np.where(index > 0, ends[index - 1], 0)
        first = np.maximum((begin / int(ends[-1]) * count).astype(np.int64) - 1, 0)  # up to two before the first mark
        for _ in range(3):  # on it, since doubles may round either way
            first += location(first) < begin
        return Visits(_samples_at(index, len(ends)), marks - first)


def _samples_at(indices: np.ndarray, samples: int) -> np.ndarray:
    """The samples at these indices of the line: int64."""
    return permute(indices, samples, (_LINE,))


def _offset(epoch: Epoch) -> int:
    """The offset of an epoch's marks, as a fraction of their distance in units of 2**-52: the reversed bits of its
    number (van der Corput's sequence), plus a start that depends on the seed."""
    return (int(f"{epoch.number:0{_BITS}b}"[::-1], 2) + _start(epoch.seed)) % (1 << _BITS)


@lru_cache(maxsize=16)
def _start(seed: int) -> int:
    return int(permute(np.array([0]), 1 << _BITS, (seed, _OFFSET))[0])
