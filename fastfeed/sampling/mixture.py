"""Mixtures: several sources in one epoch, each with its share and order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.sampling.base import MOST_SAMPLES, Epoch, Visits, check_count
from fastfeed.sampling.blocks import Blocks
from fastfeed.sampling.part_passes import PART, PartPasses
from fastfeed.sampling.permute import permute
from fastfeed.sampling.proportions import proportions_of
from fastfeed.sampling.shard_layout import bounds_of

__all__ = ["MixtureOrder", "MixturePart"]

_AS_STORED, _SHUFFLED, _BLOCKS = range(3)  # how a part is read


@dataclass(frozen=True, slots=True)
class MixturePart:
    """The samples [first, first + length) of a source."""

    first: int
    length: int
    weight: float  # of its share of every batch, in any unit
    order: Literal["full", "none"] | Blocks = "full"

    def __repr__(self) -> str:  # saved states hold this text
        return (
            f"Part(first={self.first!r}, length={self.length!r}, weight={self.weight!r},"
            f" order={self.order!r})"
        )

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ConfigError(f"Part.first must be >= 0, got {self.first}")
        check_count("Part.length", self.length, MOST_SAMPLES)
        if not 0 < self.weight < float("inf"):
            raise ConfigError(
                f"Part.weight must be finite and above 0, got {self.weight!r}; leave the part out"
                " instead"
            )
        if self.order not in ("full", "none") and not isinstance(self.order, Blocks):
            raise ConfigError(
                f'Part.order must be "full", "none" or Blocks(...), got {self.order!r}'
            )


@dataclass(frozen=True, slots=True)
class MixtureOrder:
    """Parts of a source in fixed proportions, spread evenly over every batch.

    In any range of positions a part has its share, to within four samples; in the range from the
    start of the first epoch, to within two. The samples of a part alternate, also across epochs:
    none comes a second time before all came once. Within such a pass they come in the order of the
    part, which for Blocks means from few shards at a time on every rank. A sample that comes
    several times in an epoch is augmented differently each time.
    """

    open: ClassVar[bool] = False

    parts: tuple[MixturePart, ...]
    length: int | None = None  # positions per epoch; None: as many as the parts have samples
    _parts: _Parts = field(init=False, repr=False, compare=False)

    def __repr__(self) -> str:  # saved states hold this text
        return f"Mixed(parts={self.parts!r}, length={self.length!r})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise ConfigError("Mixed needs at least one part, got none")
        if self.length is not None:
            object.__setattr__(
                self, "length", check_count("Mixed.length", self.length, MOST_SAMPLES)
            )
        ordered = sorted(self.parts, key=lambda part: part.first)
        for part, following in pairwise(ordered):
            if part.first + part.length > following.first:
                raise ConfigError(f"parts must not overlap, got {part!r} and {following!r}")
        object.__setattr__(self, "_parts", _Parts(self.parts))

    def __reduce__(self) -> tuple[Any, ...]:
        return MixtureOrder, (self.parts, self.length)

    def bind(self, source: Any) -> MixtureOrder:
        if not any(map(_needs_units, self.parts)):
            return self
        bounds = bounds_of(source)
        return replace(self, parts=tuple(_bound(part, bounds) for part in self.parts))

    def positions(self, samples: int) -> int:
        parts = self._parts
        if not parts.checked:
            for part in self.parts:
                if isinstance(part.order, Blocks):
                    part.order.positions(part.length)
            parts.checked = True
        if parts.last > samples:
            part = next(part for part in self.parts if part.first + part.length > samples)
            raise ConfigError(f"parts must lie in the source's {samples} samples, got {part!r}")
        return parts.total if self.length is None else self.length

    def visits(self, positions: np.ndarray, epoch: Epoch) -> Visits:
        parts = self._parts
        begin = epoch.number * epoch.length  # in the sequence of all epochs
        part_of, number = parts.proportions.assign(begin + positions)
        sizes = parts.sizes[part_of]
        # completed passes through the part, and the index in this pass
        passes, indices = np.divmod(number, sizes)
        kinds = parts.kinds[part_of]
        rows = np.flatnonzero(kinds == _SHUFFLED)
        key = (epoch.seed, PART + part_of[rows], passes[rows], np.zeros_like(rows))
        indices[rows] = permute(indices[rows], sizes[rows], key)
        rows = np.flatnonzero(kinds == _BLOCKS)
        if len(rows):
            walk = parts.walk(epoch)
            own = part_of[rows]
            indices[rows] = walk.indices(
                own, passes[rows], number[rows], positions[rows], epoch.number
            )
        return Visits(parts.firsts[part_of] + indices, passes - parts.completed(begin)[part_of])


class _Parts:
    """The parts as arrays, and the passes through them that are under way."""

    def __init__(self, parts: tuple[MixturePart, ...]) -> None:
        self._parts = parts
        self.proportions = proportions_of(tuple(float(part.weight) for part in parts))
        self.firsts = np.array([part.first for part in parts])
        self.sizes = np.array([part.length for part in parts])
        self.last = int((self.firsts + self.sizes).max())
        self.total = int(self.sizes.sum())
        self.checked = False  # its Blocks are bound, and fit
        self._kinds = np.empty(0, np.int64)
        self._walks: dict[tuple[int, int, int], PartPasses] = {}
        self._completed: tuple[int, np.ndarray] = (-1, self.sizes)

    @property
    def kinds(self) -> np.ndarray:
        """Kind of order of each part."""
        if not len(self._kinds):  # orders that are not bound to a source have none
            self._kinds = np.array([_kind(part) for part in self._parts])
        return self._kinds

    def walk(self, epoch: Epoch) -> PartPasses:
        """The parts in Blocks."""
        key = epoch.seed, epoch.length, epoch.batch
        walk = self._walks.get(key)
        if walk is None:
            kinds = self.kinds.tolist()
            parts = zip(self._parts, kinds, strict=True)
            blocks = [(p.length, p.order if kind == _BLOCKS else None) for p, kind in parts]
            passes = self.completed(epoch.number * epoch.length)
            walk = PartPasses(self.proportions, blocks, *key, passes)  # type: ignore[arg-type]
            self._walks = {key: walk}  # of one plan at a time
        return walk

    def completed(self, slots: int) -> np.ndarray:
        """The passes through each part that the first `slots` slots complete."""
        known, counts = self._completed
        if known != slots:
            parts = np.arange(len(self.sizes))
            counts = self.proportions.counts(parts, np.full(len(parts), slots)) // self.sizes
            self._completed = slots, counts
        return counts


def _kind(part: MixturePart) -> int:
    if isinstance(part.order, Blocks):  # with all blocks in one window, Blocks are a full shuffle
        return _BLOCKS if part.order.count(part.length) > part.order.window else _SHUFFLED
    return _AS_STORED if part.order == "none" else _SHUFFLED


def _bound(part: MixturePart, bounds: np.ndarray) -> MixturePart:
    """The part with the units of storage in it; a unit that it cuts counts as two."""
    if not _needs_units(part):
        return part
    assert isinstance(part.order, Blocks)
    last = part.first + part.length
    inside = slice(np.searchsorted(bounds, part.first, side="right"), np.searchsorted(bounds, last))
    own = np.concatenate([[0], bounds[inside] - part.first, [part.length]])
    return replace(part, order=part.order.over(own))


def _needs_units(part: MixturePart) -> bool:
    return isinstance(part.order, Blocks) and part.order.block is None
