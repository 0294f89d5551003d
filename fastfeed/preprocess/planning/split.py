"""Assigns photographs to train/ and val/: by their content, and those that look alike to one side.

All photographs connected by steps within the distance are on one side, drawn by a hash of the
lowest SHA-256 among them. A chain of look-alikes may connect half of a catalog, so a group that is
too large for the split is cut: into photographs that share a look-alike, drawn by the lowest
SHA-256 around each, and if that is too large still, into files of equal bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fastfeed.preprocess.model.recipe import Choice
from fastfeed.preprocess.planning.survey import Survey

__all__ = ["Similar", "Split", "split"]

_LAST_TWO_PARTS = re.compile(r"[^/]*/?[^/]*\Z")
_WHOLE, _BURST, _OF_SIDE, _OF_SMALL_SIDE = 8, 24, 0.05, 0.7  # see `_largest_group`


@dataclass(frozen=True, slots=True)
class Similar:
    """Similar photographs: pairs of ids, int64, the preferred one first."""

    twins: tuple[np.ndarray, np.ndarray]  # equal bytes: the first of them, each of the others
    # as returned by near_pairs, among the first of equal files
    near: tuple[np.ndarray, np.ndarray, np.ndarray]
    rank: np.ndarray  # int64, shape (length,): the place of each in the order of preference


@dataclass(frozen=True, slots=True)
class Split:
    """The side of each photograph."""

    val: np.ndarray  # bool, shape (length,)
    between: np.ndarray  # bool: appended ones that are similar to photographs on both sides
    parted: int = 0  # photographs of val/ that look like one of train/, as their group was cut


def split(
    choice: Choice,
    is_kept: np.ndarray,
    survey: Survey | None,
    similar: Similar | None,
    uris: Callable[[int], str],
    placed: np.ndarray,
) -> Split:
    """Draw the side of each photograph in `is_kept`: bool, shape (length,).

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
        is_val = np.array(
            [_is_val(sha[id].tobytes(), choice) for id in representatives.tolist()], bool
        )
        val[hashed] = is_val[which]
        if len(placed):
            between = _keep_sides(val, placed, whole, is_cut) & is_kept
            val[: len(placed)] = placed == 1
        parted = _count_parted(val, is_kept & ~between, similar)
    for id in np.flatnonzero(by_name).tolist():
        name = _LAST_TWO_PARTS.search(uris(id))
        val[id] = _is_val((name[0] if name else "").encode("utf-8", "surrogateescape"), choice)
    return Split(val, between, parted)


def _groups(
    choice: Choice, is_kept: np.ndarray, sha: np.ndarray, similar: Similar
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each photograph: its connected group, the id whose content draws its side, and whether its
    group is cut.
    """
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
        drawn_by = np.where(
            is_cut & (_sizes(lowest, is_kept) > largest), _lowest(twins, rank), drawn_by
        )
    return whole, order[drawn_by], is_cut


def _largest_group(count: int, val: float) -> int:
    """Photographs that one draw may place together.

    A twentieth of the smaller side, so that its share is nearly the one requested; but bursts of
    similar photographs stay whole, also in small jobs, unless they were most of that side.
    """
    side = count * min(val, 1 - val)
    return int(max(_WHOLE, min(_BURST, _OF_SMALL_SIDE * side), _OF_SIDE * side))


def _sizes(groups: np.ndarray, is_kept: np.ndarray) -> np.ndarray:
    """The number of kept photographs in the group of each."""
    return np.bincount(groups, weights=is_kept, minlength=len(groups))[groups]


def _lowest(groups: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """The lowest rank in the group of each: int64, same shape."""
    lowest = np.full(len(rank), len(rank))
    np.minimum.at(lowest, groups, rank)
    return lowest[groups]


def _count_parted(val: np.ndarray, is_kept: np.ndarray, similar: Similar) -> int:
    """Photographs of val/ that are within the distance of one in train/."""
    a, b, _ = similar.near
    is_parted = (val[a] != val[b]) & is_kept[a] & is_kept[b]
    return len(np.unique(np.where(val[a[is_parted]], a[is_parted], b[is_parted])))


def _keep_sides(
    val: np.ndarray, placed: np.ndarray, groups: np.ndarray, is_cut: np.ndarray
) -> np.ndarray:
    """Set `val` of new photographs to the side of placed ones that they are connected with; which
    are with both.
    """
    with_side = np.zeros((2, len(val)), bool)
    for side in (0, 1):
        with_side[side, groups[: len(placed)][placed == side]] = True
    in_train, in_val = with_side[0, groups], with_side[1, groups]
    is_new = (np.arange(len(val)) >= len(placed)) & ~is_cut
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
