"""Sides of samples in a split: arithmetic on names, classes, groups and paths."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from fastfeed.errors import ConfigError

KERAS_FORMATS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")


def hashed_fractions(names: Iterable[str | bytes], seed: int) -> np.ndarray:
    """Numbers in [0, 1) that depend on each name and the seed alone: float64."""
    keyed = hashlib.blake2b(digest_size=8, key=b"split %d" % seed)
    digests = []
    for name in names:
        digest = keyed.copy()
        digest.update(name.encode("utf-8", "surrogatepass") if isinstance(name, str) else name)
        digests.append(digest.digest())
    return (np.frombuffer(b"".join(digests), ">u8") >> np.uint64(11)) * 2.0**-53


def sides_by_hash(fractions: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """Side of each sample by its own number alone: int64.

    A side gets its share of all possible names, so the sizes are binomial.
    """
    edges = np.cumsum(shares)[:-1]
    return np.searchsorted(edges, fractions, side="right")


def sides_by_class(
    classes: np.ndarray,
    fractions: np.ndarray,
    shares: Sequence[float],
    sizes: np.ndarray | None = None,
    held: np.ndarray | None = None,
) -> np.ndarray:
    """Sides with the shares in each class, to less than one sample: int64.

    Of each class the samples go to the sides in the order of `fractions`. The samples that rounding
    leaves over go to the sides that are furthest below their share so far.

    Args:
        classes: class of each sample, or of each unit of samples that stay together, int64 (n,).
        fractions: float64 (n,).
        shares: of the sides.
        sizes: samples of each unit, int64 (n,); shares are met to less than one unit then.
        held: samples that sides have already, int64 (classes, sides), by ascending class.
    """
    weights = integer_weights(shares)
    order = np.lexsort((fractions, classes))
    counts = _counts_by_class(
        np.bincount(np.unique(classes, return_inverse=True)[1], sizes).astype(int).tolist(),
        weights,
        None if held is None else held.tolist(),
    )
    sides = np.empty(len(classes), np.int64)
    if sizes is None:
        sides[order] = np.repeat(
            np.arange(len(counts) * len(weights)) % len(weights), np.ravel(counts)
        )
        return sides
    owed = np.zeros(len(weights))  # samples that whole units gave to other sides so far
    starts = np.unique(classes[order], return_index=True)[1]
    for own, units in zip(counts, np.split(order, starts[1:]), strict=True):
        owed += own
        middles = np.cumsum(sizes[units]) - sizes[units] / 2
        edges = np.maximum.accumulate(np.cumsum(owed))[:-1]
        sides[units] = np.searchsorted(edges, middles, side="right")
        owed -= np.bincount(sides[units], sizes[units], len(weights))
    return sides


def _counts_by_class(
    sizes: Sequence[int], weights: Sequence[int], held: Sequence[Sequence[int]] | None
) -> list[list[int]]:
    """Samples of each class that each side gets."""
    total = sum(weights)
    behind = [0] * len(weights)  # samples that each side lacks so far, times `total`
    counts = []
    for row, size in enumerate(sizes):
        exact = [size * weight for weight in weights]  # times `total`
        if held is not None:
            together = size + sum(held[row])
            claims = [
                max(together * weight - has * total, 0)
                for weight, has in zip(weights, held[row], strict=True)
            ]
            exact = [size * total * claim // sum(claims) for claim in claims]
        own = [samples // total for samples in exact]
        for side, samples in enumerate(exact):
            behind[side] += samples - own[side] * total
        order = sorted(
            range(len(weights)), key=lambda side: (not exact[side] % total, -behind[side], side)
        )
        for side in order[: size - sum(own)]:
            own[side] += 1
            behind[side] -= total
        counts.append(own)
    return counts


def sides_by_group(
    groups: np.ndarray, sizes: np.ndarray, shares: Sequence[float], fractions: np.ndarray
) -> np.ndarray:
    """Side of each group, the largest first to the side that lacks most: int64, shape (groups,).

    Args:
        groups: group of each sample, int64 (n,).
        sizes: samples of each group, int64 (groups,).
        shares: of the sides.
        fractions: order of groups of equal size, float64 (groups,).
    """
    lacking = np.array(shares) * len(groups)
    filled = np.zeros(len(shares), np.int64)
    sides = np.empty(len(sizes), np.int64)
    for group in np.lexsort((fractions, -sizes)).tolist():
        side = int(np.lexsort((filled, -lacking.round(6)))[0])
        sides[group] = side
        lacking[side] -= sizes[group]
        filled[side] += sizes[group]
    return sides


def keras_order(paths: Sequence[str], labels: np.ndarray, seed: int | None) -> np.ndarray:
    """Samples as `keras.utils.image_dataset_from_directory` lists them: int64, shape (n,).

    Keras lists class after class, each folder by folder in the order of their paths, and shuffles
    this list by RandomState(seed), or not if `seed` is None.
    """
    folders = [os.path.split(path) for path in paths]
    order = sorted(range(len(paths)), key=lambda i: (labels[i], *folders[i]))
    listed = np.array(order, np.int64)
    if seed is not None:
        if not 0 <= seed < 1 << 32:  # of a RandomState
            raise ConfigError.of("seed", "in [0, 2**32)", seed)
        np.random.RandomState(seed).shuffle(listed)
    return listed


def sides_by_keras(
    paths: Sequence[str], labels: np.ndarray, validation: float, seed: int | None
) -> np.ndarray:
    """Sides as Keras takes them, 0 training and 1 validation: the last samples of its list."""
    sides = np.zeros(len(paths), np.int64)
    sides[keras_order(paths, labels, seed)[len(paths) - int(validation * len(paths)) :]] = 1
    return sides


def integer_weights(shares: Sequence[float]) -> list[int]:
    """Integers in the proportions of the shares' decimal texts: 0.1 is one tenth."""
    exact = [Fraction(str(float(share))) for share in shares]
    scale = math.lcm(*[share.denominator for share in exact])
    return [int(share * scale) for share in exact]
