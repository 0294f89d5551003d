"""An endless row of slots dealt to parts by weight, as evenly as whole numbers allow, and by arithmetic alone.

Two parts of weights v and w share slots so that the first of them has round(n * v / (v + w)) of the first n. More
parts are a tree of such pairs, built like Huffman's code: the two lightest are joined until one is left. A joined pair
then weighs at most twice what its neighbor does, which bounds how errors add up: a part is never two slots off its
share, however many parts there are and however far the row goes on.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["Shares", "shares_of"]

_TOTAL = 2**30  # of integer weights, so that products of two of them fit into 63 bits


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """The tree: node i is part i, or joins two nodes before it; the last one is the root."""

    heavy: np.ndarray  # weight of the node's left side, int64; 1 of 1 for parts, which pass slots on to themselves
    total: np.ndarray  # weight of both sides, int64
    sides: np.ndarray  # nodes to the left and right, int64, shape (nodes, 2)
    paths: tuple[tuple[tuple[int, int, bool], ...], ...]  # from the root to each part: (heavy, total, goes left)

    def deal(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which part has each slot, and how many slots the part had before it: int64, int64."""
        node = np.full(len(slots), len(self.total) - 1)
        for _ in range(max(map(len, self.paths))):
            heavy, total = self.heavy[node], self.total[node]
            left = _share(slots, heavy, total)
            goes_left = _share(slots + 1, heavy, total) > left
            slots = np.where(goes_left, left, slots - left)
            node = self.sides[node, np.where(goes_left, 0, 1)]
        return node, slots

    def count(self, part: int, slots: Any) -> Any:
        """How many of the first so many slots (an integer, or an array of them) a part has."""
        for heavy, total, goes_left in self.paths[part]:
            left = _share(slots, heavy, total)
            slots = left if goes_left else slots - left
        return slots

    def least(self, part: int, slots: int) -> int:
        """How many of any so many slots in a row a part has at least."""
        share, off = Fraction(1), Fraction(0)
        for heavy, total, goes_left in self.paths[part]:
            side = Fraction(heavy if goes_left else total - heavy, total)
            share, off = share * side, off * side + Fraction(1, 2)
        return max(0, math.floor(slots * share - 2 * off) + 1) if off else slots


@lru_cache(maxsize=64)
def shares_of(weights: tuple[float, ...]) -> Shares:
    """By these weights, all above 0. They are taken as they print, 0.1 as one tenth, to nine digits of their sum."""
    exact = [Fraction(str(weight)) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    whole = [weight // math.gcd(*whole) for weight in whole]
    if sum(whole) > _TOTAL:
        whole = [max(round(Fraction(weight * (_TOTAL - len(whole)), sum(whole))), 1) for weight in whole]
    heavy, total, sides = [1] * len(whole), [1] * len(whole), [(i, i) for i in range(len(whole))]
    nodes = [(weight, i) for i, weight in enumerate(whole)]
    heapq.heapify(nodes)
    while len(nodes) > 1:
        (less, right), (more, left) = heapq.heappop(nodes), heapq.heappop(nodes)
        heapq.heappush(nodes, (less + more, len(total)))
        heavy.append(more)
        total.append(less + more)
        sides.append((left, right))
    paths: list[tuple[tuple[int, int, bool], ...]] = [()] * len(total)
    for node in range(len(total) - 1, len(whole) - 1, -1):
        for side, goes_left in zip(sides[node], (True, False), strict=True):
            paths[side] = (*paths[node], (heavy[node], total[node], goes_left))
    return Shares(np.array(heavy), np.array(total), np.array(sides), tuple(paths[: len(whole)]))


def _share(slots: Any, heavy: Any, total: Any) -> Any:
    """round(slots * heavy / total) of integers or arrays of them, within 63 bits."""
    whole, rest = slots // total, slots % total
    return whole * heavy + (2 * rest * heavy + total) // (2 * total)
