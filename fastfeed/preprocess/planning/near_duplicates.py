"""Pairs among millions of 64-bit hashes that differ in few bits, exactly.

If hashes are cut into `distance + k` bands, two that differ in at most `distance` bits agree on at
least k bands. So for each choice of k bands, hashes are sorted by these bands and compared within
equal runs. This takes 16 bytes per hash (hash and position), and as much again to sort. A larger k
needs more sorts but far fewer comparisons, and is chosen by estimated cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

_BITS = 64
_ALL_BITS = (1 << _BITS) - 1
# per hash and sort, per pair: measured; only the ratio matters
_SORT_NS = 130.0
_COMPARE_NS = 12.0
_PAIRS_PER_BATCH = 1 << 20  # pairs compared in one go
_CROWD_SIZE = 2048  # larger runs with equal bands are searched by their other bits
_MAX_DEPTH = 3  # levels of recursion
_MAX_CHOICES = 600

Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


def near_pairs(dhash: np.ndarray, distance: int) -> Pairs:
    """Pairs of hashes (uint64, shape (n,)) that differ in at most `distance` bits, in any order.

    Returns (a, b, bits): positions a < b, int64, and the number of differing bits, uint8. Each
    repeated hash is paired with its first occurrence only, and different hashes at their first
    occurrences; other near pairs follow from these.
    """
    order = np.argsort(dhash, kind="stable")
    ordered = dhash[order]
    distinct, starts, counts = np.unique(ordered, return_index=True, return_counts=True)
    first_positions = order[starts]
    first = np.repeat(first_positions, counts)
    is_copy = first != order
    parts = [(first[is_copy], order[is_copy], np.zeros(int(is_copy.sum()), np.uint8))]
    del order, ordered, first
    if distance:
        for a, b, bits in _search(distinct, distance):
            left = first_positions[a]
            right = first_positions[b]
            parts.append((np.minimum(left, right), np.maximum(left, right), bits))
    a, b, bits = (np.concatenate(part) for part in zip(*parts, strict=True))
    return a.astype(np.int64), b.astype(np.int64), bits


def mirrored_pairs(dhash: np.ndarray, distance: int) -> Pairs:
    """As `near_pairs`, of hashes that are near to another one or to its mirror image's."""
    count = len(dhash)
    # in turn, so that the first occurrence of a hash is that of the first image
    a, b, bits = near_pairs(np.stack([dhash, mirror(dhash)], axis=1).reshape(-1), distance)
    pairs = np.minimum(a // 2, b // 2) * count + np.maximum(a // 2, b // 2)
    order = np.lexsort((bits, pairs))
    pairs, first = np.unique(pairs[order], return_index=True)
    low, high = np.divmod(pairs, max(count, 1))
    others = low != high
    return low[others], high[others], bits[order][first][others]


def mirror(dhash: np.ndarray) -> np.ndarray:
    """Hashes of the mirror images: a byte is a row, whose steps are reversed and negated."""
    rows = np.ascontiguousarray(dhash).view(np.uint8)
    reversed_rows = np.packbits(np.unpackbits(rows.reshape(-1, 1), axis=1)[:, ::-1], axis=1)
    return np.ascontiguousarray(~reversed_rows.reshape(-1)).view(np.uint64)


@dataclass(frozen=True, slots=True)
class _Bands:
    """Masks that cut the bits into bands, and the number of bands that a pair must share."""

    masks: np.ndarray  # uint64, shape (bands,)
    share: int

    def choices(self) -> Iterator[tuple[tuple[int, ...], np.uint64]]:
        """Every choice of `share` bands, in a fixed order, with their bits."""
        for choice in combinations(range(len(self.masks)), self.share):
            yield choice, np.bitwise_or.reduce(self.masks[list(choice)])

    def was_searched(self, crowd: np.ndarray, choice: tuple[int, ...]) -> bool:
        """True if an earlier choice of bands has found all pairs of this run."""
        earlier = [i for i in range(choice[-1]) if i not in choice]
        return any(not ((crowd ^ crowd[0]) & self.masks[i]).any() for i in earlier)

    def first(self, differing: np.ndarray) -> np.ndarray:
        """The first `share` bands on which pairs agree, as a bit set: uint64, same shape."""
        missing = np.full(len(differing), self.share, np.int64)
        bit_set = np.zeros(len(differing), np.uint64)
        for i, mask in enumerate(self.masks):
            agree = ((differing & mask) == 0) & (missing > 0)
            bit_set[agree] |= np.uint64(1 << i)
            missing -= agree
        return bit_set


def _search(
    hashes: np.ndarray, distance: int, mask: int = _ALL_BITS, depth: int = 0
) -> Iterator[Pairs]:
    """Near pairs among distinct hashes that differ only in bits of `mask`, each once."""
    # bits that differ at all
    mask &= int(np.bitwise_or.reduce(hashes ^ hashes[0])) if len(hashes) else 0
    bands = _choose_bands(mask, distance, len(hashes))
    if bands is None:
        yield from _all_pairs(hashes, distance)
        return
    for choice, bits in bands.choices():
        keys = hashes & bits
        order = np.argsort(keys)
        keys = keys[order]
        edges = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        starts = np.concatenate([[0], edges])
        counts = np.diff(np.append(starts, len(keys)))
        del keys, edges
        name = np.uint64(sum(1 << i for i in choice))
        is_crowded = counts > _CROWD_SIZE
        for start, count in np.stack([starts, counts], axis=1)[is_crowded].tolist():
            rows = order[start : start + count]
            if bands.was_searched(hashes[rows], choice):
                continue
            if depth == _MAX_DEPTH:  # deeper, a dense run would be searched repeatedly
                inner = _all_pairs(hashes[rows], distance)
            else:
                inner = _search(hashes[rows], distance, mask & ~int(bits), depth + 1)
            for a, b, differ in inner:
                yield from _without_repeats(bands, name, hashes, (rows[a], rows[b], differ))
        is_small_run = (counts > 1) & ~is_crowded
        runs = starts[is_small_run], counts[is_small_run]
        for pairs in _brute_force(hashes, order, *runs, distance):
            yield from _without_repeats(bands, name, hashes, pairs)


def _without_repeats(
    bands: _Bands, name: np.uint64, hashes: np.ndarray, pairs: Pairs
) -> Iterator[Pairs]:
    """These pairs, without those that another choice of bands finds as well."""
    a, b, bits = pairs
    is_first = bands.first(hashes[a] ^ hashes[b]) == name
    yield a[is_first], b[is_first], bits[is_first]


def _all_pairs(hashes: np.ndarray, distance: int) -> Iterator[Pairs]:
    count = len(hashes)
    return _brute_force(hashes, np.arange(count), np.array([0]), np.array([count]), distance)


def _brute_force(
    hashes: np.ndarray, order: np.ndarray, starts: np.ndarray, counts: np.ndarray, distance: int
) -> Iterator[Pairs]:
    """Compare all pairs within runs [start, start + count) of `order`, in batches."""
    ends = np.cumsum(counts)
    at = np.arange(counts.sum()) + np.repeat(starts - (ends - counts), counts)
    # later positions in the same run: each is compared with these
    later = np.repeat(starts + counts, counts) - at - 1
    ends = np.cumsum(later)
    first = 0
    while first < len(at):
        pairs_before = ends[first - 1] if first else 0
        full = int(np.searchsorted(ends, pairs_before + _PAIRS_PER_BATCH, side="right"))
        last = max(first + 1, full)
        block = at[first:last]
        partners = later[first:last]
        other_positions = np.arange(ends[last - 1] - pairs_before) + np.repeat(
            block + 1 - (ends[first:last] - pairs_before - partners), partners
        )
        a = order[np.repeat(block, partners)]
        b = order[other_positions]
        bits = np.bitwise_count(hashes[a] ^ hashes[b])
        near = np.flatnonzero(bits <= distance)
        if len(near):
            yield a[near], b[near], bits[near]
        first = last


def _choose_bands(mask: int, distance: int, count: int) -> _Bands | None:
    """The cheapest way to cut the bits of `mask`; None if brute force is cheaper."""
    width = mask.bit_count()

    def cost(share: int) -> float:
        bands = distance + share
        comparisons = count * count / 2 / 2 ** min(share * width / bands, 60)
        return math.comb(bands, share) * (count * _SORT_NS + comparisons * _COMPARE_NS)

    shares = range(1, width - distance + 1)
    few = [k for k in shares if math.comb(distance + k, k) <= _MAX_CHOICES]
    share = min(few, key=cost, default=0)
    if not share or cost(share) > count * count / 2 * _COMPARE_NS:
        return None
    bit_positions = [i for i in range(_BITS) if mask >> i & 1]
    cuts = np.linspace(0, width, distance + share + 1).round().astype(int)
    masks = [sum(1 << i for i in bit_positions[first:last]) for first, last in pairwise(cuts)]
    return _Bands(np.array(masks, np.uint64), share)
