"""Slots assigned to parts by weight, as evenly as integers allow.

Two parts of weights v and w divide the slots so that the first part has round(n * v / (v + w)) of
the first n. More parts form a tree of such pairs, built like a Huffman code: the two lightest are
joined until one remains. A joined pair then weighs at most twice as much as its sibling, which
bounds the sum of errors: a part is always less than two slots off its share, for any number of
parts and slots.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

_TOTAL = 2**30  # of integer weights, so that products of two of them fit into 63 bits


@dataclass(frozen=True, slots=True, eq=False)
class Proportions:
    """The tree: node i is part i, or joins two earlier nodes; the last node is the root."""

    # weight of the node's left side, int64; 1 of 1 for parts, which point to themselves
    heavy: np.ndarray
    total: np.ndarray  # weight of both sides, int64
    sides: np.ndarray  # nodes to the left and right, int64, shape (nodes, 2)
    # from the root to each part: (heavy, total, goes left)
    paths: tuple[tuple[tuple[int, int, bool], ...], ...]
    # the same as int64 (3, deepest path, parts); at the end of a shorter one all slots go left
    table: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """The part of all slots that each part has: float64."""
        heavy, total, goes_left = self.table
        return np.prod(np.where(goes_left, heavy, total - heavy) / total, axis=0)

    def assign(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The part of each slot, and how many earlier slots the part has: int64, int64."""
        node = np.full(len(slots), len(self.total) - 1)
        for _ in range(max(map(len, self.paths))):
            heavy = self.heavy[node]
            total = self.total[node]
            quotient = slots // total
            above = 2 * (slots - quotient * total) * heavy + total
            share = above // (2 * total)
            left = quotient * heavy + share
            goes_left = above + 2 * heavy >= 2 * total * (share + 1)  # of the next slot
            slots = np.where(goes_left, left, slots - left)
            node = self.sides[node, np.where(goes_left, 0, 1)]
        return node, slots

    def count(self, part: int, slots: Any) -> Any:
        """Slots of a part among the first `slots` (an integer or an array)."""
        for heavy, total, goes_left in self.paths[part]:
            left = _share(slots, heavy, total)
            slots = left if goes_left else slots - left
        return slots

    def counts(self, parts: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Slots of a part per entry of the last axis, as `count`: int64."""
        for heavy, total, goes_left in zip(
            *(column[:, parts] for column in self.table), strict=True
        ):
            left = _share(slots, heavy, total)
            slots = np.where(goes_left, left, slots - left)
        return slots

    def minimum(self, part: int, slots: int) -> int:
        """Least number of slots of a part in any `slots` consecutive ones."""
        share = Fraction(1)
        error = Fraction(0)
        for heavy, total, goes_left in self.paths[part]:
            side = Fraction(heavy if goes_left else total - heavy, total)
            share = share * side
            error = error * side + Fraction(1, 2)
        return max(0, math.floor(slots * share - 2 * error) + 1) if error else slots


@lru_cache(maxsize=64)
def exact_proportions(weights: tuple[float, ...]) -> Proportions:
    """Proportions for these weights, all above 0.

    Their decimal text counts (0.1 is one tenth), to nine digits of their sum.
    """
    exact = [Fraction(str(weight)) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    integers = [int(weight * scale) for weight in exact]
    integers = [weight // math.gcd(*integers) for weight in integers]
    if sum(integers) > _TOTAL:
        integers = [
            max(round(Fraction(weight * (_TOTAL - len(integers)), sum(integers))), 1)
            for weight in integers
        ]
    heavy = [1] * len(integers)
    total = [1] * len(integers)
    sides = [(i, i) for i in range(len(integers))]
    nodes = [(weight, i) for i, weight in enumerate(integers)]
    heapq.heapify(nodes)
    while len(nodes) > 1:
        (light, right) = heapq.heappop(nodes)
        (heavier, left) = heapq.heappop(nodes)
        heapq.heappush(nodes, (light + heavier, len(total)))
        heavy.append(heavier)
        total.append(light + heavier)
        sides.append((left, right))
    paths: list[tuple[tuple[int, int, bool], ...]] = [()] * len(total)
    for node in range(len(total) - 1, len(integers) - 1, -1):
        for side, goes_left in zip(sides[node], (True, False), strict=True):
            paths[side] = (*paths[node], (heavy[node], total[node], goes_left))
    own = paths[: len(integers)]
    deepest = max(map(len, own))
    table = np.array([[*path, *[(1, 1, True)] * (deepest - len(path))] for path in own], np.int64)
    table = np.ascontiguousarray(table.reshape(len(own), deepest, 3).transpose(2, 1, 0))
    return Proportions(np.array(heavy), np.array(total), np.array(sides), tuple(own), table)


def _share(slots: Any, heavy: Any, total: Any) -> Any:
    """round(slots * heavy / total) of integers or arrays of them, within 63 bits."""
    quotient = slots // total
    return quotient * heavy + (2 * (slots - quotient * total) * heavy + total) // (2 * total)
