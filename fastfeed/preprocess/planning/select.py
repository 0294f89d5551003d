"""Selects the images of a job and their folders, from the recipe and the survey alone.

Duplicates: of files with equal bytes the lowest id is kept. Similar images are visited in the order
of pixels, bytes and ids, the largest first: one is dropped if it is within the distance of a kept
one, in favor of the nearest of these. Chains are not followed: in A ~ B ~ C, B is dropped, and C is
kept if it is not similar to A. An image that cannot be decoded, or that the recipe excludes, is
never a duplicate; one that is too uniform for a dHash can only be an exact duplicate.

Split: images connected by steps within the distance are on one side, drawn by a hash of the lowest
SHA-256 among them, or without a survey by the last two parts of the path. A group that is too large
for the split is cut: into images that share a look-alike, and if that is too large still, into
files of equal bytes. Appended images join the side of those that they are similar to; one that is
similar to both sides is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastfeed.preprocess.model.image_recipe import Size
from fastfeed.preprocess.model.recipe import Recipe, Selection
from fastfeed.preprocess.pixels.geometry import (
    limit_error,
    nearest_bucket,
    output_error,
    output_geometry,
)
from fastfeed.preprocess.planning.near_duplicates import near_pairs
from fastfeed.preprocess.planning.shares import DuplicatePair, shares_of
from fastfeed.preprocess.planning.survey import BAD, GOOD, Survey, format_name
from fastfeed.sampling.permute import permute
from fastfeed.sources.splitting import hashed_fraction

_SHUFFLE_KEY = 0x6F72646572  # makes this permutation differ from others of the same seed


@dataclass(frozen=True, slots=True, eq=False)
class PlannedGroups:
    """The groups of a plan, and what was left out of them."""

    groups: list[tuple[str, np.ndarray]]  # folder, and ids in the order of its shards: int64
    left_out: dict[str, int] = field(default_factory=dict)  # how many by reason
    pairs: list[DuplicatePair] = field(default_factory=list)  # by the id that was dropped
    shares: dict[str, Any] = field(default_factory=dict)  # see `shares`


def select(
    recipe: Recipe,
    length: int,
    labels: np.ndarray,
    survey: Survey | None,
    uris: Callable[[int], str],
    sides: np.ndarray | None = None,
) -> PlannedGroups:
    """Assign the ids of a source of this length to groups, and drop duplicates.

    labels: int64, shape (length,), -1 for none. survey: None if the recipe needs none. uris: called
    only for images that are split by name. sides: of a job to which images are appended, those that
    it has, which are the first ones: int8, 0 train, 1 val, -1 left out; only the others are in the
    groups.
    """
    placed = np.zeros(0, np.int8) if sides is None else sides
    choice = recipe.choice
    similar = None if survey is None else _find_similar(recipe, survey, placed)
    pairs = [] if similar is None else _pairs(similar, choice, labels, placed)
    is_kept = np.ones(length, bool)
    is_kept[[pair.dropped for pair in pairs]] = False
    left_out = dict(sorted(Counter(pair.reason for pair in pairs).items()))
    val, parted = np.zeros(length, bool), 0
    if choice.val:
        is_kept[: len(placed)] &= placed >= 0
        drawn = split(choice, is_kept, survey, similar, uris, placed)
        val, parted = drawn.val, drawn.parted
        if drawn.between.any():
            left_out["between_splits"] = int(drawn.between.sum())
        is_kept &= ~drawn.between
    shares = shares_of(choice, labels, is_kept, val, parted, pairs)
    is_kept[: len(placed)] = False
    groups = {"": np.flatnonzero(is_kept)}
    if choice.val:
        groups = {"train": np.flatnonzero(is_kept & ~val), "val": np.flatnonzero(is_kept & val)}
    if recipe.scaling.mode == "buckets":
        assert survey is not None, "buckets need a survey"
        groups = _by_bucket(groups, survey, recipe.scaling.buckets)
    if choice.shuffle is not None:
        key = (choice.shuffle, _SHUFFLE_KEY)
        groups = {
            name: ids[permute(np.arange(len(ids)), len(ids), key)] for name, ids in groups.items()
        }
    return PlannedGroups(list(groups.items()), left_out, pairs, shares)


def _find_similar(recipe: Recipe, survey: Survey, placed: np.ndarray) -> Similar:
    """Similar images by preference: those of the job, most pixels, most bytes, source order."""
    rows, length = survey.rows, len(survey)
    new = np.ones(length, np.int8)
    new[: len(placed)] = placed < 0
    new[len(placed) :] = 2
    order = np.lexsort((-rows["bytes"], -rows["height"].astype(np.int64) * rows["width"], new))
    rank = np.empty(length, np.int64)
    rank[order] = np.arange(length)
    is_good = rows["state"] != BAD
    if recipe.choice.dedupe == "near":
        is_good &= ~_excluded(recipe, survey)
    good = np.flatnonzero(is_good)
    # stable: ids ascend within a run
    by_bytes = good[np.lexsort((rows["sha"][good, 1], rows["sha"][good, 0]))]
    same = np.zeros(len(good), bool)
    same[1:] = (rows["sha"][by_bytes[1:]] == rows["sha"][by_bytes[:-1]]).all(axis=1)
    first = by_bytes[np.maximum.accumulate(np.where(same, 0, np.arange(len(good))))]
    firsts = by_bytes[~same]
    hashable = firsts[rows["state"][firsts] == GOOD]
    hashable = hashable[np.argsort(rank[hashable])]
    a, b, bits = near_pairs(rows["dhash"][hashable], recipe.choice.distance)
    return Similar((first[same], by_bytes[same]), (hashable[a], hashable[b], bits), rank)


def _excluded(recipe: Recipe, survey: Survey) -> np.ndarray:
    """Images that the recipe refuses for their format or size: bool, shape (length,)."""
    rows = survey.rows
    facts = np.stack([rows["format"].astype(np.int32), rows["height"], rows["width"]], axis=1)
    kinds, which = np.unique(facts, axis=0, return_inverse=True)
    refused = [bool(kind[1] and kind[2]) and _is_refused(recipe, *kind) for kind in kinds.tolist()]
    return np.array(refused, bool)[which.reshape(-1)]


def _is_refused(recipe: Recipe, format: int, height: int, width: int) -> bool:
    limits = recipe.limits
    if limit_error(limits, format_name(format), height, width) is not None:
        return True
    geometry = output_geometry(recipe.scaling, height, width)
    return output_error(geometry, recipe.encoding.image, limits.max_pixels) is not None


def _pairs(
    similar: Similar, choice: Selection, labels: np.ndarray, placed: np.ndarray
) -> list[DuplicatePair]:
    """Dropped images, and those kept in their favor; images of the job stay."""
    dropped: dict[int, tuple[int, str, int]] = {}  # id -> kept id, reason, bits
    sides = dict(enumerate(placed.tolist()))
    if choice.dedupe == "near":
        a, b, bits = similar.near
        order = np.lexsort((similar.rank[a], bits, similar.rank[b]))
        rows = (part[order].tolist() for part in (a, b, bits))
        for first, second, differing_bits in zip(*rows, strict=True):
            if second in dropped or sides.get(second, -1) >= 0:
                continue
            if first not in dropped:
                if sides.get(first, 0) >= 0:
                    dropped[second] = first, "duplicate_near", differing_bits
            elif not differing_bits:  # equal hash to a dropped one: as near to the kept one
                dropped[second] = dropped[first]
    if choice.dedupe != "none":
        for first, second in zip(*(ids.tolist() for ids in similar.twins), strict=True):
            dropped[second] = dropped.get(first, (first, "duplicate_exact", 0))
    pairs = []
    for id, (kept, reason, bits) in sorted(dropped.items()):
        conflict = labels[kept] != labels[id] and min(labels[kept], labels[id]) >= 0
        pairs.append(DuplicatePair(kept, id, reason, bits, bool(conflict)))
    return pairs


def _by_bucket(
    groups: dict[str, np.ndarray], survey: Survey, buckets: tuple[Size, ...]
) -> dict[str, np.ndarray]:
    """Split each group into one per bucket; bad images go to the first."""
    rows = survey.rows
    sizes = np.stack([rows["height"], rows["width"]], axis=1)
    shapes, which = np.unique(sizes, axis=0, return_inverse=True)
    bucket_of_shape = [
        nearest_bucket(buckets, *size) if min(size) else 0 for size in shapes.tolist()
    ]
    bucket = np.where(survey.bad, 0, np.array(bucket_of_shape, np.int64)[which.reshape(-1)])
    return {
        f"{folder}/{height}x{width}" if folder else f"{height}x{width}": ids[bucket[ids] == i]
        for folder, ids in groups.items()
        for i, (height, width) in enumerate(buckets)
    }


_LAST_TWO_PARTS = re.compile(r"[^/]*/?[^/]*\Z")
_WHOLE, _BURST, _OF_SIDE, _OF_SMALL_SIDE = 8, 24, 0.05, 0.7  # see `_largest_group`


@dataclass(frozen=True, slots=True)
class Similar:
    """Similar images: pairs of ids, int64, the preferred one first."""

    twins: tuple[np.ndarray, np.ndarray]  # equal bytes: the first of them, each of the others
    # as returned by near_pairs, among the first of equal files
    near: tuple[np.ndarray, np.ndarray, np.ndarray]
    rank: np.ndarray  # int64, shape (length,): the place of each in the order of preference


@dataclass(frozen=True, slots=True)
class Split:
    """The side of each image."""

    val: np.ndarray  # bool, shape (length,)
    between: np.ndarray  # bool: appended ones that are similar to images on both sides
    parted: int = 0  # images of val/ that look like one of train/, as their group was cut


def split(
    choice: Selection,
    is_kept: np.ndarray,
    survey: Survey | None,
    similar: Similar | None,
    uris: Callable[[int], str],
    placed: np.ndarray,
) -> Split:
    """Draw the side of each image in `is_kept`: bool, shape (length,).

    placed: sides of the first ones, which are in the job already: int8, 0 train, 1 val, -1 left
    out.
    """
    length = len(is_kept)
    val, between = np.zeros(length, bool), np.zeros(length, bool)
    by_name = is_kept.copy()
    parted = 0
    if survey is not None and similar is not None:
        sha = survey.rows["sha"]
        by_name &= ~sha.any(axis=1)
        whole, drawn_by, is_cut = _groups(choice, is_kept, sha, similar)
        hashed = np.flatnonzero(is_kept & ~by_name)
        representatives, which = np.unique(drawn_by[hashed], return_inverse=True)
        drawn = [_is_val(sha[id].tobytes(), choice) for id in representatives.tolist()]
        val[hashed] = np.array(drawn, bool)[which]
        if len(placed):
            between = _keep_sides(val, placed, whole, is_cut) & is_kept
            val[: len(placed)] = placed == 1
        parted = _count_parted(val, is_kept & ~between, similar)
    for id in np.flatnonzero(by_name).tolist():
        name = _LAST_TWO_PARTS.search(uris(id))
        val[id] = _is_val((name[0] if name else "").encode("utf-8", "surrogateescape"), choice)
    return Split(val, between, parted)


def _groups(
    choice: Selection, is_kept: np.ndarray, sha: np.ndarray, similar: Similar
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group of each image, the id whose content draws its side, and if it is cut."""
    length = len(is_kept)
    order = np.lexsort((sha[:, 1], sha[:, 0]))
    rank = np.empty(length, np.int64)
    rank[order] = np.arange(length)
    is_member = is_kept[similar.near[0]] & is_kept[similar.near[1]]
    a, b, bits = (part[is_member] for part in similar.near)
    whole = _roots(length, [similar.twins, (a, b)])
    largest = _largest_group(int(is_kept.sum()), choice.val)
    drawn_by = _lowest(whole, rank)
    is_cut = _sizes(whole, is_kept) > largest
    if is_cut.any():
        equal = bits == 0
        alike = _roots(length, [similar.twins, (a[equal], b[equal])])
        around = _lowest(alike, rank)
        lowest = around.copy()
        np.minimum.at(lowest, alike[a], around[b])
        np.minimum.at(lowest, alike[b], around[a])
        lowest = lowest[alike]
        twins = _roots(length, [similar.twins])
        drawn_by = np.where(is_cut, lowest, drawn_by)
        too_large = is_cut & (_sizes(lowest, is_kept) > largest)
        drawn_by = np.where(too_large, _lowest(twins, rank), drawn_by)
    return whole, order[drawn_by], is_cut


def _largest_group(count: int, val: float) -> int:
    """Images that one draw may place together: a twentieth of the smaller side, or a burst."""
    side = count * min(val, 1 - val)
    return int(max(_WHOLE, min(_BURST, _OF_SMALL_SIDE * side), _OF_SIDE * side))


def _sizes(groups: np.ndarray, is_kept: np.ndarray) -> np.ndarray:
    """The number of kept images in the group of each."""
    return np.bincount(groups, weights=is_kept, minlength=len(groups))[groups]


def _lowest(groups: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """The lowest rank in the group of each: int64, same shape."""
    lowest = np.full(len(rank), len(rank))
    np.minimum.at(lowest, groups, rank)
    return lowest[groups]


def _count_parted(val: np.ndarray, is_kept: np.ndarray, similar: Similar) -> int:
    """Images of val/ that are within the distance of one in train/."""
    a, b, _ = similar.near
    is_parted = (val[a] != val[b]) & is_kept[a] & is_kept[b]
    return len(np.unique(np.where(val[a[is_parted]], a[is_parted], b[is_parted])))


def _keep_sides(
    val: np.ndarray, placed: np.ndarray, groups: np.ndarray, is_cut: np.ndarray
) -> np.ndarray:
    """Set `val` of new images to the side of similar placed ones; True for those on both."""
    with_side = np.zeros((2, len(val)), bool)
    for side in (0, 1):
        with_side[side, groups[: len(placed)][placed == side]] = True
    in_train, in_val = with_side[0, groups], with_side[1, groups]
    is_new = (np.arange(len(val)) >= len(placed)) & ~is_cut
    val[is_new & in_val] = True
    val[is_new & in_train] = False
    return is_new & in_train & in_val


def _is_val(name: bytes, choice: Selection) -> bool:
    """True if an image of this name or hash is drawn for val/."""
    return hashed_fraction(name, choice.split_seed) < choice.val


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
