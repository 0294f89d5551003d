"""Which of millions of 64-bit hashes differ in few bits: an index on bands of bits, exact.

Cut into `distance + k` bands, two hashes that differ in no more than `distance` bits agree on at least k whole bands.
So for each choice of k bands the hashes are sorted by these, and compared with those that have the same: 16 bytes per
hash (itself and where it stands) are held, and as much again to sort. k = 1 is the usual banded index; with a larger k
there are more sorts but far fewer comparisons, and it is chosen by their cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

__all__ = ["near_pairs"]

_BITS = 64
_EVERY = (1 << _BITS) - 1
_SORT_NS, _COMPARE_NS = 130.0, 12.0  # per hash and sort, per pair: measured, only their ratio matters
_AT_ONCE = 1 << 20  # pairs compared in one go
_CROWD = 2048  # hashes with the same bands are searched by their other bits when there are more
_DEPTH = 3  # times
_MOST_CHOICES = 600

Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


def near_pairs(dhash: np.ndarray, distance: int) -> Pairs:
    """Pairs of hashes (uint64, shape (n,)) that differ in at most `distance` bits, in any order.

    Returns (a, b, bits): positions a < b, int64, and in how many bits they differ, uint8. Equal hashes are one: each is
    paired with the first of them alone, and of two different hashes the firsts are paired; whatever else is near
    follows from that. All of these are held, 17 bytes each: very many different hashes that are all alike take room.
    """
    order = np.argsort(dhash, kind="stable")
    ordered = dhash[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(order) else order
    first = np.repeat(order[starts], np.diff(np.append(starts, len(order))))
    again = first != order
    found = [(first[again], order[again], np.zeros(int(again.sum()), np.uint8))]
    distinct, where = ordered[starts], order[starts]
    del order, ordered, first
    if distance:
        for a, b, bits in _different(distinct, distance):
            one, other = where[a], where[b]
            found.append((np.minimum(one, other), np.maximum(one, other), bits))
    a, b, bits = (np.concatenate(part) for part in zip(*found, strict=True))
    return a.astype(np.int64), b.astype(np.int64), bits


@dataclass(frozen=True, slots=True)
class _Bands:
    """How bits are cut, and how many bands a pair must share."""

    masks: np.ndarray  # uint64, shape (bands,)
    share: int

    def choices(self) -> Iterator[tuple[tuple[int, ...], np.uint64]]:
        """Every choice of `share` bands, in a fixed order, and their bits."""
        for chosen in combinations(range(len(self.masks)), self.share):
            yield chosen, np.bitwise_or.reduce(self.masks[list(chosen)])

    def found(self, crowd: np.ndarray, chosen: tuple[int, ...]) -> bool:
        """Whether all pairs of a crowd that shares these bands were found before: it shares an earlier one, too."""
        earlier = [i for i in range(chosen[-1]) if i not in chosen]
        return any(not ((crowd ^ crowd[0]) & self.masks[i]).any() for i in earlier)

    def first(self, differing: np.ndarray) -> np.ndarray:
        """Of pairs that differ in these bits, the first `share` bands that agree, as a bit set: uint64, same shape."""
        left, found = np.full(len(differing), self.share, np.int64), np.zeros(len(differing), np.uint64)
        for i, mask in enumerate(self.masks):
            agree = ((differing & mask) == 0) & (left > 0)
            found[agree] |= np.uint64(1 << i)
            left -= agree
        return found


def _different(hashes: np.ndarray, distance: int, mask: int = _EVERY, depth: int = 0) -> Iterator[Pairs]:
    """Pairs among distinct hashes that may differ in the bits of `mask` alone: positions, each pair once."""
    mask &= int(np.bitwise_or.reduce(hashes ^ hashes[0])) if len(hashes) else 0  # bits that do differ
    bands = _cut(mask, distance, len(hashes))
    if bands is None:
        yield from _all(hashes, np.arange(len(hashes)), np.array([0]), np.array([len(hashes)]), distance)
        return
    for chosen, bits in bands.choices():
        keys = hashes & bits
        order = np.argsort(keys)
        keys = keys[order]
        edges = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        starts = np.concatenate([[0], edges])
        counts = np.diff(np.append(starts, len(keys)))
        del keys, edges
        name = np.uint64(sum(1 << i for i in chosen))
        crowded = counts > _CROWD
        for start, count in zip(starts[crowded].tolist(), counts[crowded].tolist(), strict=True):
            rows = order[start : start + count]
            if bands.found(hashes[rows], chosen):
                continue
            if depth == _DEPTH:  # deeper still, a dense crowd would be searched again and again
                inner = _all(hashes[rows], np.arange(count), np.array([0]), np.array([count]), distance)
            else:
                inner = _different(hashes[rows], distance, mask & ~int(bits), depth + 1)
            for a, b, differ in inner:
                yield from _once(bands, name, hashes, (rows[a], rows[b], differ))
        some = (counts > 1) & ~crowded
        for pairs in _all(hashes, order, starts[some], counts[some], distance):
            yield from _once(bands, name, hashes, pairs)


def _once(bands: _Bands, name: np.uint64, hashes: np.ndarray, pairs: Pairs) -> Iterator[Pairs]:
    """These pairs, without those that another choice of bands finds, too."""
    a, b, bits = pairs
    mine = bands.first(hashes[a] ^ hashes[b]) == name
    yield a[mine], b[mine], bits[mine]


def _all(
    hashes: np.ndarray, order: np.ndarray, starts: np.ndarray, counts: np.ndarray, distance: int
) -> Iterator[Pairs]:
    """Compares all with all within runs [start, start + count) of `order`, about _AT_ONCE pairs at a time."""
    ends = np.cumsum(counts)
    at = np.arange(counts.sum()) + np.repeat(starts - (ends - counts), counts)
    later = np.repeat(starts + counts, counts) - at - 1  # in the same run: each is compared with these
    ends = np.cumsum(later)
    first = 0
    while first < len(at):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _AT_ONCE, side="right")))
        some, many = at[first:last], later[first:last]
        other = np.arange(ends[last - 1] - before) + np.repeat(some + 1 - (ends[first:last] - before - many), many)
        a, b = order[np.repeat(some, many)], order[other]
        bits = np.bitwise_count(hashes[a] ^ hashes[b])
        near = np.flatnonzero(bits <= distance)
        if len(near):
            yield a[near], b[near], bits[near]
        first = last


def _cut(mask: int, distance: int, count: int) -> _Bands | None:
    """The cheapest way to cut the bits of `mask` for so many hashes; None where it is to compare all with all."""
    width = mask.bit_count()

    def cost(share: int) -> float:
        bands = distance + share
        meeting = count * count / 2 / 2 ** min(share * width / bands, 60)
        return math.comb(bands, share) * (count * _SORT_NS + meeting * _COMPARE_NS)

    shares = range(1, width - distance + 1)
    share = min((k for k in shares if math.comb(distance + k, k) <= _MOST_CHOICES), key=cost, default=0)
    if not share or cost(share) > count * count / 2 * _COMPARE_NS:
        return None
    places = [i for i in range(_BITS) if mask >> i & 1]
    cuts = np.linspace(0, width, distance + share + 1).round().astype(int)
    masks = [sum(1 << places[i] for i in range(first, last)) for first, last in pairwise(cuts)]
    return _Bands(np.array(masks, np.uint64), share)
