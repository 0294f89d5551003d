"""Selects the photographs of a job and their folders, from the recipe and the survey alone.

Duplicates: of files with equal bytes the lowest id is kept. Of similar photographs, ids are visited in order: one is
dropped if it is within the distance of a kept one, in favor of the nearest of these, so every dropped photograph is
similar to a kept one. Chains are not followed: in A ~ B ~ C, B is dropped, and C is kept if it is not similar to A. A
photograph that cannot be decoded is never a duplicate: its shard reports the reason. One that is too uniform for a
dHash can only be an exact duplicate.

Split: all photographs connected by steps within the distance are on one side, chains included, so nothing in val/ is
similar to anything in train/. Appended photographs join the side of those that they are similar to; one that is
similar to both sides is left out. The side is drawn by a hash of the content (the lowest SHA-256 of the connected
ones), or without a survey by the last two parts of the path. Adding photographs moves only those that are similar to
new ones, and moving the data set changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fastfeed.preprocess.image_recipe import Size
from fastfeed.preprocess.pixels.geometry import nearest_bucket
from fastfeed.preprocess.recipe import Choice, Recipe
from fastfeed.preprocess.survey.near_duplicates import near_pairs
from fastfeed.preprocess.survey.survey import BAD, GOOD, Survey
from fastfeed.sampling.permute import permute

__all__ = ["DuplicatePair", "Selection", "needs_pixels", "select"]

_SHUFFLE_KEY = 0x6F72646572  # makes this permutation differ from others of the same seed
_LAST_TWO_PARTS = re.compile(r"[^/]*/?[^/]*\Z")


@dataclass(frozen=True, slots=True)
class DuplicatePair:
    """A dropped photograph and the one that is kept in its favor: ids in the source."""

    kept: int
    dropped: int
    reason: str  # "duplicate_exact" or "duplicate_near"
    bits: int = 0  # number of differing dHash bits, of 64
    conflict: bool = False  # whether their labels differ


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The groups of a plan, and what was left out of them."""

    groups: list[tuple[str, np.ndarray]]  # folder, and ids in the order of its shards: int64
    left_out: dict[str, int] = field(default_factory=dict)  # how many by reason
    pairs: list[DuplicatePair] = field(default_factory=list)  # by the id that was dropped


@dataclass(frozen=True, slots=True)
class _Similar:
    """Similar photographs: pairs of ids, int64, the lower one first."""

    twins: tuple[np.ndarray, np.ndarray]  # equal bytes: the first of them, each of the others
    near: tuple[np.ndarray, np.ndarray, np.ndarray]  # as returned by near_pairs, among the first of equal files


def needs_pixels(recipe: Recipe) -> bool:
    """Whether the survey must compute dHashes: to drop near duplicates, or to keep them on one side of the split."""
    return recipe.choice.compares


def select(
    recipe: Recipe,
    length: int,
    labels: np.ndarray,
    survey: Survey | None,
    uris: Callable[[int], str],
    sides: np.ndarray | None = None,
) -> Selection:
    """Assign the ids of a source of this length to groups, and drop duplicates.

    labels: int64, shape (length,), -1 for none. survey: None if the recipe needs none. uris: called only for
    photographs that are split by name. sides: of a job to which photographs are appended, those that it has, which are
    the first ones: int8, 0 train, 1 val, -1 left out; only the others are in the groups.
    """
    placed = np.zeros(0, np.int8) if sides is None else sides
    choice = recipe.choice
    similar = None if survey is None else _find_similar(survey, choice.distance)
    pairs = [] if similar is None else _pairs(similar, choice, labels)
    is_kept = np.ones(length, bool)
    is_kept[[pair.dropped for pair in pairs]] = False
    left_out = {reason: sum(p.reason == reason for p in pairs) for reason in sorted({p.reason for p in pairs})}
    val = np.zeros(length, bool)
    if choice.val:
        val = _val_mask(choice, is_kept, survey, similar, uris)
        if len(placed) and similar is not None:
            between = _keep_sides(val, placed, similar) & is_kept
            if between.any():
                left_out["between_splits"] = int(between.sum())
            is_kept &= ~between
    is_kept[: len(placed)] = False
    groups = {"": np.flatnonzero(is_kept)}
    if choice.val:
        groups = {"train": np.flatnonzero(is_kept & ~val), "val": np.flatnonzero(is_kept & val)}
    if recipe.scaling.mode == "buckets":
        assert survey is not None, "buckets need a survey"
        groups = _by_bucket(groups, survey, recipe.scaling.buckets)
    if choice.shuffle is not None:
        key = (choice.shuffle, _SHUFFLE_KEY)
        groups = {name: ids[permute(np.arange(len(ids)), len(ids), key)] for name, ids in groups.items()}
    return Selection(list(groups.items()), left_out, pairs)


def _find_similar(survey: Survey, distance: int) -> _Similar:
    rows = survey.rows
    good = np.flatnonzero(rows["state"] != BAD)
    by_bytes = good[np.lexsort((rows["sha"][good, 1], rows["sha"][good, 0]))]  # stable: ids ascend within a run
    same = np.zeros(len(good), bool)
    same[1:] = (rows["sha"][by_bytes[1:]] == rows["sha"][by_bytes[:-1]]).all(axis=1)
    first = by_bytes[np.maximum.accumulate(np.where(same, 0, np.arange(len(good))))]
    firsts = np.sort(by_bytes[~same])
    hashable = firsts[rows["state"][firsts] == GOOD]
    a, b, bits = near_pairs(rows["dhash"][hashable], distance)
    return _Similar((first[same], by_bytes[same]), (hashable[a], hashable[b], bits))


def _pairs(similar: _Similar, choice: Choice, labels: np.ndarray) -> list[DuplicatePair]:
    """Which photograph is dropped in favor of which."""
    dropped: dict[int, tuple[int, str, int]] = {}  # id -> kept id, reason, bits
    if choice.dedupe == "near":
        a, b, bits = similar.near
        order = np.lexsort((a, bits, b))
        for first, second, differing_bits in zip(
            a[order].tolist(), b[order].tolist(), bits[order].tolist(), strict=True
        ):
            if second in dropped:
                continue
            if first not in dropped:
                dropped[second] = first, "duplicate_near", differing_bits
            elif not differing_bits:  # equal hash to a dropped one: as near to the kept one
                dropped[second] = dropped[first]
    if choice.dedupe != "none":
        for first, second in zip(*(ids.tolist() for ids in similar.twins), strict=True):
            dropped[second] = dropped.get(first, (first, "duplicate_exact", 0))
    return [
        DuplicatePair(kept, id, reason, bits, bool(labels[kept] != labels[id] and min(labels[kept], labels[id]) >= 0))
        for id, (kept, reason, bits) in sorted(dropped.items())
    ]


def _val_mask(
    choice: Choice, is_kept: np.ndarray, survey: Survey | None, similar: _Similar | None, uris: Callable[[int], str]
) -> np.ndarray:
    """Which ids go to val/: bool, shape (length,)."""
    val = np.zeros(len(is_kept), bool)
    by_name = is_kept.copy()
    if survey is not None and similar is not None:
        sha = survey.rows["sha"]
        by_name &= ~sha.any(axis=1)
        roots = _roots(len(is_kept), [similar.twins, similar.near[:2]])
        order = np.lexsort((sha[:, 1], sha[:, 0]))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        lowest_rank = np.full(len(order), len(order))
        np.minimum.at(lowest_rank, roots, rank)
        hashed = np.flatnonzero(is_kept & ~by_name)
        representatives, which = np.unique(order[lowest_rank[roots[hashed]]], return_inverse=True)
        is_val = np.array([_is_val(sha[id].tobytes(), choice) for id in representatives.tolist()], bool)
        val[hashed] = is_val[which]
    for id in np.flatnonzero(by_name).tolist():
        name = _LAST_TWO_PARTS.search(uris(id))
        val[id] = _is_val((name[0] if name else "").encode("utf-8", "surrogateescape"), choice)
    return val


def _keep_sides(val: np.ndarray, placed: np.ndarray, similar: _Similar) -> np.ndarray:
    """Set `val` of new photographs to the side of placed ones that they are connected with; which are with both."""
    roots = _roots(len(val), [similar.twins, similar.near[:2]])
    with_side = np.zeros((2, len(val)), bool)
    for side in (0, 1):
        with_side[side, roots[: len(placed)][placed == side]] = True
    in_train, in_val = with_side[0, roots], with_side[1, roots]
    is_new = np.arange(len(val)) >= len(placed)
    val[is_new & in_val] = True
    val[is_new & in_train] = False
    return is_new & in_train & in_val


def _is_val(name: bytes, choice: Choice) -> bool:
    """Whether a photograph of this name or hash is drawn for val/."""
    digest = hashlib.blake2b(name, digest_size=8, key=b"split %d" % choice.split_seed).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53 < choice.val


def _roots(length: int, pairs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The lowest id connected to each by pairs: int64, shape (length,)."""
    a, b = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    roots = np.arange(length)
    while len(a):
        low, high = np.minimum(roots[a], roots[b]), np.maximum(roots[a], roots[b])
        if np.array_equal(low, high):
            break
        np.minimum.at(roots, high, low)
        while not np.array_equal(roots, further := roots[roots]):
            roots = further
    return roots


def _by_bucket(groups: dict[str, np.ndarray], survey: Survey, buckets: tuple[Size, ...]) -> dict[str, np.ndarray]:
    """Split each group into one per bucket; bad photographs go to the first."""
    rows = survey.rows
    shapes, which = np.unique(np.stack([rows["height"], rows["width"]], axis=1), axis=0, return_inverse=True)
    bucket_of_shape = [nearest_bucket(buckets, *shape) if min(shape) else 0 for shape in shapes.tolist()]
    bucket = np.where(survey.bad, 0, np.array(bucket_of_shape, np.int64)[which.reshape(-1)])
    return {
        f"{folder}/{height}x{width}" if folder else f"{height}x{width}": ids[bucket[ids] == i]
        for folder, ids in groups.items()
        for i, (height, width) in enumerate(buckets)
    }
