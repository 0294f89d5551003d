"""Selects the images of a job and their folders, from the recipe and the survey alone.

Duplicates: images are visited in an order of preference, which is that of pixels, bytes and ids,
the largest first, or of times of change, or of ids alone. Of files with equal bytes the first is
kept. One is dropped if it is within the distance of a kept one, in favor of the nearest of these.
Chains are not followed: in A ~ B ~ C, B is dropped, and C is kept if it is not similar to A.
Embeddings are compared by the same rule. An image that cannot be decoded, or that the recipe
excludes, is never a duplicate; one that is too uniform for a dHash can only be an exact duplicate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
from fastfeed.preprocess.planning.near_duplicates import mirrored_pairs, near_pairs
from fastfeed.preprocess.planning.semantic import similar_to_kept
from fastfeed.preprocess.planning.shares import DuplicatePair, summarize_shares
from fastfeed.preprocess.planning.split import Candidates, ColumnGroups, Similar, Split, split
from fastfeed.preprocess.planning.survey import BAD, GOOD, Survey, format_name
from fastfeed.sampling.permute import permute

_SHUFFLE_KEY = 0x6F72646572  # makes this permutation differ from others of the same seed


@dataclass(frozen=True, slots=True, eq=False)
class PlannedGroups:
    """The groups of a plan, and what was left out of them."""

    groups: list[tuple[str, np.ndarray]]  # folder, and ids in the order of its shards: int64
    left_out: dict[str, int] = field(default_factory=dict)  # how many by reason
    pairs: list[DuplicatePair] = field(default_factory=list)  # by the id that was dropped
    shares: dict[str, Any] = field(default_factory=dict)  # see `summarize_shares`

    def shifted(self, by: int) -> PlannedGroups:
        """These groups with all ids larger by this number."""
        groups = [(folder, ids + by) for folder, ids in self.groups]
        pairs = [
            replace(pair, kept=pair.kept + by, dropped=pair.dropped + by) for pair in self.pairs
        ]
        return replace(self, groups=groups, pairs=pairs)


def select(
    recipe: Recipe,
    length: int,
    labels: np.ndarray,
    survey: Survey | None,
    uris: Callable[[int], str],
    sides: np.ndarray | None = None,
    column: ColumnGroups | None = None,
    times: np.ndarray | None = None,
    vectors: np.ndarray | None = None,
    unwanted: np.ndarray | None = None,
    label_sets: Sequence[tuple[int, ...]] = (),
) -> PlannedGroups:
    """Assign the ids of a source of this length to groups, and drop duplicates.

    labels: int64, shape (length,), -1 for none. survey: None if the recipe needs none. uris: called
    only for images that are split by name. sides: of a job to which images are appended, those that
    it has, which are the first ones: int64, position in the recipe's shares, -1 left out; only the
    others are in the groups. column: its values stay in one split. times: of the last change of
    each file, if the newest copy is kept: int64. vectors: embeddings that are compared, as
    `read_vectors` returns them. unwanted: bool, shape (length,), images that will be dropped and so
    are no reason to drop others. label_sets: where samples have several classes, those of a label.
    """
    placed = np.zeros(0, np.int64) if sides is None else sides
    choice = recipe.choice
    shares = recipe.choice.shares
    similar = Similar.none(length)
    if survey is not None:
        similar = _find_similar(recipe, survey, placed, times, unwanted)
    pairs = _pairs(similar, choice, labels, placed, vectors)
    is_kept = np.ones(length, bool)
    is_kept[[pair.dropped for pair in pairs]] = False
    reasons = Counter(pair.reason for pair in pairs if pair.dropped >= len(placed))
    left_out = dict(sorted(reasons.items()))
    drawn = Split(np.zeros(length, np.int64), np.zeros(length, bool))
    if shares:
        is_kept[: len(placed)] &= placed >= 0
        sha = np.zeros((length, 2), np.uint64) if survey is None else survey.rows["sha"]
        drawn = split(choice, Candidates(is_kept, placed, labels, sha, similar, column, uris))
        if drawn.between.any():
            left_out["between_splits"] = int(drawn.between.sum())
        is_kept &= ~drawn.between
    results = summarize_shares(choice, labels, is_kept, drawn, pairs, column, label_sets)
    is_kept[: len(placed)] = False
    sides_by_name = sorted((name, side) for side, name in enumerate(shares or ("",)))
    groups = {name: np.flatnonzero(is_kept & (drawn.side == side)) for name, side in sides_by_name}
    if recipe.scaling.mode == "buckets":
        assert survey is not None, "buckets need a survey"
        groups = _by_bucket(groups, survey, recipe.scaling.buckets)
    if choice.shuffle is not None:
        key = (choice.shuffle, _SHUFFLE_KEY)
        groups = {
            name: ids[permute(np.arange(len(ids)), len(ids), key)] for name, ids in groups.items()
        }
    return PlannedGroups(list(groups.items()), left_out, pairs, results)


def _find_similar(
    recipe: Recipe,
    survey: Survey,
    placed: np.ndarray,
    times: np.ndarray | None,
    unwanted: np.ndarray | None,
) -> Similar:
    """Similar images by preference: those of the job, then as the recipe says, source order."""
    rows = survey.rows
    length = len(survey)
    new = np.ones(length, np.int8)
    new[: len(placed)] = placed < 0
    new[len(placed) :] = 2
    keys = [-rows["bytes"], -rows["height"].astype(np.int64) * rows["width"]]
    if recipe.choice.keep == "newest":
        assert times is not None, "the newest copy needs times"
        keys.append(-times)
    order = np.lexsort((*(keys if recipe.choice.keep != "first" else ()), new))
    rank = np.empty(length, np.int64)
    rank[order] = np.arange(length)
    is_good = rows["state"] != BAD
    if recipe.choice.dedupe in ("near", "semantic"):
        is_good &= ~_excluded(recipe, survey)
    if unwanted is not None:
        is_good &= ~unwanted
    good = np.flatnonzero(is_good)
    by_bytes = good[np.lexsort((rank[good], rows["sha"][good, 1], rows["sha"][good, 0]))]
    same = np.zeros(len(good), bool)
    same[1:] = (rows["sha"][by_bytes[1:]] == rows["sha"][by_bytes[:-1]]).all(axis=1)
    first = by_bytes[np.maximum.accumulate(np.where(same, 0, np.arange(len(good))))]
    firsts = by_bytes[~same]
    hashable = firsts[rows["state"][firsts] == GOOD]
    hashable = hashable[np.argsort(rank[hashable])]
    near = mirrored_pairs if recipe.choice.mirrored else near_pairs
    a, b, bits = near(rows["dhash"][hashable], recipe.choice.distance)
    return Similar((first[same], by_bytes[same]), (hashable[a], hashable[b], bits), rank, firsts)


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
    similar: Similar,
    choice: Selection,
    labels: np.ndarray,
    placed: np.ndarray,
    vectors: np.ndarray | None,
) -> list[DuplicatePair]:
    """Dropped images, and those kept in their favor; images of the job stay."""
    # id -> kept id, reason, bits or cosine
    dropped: dict[int, tuple[int, str, int | float]] = {}
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
    if vectors is not None:
        dropped = _similar_embeddings(similar, choice, vectors, placed)
    if choice.dedupe != "none":
        for first, second in zip(*(ids.tolist() for ids in similar.twins), strict=True):
            dropped[second] = dropped.get(first, (first, "duplicate_exact", 0))
    pairs = []
    for id, (kept, reason, by) in sorted(dropped.items()):
        conflict = bool(labels[kept] != labels[id] and min(labels[kept], labels[id]) >= 0)
        if isinstance(by, float):
            pairs.append(DuplicatePair(kept, id, reason, conflict=conflict, cosine=by))
        else:
            pairs.append(DuplicatePair(kept, id, reason, by, conflict))
    return pairs


def _similar_embeddings(
    similar: Similar, choice: Selection, vectors: np.ndarray, placed: np.ndarray
) -> dict[int, tuple[int, str, int | float]]:
    """Ids that are dropped for their embeddings: kept id, reason, cosine."""
    ids = similar.firsts[vectors[similar.firsts].any(axis=1)]
    ids = ids[np.argsort(similar.rank[ids])]
    is_new = ids >= len(placed)
    side = np.append(placed, 0)[np.minimum(ids, len(placed))]
    stays = ~is_new & (side >= 0)
    kept, cosines = similar_to_kept(vectors, ids, choice.similarity, stays, is_new | stays)
    return {
        id: (first, "duplicate_semantic", cosine)
        for id, first, cosine in zip(ids.tolist(), kept.tolist(), cosines.tolist(), strict=True)
        if first >= 0
    }


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
