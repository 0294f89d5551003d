"""Hands of different items, all items equally often, computed from the number of the hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastfeed.sampling.permute import Key, permute

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
