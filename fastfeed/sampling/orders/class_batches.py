"""ClassBatches: some classes per batch, and several samples of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.printable import printable
from fastfeed.sampling.base import MOST_SAMPLES, Epoch, SampleRefs, check_count
from fastfeed.sampling.orders.classes import Classes
from fastfeed.sampling.orders.deck import Deck

_CLASSES, _SAMPLES = 2**32, 2**32 + 1  # in keys, in the place of an epoch number


@checked
@dataclass(frozen=True, slots=True)
class ClassBatches:
    """Batches of some classes with several samples of each, for metric learning.

    Every run of classes x per_class positions holds that many different classes, drawn at random,
    and as many different samples of each, next to each other. The global batch is one such run or
    several, so that a rank has whole classes if its batch is a multiple of `per_class`.

    Classes come equally often, whatever their sizes: counts of two differ by at most two, in any
    run of batches from the beginning. The samples of a class alternate in the same way, also across
    epochs. A sample that comes several times in an epoch is augmented differently each time. Reads
    from anywhere in storage; keeps 4 bytes per sample in memory.

    Args:
        classes (int): Classes of a run, at least 1. Default: 8.
        per_class (int): Samples of each class in a run, at least 1. Default: 4.
        length (int | None): Positions per epoch, a multiple of classes x per_class. Default: None,
            as many as the source has samples, rounded down to such a multiple.
        by_class (Classes | None): Samples by class, set by `bind`; not for callers. Default: None.

    Raises:
        ConfigError: If an argument is no integer >= 1, or `length` no such multiple. A source with
            fewer classes, or with fewer samples of one of them, is refused by `Feed`, as is a
            global batch that is not a multiple of classes x per_class.

    Example:
        >>> source = ff.Arrays(np.zeros((100, 1, 1, 3), np.uint8), np.arange(100) % 10)
        >>> feed = ff.Feed(source, [], batch=8, shuffle=ff.ClassBatches(classes=4, per_class=2))
        >>> next(iter(feed)).labels
        array([6, 6, 7, 7, 8, 8, 4, 4])
    """

    open: ClassVar[bool] = False

    classes: int = 8
    per_class: int = 4
    length: int | None = None
    by_class: Classes | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("classes", "per_class"):
            number = check_count(f"ClassBatches.{name}", getattr(self, name))
            object.__setattr__(self, name, number)
        if self.length is None:
            return
        length = check_count("ClassBatches.length", self.length, MOST_SAMPLES)
        if length % self.run:
            raise ConfigError.of(
                "ClassBatches.length", f"a multiple of classes x per_class = {self.run}", length
            )
        object.__setattr__(self, "length", length)

    @property
    def run(self) -> int:
        """Positions that belong together; the global batch must be a multiple of this."""
        return self.classes * self.per_class

    def bind(self, source: Any) -> ClassBatches:
        by_class = Classes.read(source, "ClassBatches")
        sizes = by_class.sizes
        if len(sizes) < self.classes:
            raise ConfigError(
                f"ClassBatches(classes={self.classes}) needs as many classes with samples, got"
                f" {len(sizes)} in {printable(repr(source))}; pass classes={len(sizes)} or fewer",
                field="shuffle",
            )
        small = np.flatnonzero(sizes < self.per_class)
        if len(small):
            sample = int(by_class.ids[by_class.firsts[small[0]]])
            number = int(np.asarray(source.label(np.array([sample])))[0])
            names = source.classes
            name = repr(names[number]) if number < len(names) else str(number)
            more = f" and {len(small) - 1} more such classes" if len(small) > 1 else ""
            raise ConfigError(
                f"ClassBatches(per_class={self.per_class}) needs as many samples of every class,"
                f" got {sizes[small[0]]} of class {printable(name)}{more}; pass a lower per_class,"
                " or leave small classes out: ff.where(source, lambda columns:"
                f" np.bincount(columns['label'])[columns['label']] >= {self.per_class})",
                field="shuffle",
            )
        return replace(self, by_class=by_class)

    def positions(self, samples: int) -> int:
        Classes.bound(self.by_class, "ClassBatches", samples)
        return samples // self.run * self.run if self.length is None else self.length

    def visits(self, positions: np.ndarray, epoch: Epoch) -> SampleRefs:
        by_class = self.by_class
        assert by_class is not None  # positions() has checked that
        run, row = np.divmod(positions, self.run)
        place, own_place = np.divmod(row, self.per_class)
        first = epoch.number * (epoch.length // self.run)
        deck = Deck(len(by_class.sizes), self.classes, (epoch.seed, _CLASSES))
        chosen, hand = deck.deal(first + run, place)
        key = epoch.seed, _SAMPLES, chosen
        samples = Deck(by_class.sizes[chosen], self.per_class, key)
        index, times = samples.deal(hand, own_place)
        begin = deck.before(np.full_like(run, first), chosen)
        return SampleRefs(by_class.ids_at(chosen, index), times - samples.before(begin, index))

    def alike(self, id: int) -> np.ndarray:
        assert self.by_class is not None  # positions() has checked that
        return self.by_class.alike(id)
