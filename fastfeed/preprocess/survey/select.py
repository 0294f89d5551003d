"""Which photographs go where: decided from the recipe and the survey alone.

Duplicates. Of files with the same bytes the lowest id stays. Of photographs that look alike, ids are gone through in
order: one is left out if it is within the distance of one that stays, the nearest of these, so that everybody left out
has a likeness among those that stay. Chains are not followed: in A ~ B ~ C, B is left out, and C stays if it is not
like A. What cannot be decoded is never a duplicate, it stays for its shard to say why; what is too plain to be told
apart by its looks is a duplicate of the same bytes only.

Split. Whatever leads from one photograph to another by steps within the distance is on one side, chains included, so
nothing in val/ looks like something in train/. The side is drawn by a hash of the content (of the lowest SHA-256 among
those that are alike), or without a survey by the last two parts of the name: more photographs move none of the others,
unless they look like them; another place of the same data changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fastfeed.preprocess.pixels.geometry import nearest_bucket
from fastfeed.preprocess.recipe import Choice, Recipe, Size
from fastfeed.preprocess.survey.near_duplicates import near_pairs
from fastfeed.preprocess.survey.survey import BAD, GOOD, Survey
from fastfeed.sampling.permute import permute

__all__ = ["DuplicatePair", "Selection", "needs_pixels", "select"]

_ORDER = 0x6F72646572  # sets the order of a plan apart from other permutations of the same seed
_OWN_NAME = re.compile(r"[^/]*/?[^/]*\Z")


@dataclass(frozen=True, slots=True)
class DuplicatePair:
    """A photograph that is left out, and the one that stays in its place: ids in the source."""

    kept: int
    dropped: int
    reason: str  # "duplicate_exact" or "duplicate_near"
    bits: int = 0  # of 64 in which their dHashes differ
    conflict: bool = False  # they have different labels


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """What the plan is made of."""

    groups: list[tuple[str, np.ndarray]]  # folder, and ids in the order of its shards: int64
    left_out: dict[str, int] = field(default_factory=dict)  # how many by reason
    pairs: list[DuplicatePair] = field(default_factory=list)  # by the id that was dropped


@dataclass(frozen=True, slots=True)
class _Alike:
    """Which are alike: pairs of ids, int64, the lower one first."""

    twins: tuple[np.ndarray, np.ndarray]  # the same bytes; the first of them, each of the others
    near: tuple[np.ndarray, np.ndarray, np.ndarray]  # as near_pairs gives them, of the first of each kind of bytes


def needs_pixels(recipe: Recipe) -> bool:
    """Whether the survey must tell what photographs look like: to leave duplicates out, or keep them on one side."""
    return recipe.choice.compares


def select(
    recipe: Recipe, length: int, labels: np.ndarray, survey: Survey | None, uris: Callable[[int], str]
) -> Selection:
    """Groups of the ids of a source of this length, and what is left out of them.

    labels: int64, shape (length,), -1 for none. survey: None where the recipe does not ask for one. uris: asked only of
    photographs that must be told apart by their names.
    """
    choice = recipe.choice
    alike = None if survey is None else _alike(survey, choice.distance)
    pairs = [] if alike is None else _pairs(alike, choice, labels)
    stays = np.ones(length, bool)
    stays[[pair.dropped for pair in pairs]] = False
    left_out = {reason: sum(p.reason == reason for p in pairs) for reason in sorted({p.reason for p in pairs})}
    groups = {"": np.flatnonzero(stays)}
    if choice.val:
        val = _val(choice, stays, survey, alike, uris)
        groups = {"train": np.flatnonzero(stays & ~val), "val": np.flatnonzero(stays & val)}
    if recipe.scaling.mode == "buckets":
        assert survey is not None, "the job makes a survey for buckets"
        groups = _by_bucket(groups, survey, recipe.scaling.buckets)
    if choice.shuffle is not None:
        key = (choice.shuffle, _ORDER)
        groups = {name: ids[permute(np.arange(len(ids)), len(ids), key)] for name, ids in groups.items()}
    return Selection(list(groups.items()), left_out, pairs)


def _alike(survey: Survey, distance: int) -> _Alike:
    rows = survey.rows
    good = np.flatnonzero(rows["state"] != BAD)
    by_bytes = good[np.lexsort((rows["sha"][good, 1], rows["sha"][good, 0]))]  # stable: ids ascend within a run
    same = np.zeros(len(good), bool)
    same[1:] = (rows["sha"][by_bytes[1:]] == rows["sha"][by_bytes[:-1]]).all(axis=1)
    first = by_bytes[np.maximum.accumulate(np.where(same, 0, np.arange(len(good))))]
    firsts = np.sort(by_bytes[~same])
    told = firsts[rows["state"][firsts] == GOOD]
    a, b, bits = near_pairs(rows["dhash"][told], distance)
    return _Alike((first[same], by_bytes[same]), (told[a], told[b], bits))


def _pairs(alike: _Alike, choice: Choice, labels: np.ndarray) -> list[DuplicatePair]:
    """Who is left out in favor of whom."""
    gone: dict[int, tuple[int, str, int]] = {}  # id -> who stays instead, reason, bits
    if choice.dedupe == "near":
        a, b, bits = alike.near
        order = np.lexsort((a, bits, b))
        for one, other, differ in zip(a[order].tolist(), b[order].tolist(), bits[order].tolist(), strict=True):
            if other in gone:
                continue
            if one not in gone:
                gone[other] = one, "duplicate_near", differ
            elif not differ:  # the same hash as one that is left out: as near to the one that stays
                gone[other] = gone[one]
    if choice.dedupe != "none":
        for one, other in zip(*(ids.tolist() for ids in alike.twins), strict=True):
            gone[other] = gone.get(one, (one, "duplicate_exact", 0))
    return [
        DuplicatePair(kept, id, reason, bits, bool(labels[kept] != labels[id] and min(labels[kept], labels[id]) >= 0))
        for id, (kept, reason, bits) in sorted(gone.items())
    ]


def _val(
    choice: Choice, stays: np.ndarray, survey: Survey | None, alike: _Alike | None, uris: Callable[[int], str]
) -> np.ndarray:
    """Which ids are on the side of val/: bool, shape (length,)."""
    val = np.zeros(len(stays), bool)
    named = stays.copy()
    if survey is not None and alike is not None:
        sha = survey.rows["sha"]
        named &= ~sha.any(axis=1)
        roots = _roots(len(stays), [alike.twins, alike.near[:2]])
        order = np.lexsort((sha[:, 1], sha[:, 0]))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        lowest = np.full(len(order), len(order))
        np.minimum.at(lowest, roots, rank)
        known = np.flatnonzero(stays & ~named)
        spokesmen, which = np.unique(order[lowest[roots[known]]], return_inverse=True)
        side = np.array([_drawn(sha[id].tobytes(), choice) for id in spokesmen.tolist()], bool)
        val[known] = side[which]
    for id in np.flatnonzero(named).tolist():
        name = _OWN_NAME.search(uris(id))
        val[id] = _drawn((name[0] if name else "").encode("utf-8", "surrogateescape"), choice)
    return val


def _drawn(name: bytes, choice: Choice) -> bool:
    """Whether what has this name is among the share of val."""
    digest = hashlib.blake2b(name, digest_size=8, key=b"split %d" % choice.split_seed).digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53 < choice.val


def _roots(length: int, pairs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The lowest id that leads to each by pairs: int64, shape (length,)."""
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
    """Each group cut into one per bucket; what is bad goes to the first."""
    rows = survey.rows
    shapes, which = np.unique(np.stack([rows["height"], rows["width"]], axis=1), axis=0, return_inverse=True)
    picked = [nearest_bucket(buckets, *shape) if min(shape) else 0 for shape in shapes.tolist()]
    bucket = np.where(survey.bad, 0, np.array(picked, np.int64)[which.reshape(-1)])
    return {
        f"{folder}/{height}x{width}" if folder else f"{height}x{width}": ids[bucket[ids] == i]
        for folder, ids in groups.items()
        for i, (height, width) in enumerate(buckets)
    }
