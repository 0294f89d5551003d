"""ClassBatches: some classes per batch, and several samples of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from fastfeed.arguments import checked
from fastfeed.errors import ConfigError
from fastfeed.printable import printable
from fastfeed.sampling.base import MOST_SAMPLES, Epoch, SampleRefs, set_count
from fastfeed.sampling.orders.classes import Classes
from fastfeed.sampling.permute import Key, permute

# in keys, in the place of an epoch number
_CLASSES = 2**32
_SAMPLES = 2**32 + 1


_ROUND, _CYCLE = range(2)  # in keys


@dataclass(frozen=True, slots=True)
class Deck:
    """Items that are dealt in rounds of hands; within a round no item comes twice.

    A round leaves out as many items as do not fill a hand: a window that moves over a line of all
    items. After a cycle of rounds each item was left out equally often, and the line is permuted.

    Attributes:
        items (int | np.ndarray): Number of items, at least `size`; an array has one deck per row.
        size (int): Items of a hand.
        key (Key): Key of the permutations; its parts may be arrays, too.
    """

    items: int | np.ndarray
    size: int
    key: Key

    def deal(self, hands: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Items at these places of hands, and how often earlier hands had each: int64, int64."""
        rounds, turn = np.divmod(hands, self.items // self.size)
        rest = self.items % self.size
        index = permute(turn * self.size + places, self.items - rest, (*self.key, _ROUND, rounds))
        cycle, turn = self._cycle(rounds)
        line = (turn * rest + rest + index) % self.items
        return permute(line, self.items, (*self.key, _CYCLE, cycle)), self._times(rounds, line)

    def before(self, hands: np.ndarray, item: np.ndarray) -> np.ndarray:
        """Count how often earlier hands had each item: int64."""
        rounds, hand = np.divmod(hands, self.items // self.size)
        rest = self.items % self.size
        cycle, turn = self._cycle(rounds)
        line = permute(item, self.items, (*self.key, _CYCLE, cycle), inverse=True)
        index = (line - (turn + 1) * rest) % self.items
        dealt = self.items - rest  # in this round; the rest of the indices are left out
        key = (*self.key, _ROUND, rounds)
        place = permute(np.minimum(index, dealt - 1), dealt, key, inverse=True)
        has_come = (index < dealt) & (place < hand * self.size)
        return self._times(rounds, line) + has_come

    def _cycle(self, rounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The cycle of each round, and its number in it."""
        rest = self.items % self.size
        return np.divmod(rounds, self.items // np.gcd(self.items, rest))

    def _times(self, rounds: np.ndarray, line: np.ndarray) -> np.ndarray:
        """Count how often the items at these places of the line came in earlier rounds."""
        rest = self.items % self.size
        cycle, turn = self._cycle(rounds)
        left_out = (turn * rest - line + self.items - 1) // self.items
        return rounds - cycle * (rest // np.gcd(self.items, rest)) - left_out


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
        set_count(self, "classes")
        set_count(self, "per_class")
        set_count(self, "length", MOST_SAMPLES)
        if self.length is not None and self.length % self.run:
            must = f"a multiple of classes x per_class = {self.run}"
            raise ConfigError.of("ClassBatches.length", must, self.length)

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
