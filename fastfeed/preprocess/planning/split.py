"""Splits images by hashes, so that those that belong together are in one split.

Images belong together if they are connected by steps within the distance, or have the same value in
the group's column. Their split is drawn by a hash: of the lowest value of the column among them, or
else of the lowest SHA-256, or without a survey by the last two parts of the path. What is too large
for the split is cut: into images that share a look-alike, and if that is too large still, into
files of equal bytes; with a column, into groups that share equal files, and then into groups, which
are never cut.

The split of an image depends on nothing else, so more images move none, unless they connect images
that were apart. Stratified, the hashes are an order: of each class the lowest go to the first
split. Then the others do count, and only a job's plan can keep each image where it is.

Appended images join the split of those that they belong to; one that is similar to images in
several is left out, and so is one without a group that is connected to such.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.preprocess.inputs.formats import normalize_names
from fastfeed.preprocess.inputs.inputs import Input, field_value, read_columns
from fastfeed.preprocess.model.recipe import Selection
from fastfeed.printable import printable
from fastfeed.sources.class_names import nfc
from fastfeed.sources.splitting import hashed_fractions, sides_by_class, sides_by_hash

_LAST_TWO_PARTS = re.compile(r"[^/]*/?[^/]*\Z")
# see `_largest_unit`
_WHOLE = 8
_BURST = 24
_OF_SIDE = 0.05
_OF_SMALL_SIDE = 0.7
Edges = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True)
class Similar:
    """Similar images: pairs of ids, int64, the preferred one first."""

    twins: Edges  # equal bytes: the first of them, each of the others
    # as returned by near_pairs, among the first of equal files
    near: tuple[np.ndarray, np.ndarray, np.ndarray]
    rank: np.ndarray  # int64, shape (length,): the place of each in the order of preference
    firsts: np.ndarray  # int64: ids of images that are compared, the first of equal files

    @classmethod
    def none(cls, length: int) -> Similar:
        """No similar images are known, in the order of ids."""
        empty = np.zeros(0, np.int64)
        return cls((empty, empty), (empty, empty, np.zeros(0, np.uint8)), np.arange(length), empty)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The images that are split, and what is known about them."""

    is_kept: np.ndarray  # bool, shape (length,)
    placed: np.ndarray  # splits of the first ones, which are in the job already; -1: left out
    labels: np.ndarray  # int64, shape (length,), -1 for none
    sha: np.ndarray  # uint64, shape (length, 2); 0 where no survey has read it
    similar: Similar
    groups: ColumnGroups | None
    uri: Callable[[int], str]

    @property
    def is_new(self) -> np.ndarray:
        """True for images that are not in the job: bool, shape (length,)."""
        return np.arange(len(self.is_kept)) >= len(self.placed)

    @property
    def edges(self) -> Edges:
        """Pairs of similar images, both of them kept."""
        a, b = (
            np.concatenate(ends)
            for ends in zip(self.similar.twins, self.similar.near, strict=False)
        )
        both = self.is_kept[a] & self.is_kept[b]
        return a[both], b[both]

    def keys(self, ids: np.ndarray) -> list[bytes]:
        """The bytes whose hash draws the split of each of these images."""
        values = [] if self.groups is None else self.groups.values
        texts = [value.encode("utf-8", "surrogatepass") for value in values]
        of = [-1] * len(ids) if self.groups is None else self.groups.of[ids].tolist()
        sums = self.sha[ids].tobytes()
        is_known = np.any(self.sha[ids], axis=1)
        return [
            texts[group]
            if group >= 0
            else sums[16 * k : 16 * k + 16]
            if is_known[k]
            else self._name(id)
            for k, (id, group) in enumerate(zip(ids.tolist(), of, strict=True))
        ]

    def _name(self, id: int) -> bytes:
        name = _LAST_TWO_PARTS.search(self.uri(id))
        return (name[0] if name else "").encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Split:
    """The split of each image, by position in the shares."""

    side: np.ndarray  # int64, shape (length,)
    between: np.ndarray  # bool: appended ones that are similar to images in several splits
    parted: int = 0  # images that look like one in a larger split, as these were cut


def split(choice: Selection, images: Candidates) -> Split:
    """Draw the split of each kept image. ConfigError if a group is larger than its split."""
    shares = list(choice.shares.values())
    length = len(images.is_kept)
    if choice.stratify and (images.labels < 0).all():
        raise ConfigError(
            "stratify: the source has no labels, so there are no classes to give shares; leave"
            " stratify (--stratify) out, or name the label",
            field="stratify",
        )
    ties = _tie(choice, images)
    side = np.full(length, -1, np.int64)
    side[: len(images.placed)] = images.placed
    between = images.is_new & images.is_kept & ties.in_conflict & ~ties.is_cut & ~ties.is_grouped
    is_whole = ~ties.is_cut & ~ties.in_conflict
    for tie, is_meant in ((ties.connected, is_whole), (ties.group, ~is_whole & ties.is_grouped)):
        _follow(side, images.placed, tie, is_meant & images.is_new)
    free = np.flatnonzero(images.is_kept & ~between & (side < 0))
    side[free] = _draw(choice, images, ties.unit, free, side)
    if images.groups is not None and not len(images.placed):
        _check_sizes(choice, images, images.groups, ties.unit, side)
    a, b = images.edges
    crossing = ties.in_conflict[a] & (side[a] != side[b]) & ~between[a] & ~between[b]
    later = np.where(images.is_new[b], b, a)
    between[later[crossing & images.is_new[later]]] = True
    apart = (side[a] != side[b]) & ~between[a] & ~between[b]
    share = np.array([*shares, 0.0])[side]
    smaller = np.where(share[a] < share[b], a, b)
    return Split(side, between, len(np.unique(smaller[apart])))


def _follow(side: np.ndarray, placed: np.ndarray, tie: np.ndarray, is_meant: np.ndarray) -> None:
    """Set the split of these images to the one that placed images of the same tie are in."""
    of_tie = np.full(len(side), -1, np.int64)
    there = np.flatnonzero(placed >= 0)
    of_tie[tie[there]] = placed[there]
    side[is_meant] = of_tie[tie[is_meant]]


def _draw(
    choice: Selection, images: Candidates, unit: np.ndarray, free: np.ndarray, side: np.ndarray
) -> np.ndarray:
    """The splits of these images; `side`: of the others, -1 for none."""
    shares = list(choice.shares.values())
    ids, which, sizes = np.unique(unit[free], return_inverse=True, return_counts=True)
    fractions = hashed_fractions(images.keys(ids), choice.split_seed)
    if not choice.stratify:
        return sides_by_hash(fractions, shares)[which]
    if not len(free):
        return free
    rows, counts = np.unique(
        np.stack([which, images.labels[free]], axis=1), axis=0, return_counts=True
    )
    most = np.lexsort((rows[:, 1], -counts, rows[:, 0]))  # the class that most of a unit has
    labels = rows[most][np.unique(rows[most, 0], return_index=True)[1], 1]
    classes = np.unique(labels)
    held = np.zeros((len(classes), len(shares)), np.int64)
    there = np.flatnonzero(images.is_kept & (side >= 0) & np.isin(images.labels, classes))
    np.add.at(held, (np.searchsorted(classes, images.labels[there]), side[there]), 1)
    return sides_by_class(labels, fractions, shares, sizes, held)[which]


def _check_sizes(
    choice: Selection, images: Candidates, groups: ColumnGroups, unit: np.ndarray, side: np.ndarray
) -> None:
    kept = np.flatnonzero(images.is_kept)
    ids, counts = np.unique(unit[kept], return_counts=True)
    room = np.ceil(np.array(list(choice.shares.values())) * len(kept) - 1e-6)
    for id, count in zip(ids.tolist(), counts.tolist(), strict=True):
        if count <= room[side[id]] or groups.of[id] < 0:
            continue
        name, share = list(choice.shares.items())[side[id]]
        of = np.unique(groups.of[kept[unit[kept] == id]])
        others = len(of[of >= 0]) - 1
        more = f" and {others:,} more that share copies with it have" if others else " has"
        raise ConfigError(
            f"group: {groups.column} {printable(groups.values[groups.of[id]], 60)}{more}"
            f" {count:,} of {len(kept):,} images, more than the share of {name}/ ({share:g}) that"
            " it is drawn for; pass another split_seed (--split-seed), a larger share, or another"
            f" column{', or drop copies (--dedupe near)' if others else ''}",
            field="group",
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Ties:
    """Images that belong together: int64 and bool arrays of shape (length,)."""

    connected: np.ndarray  # connected in any way: the lowest id
    group: np.ndarray  # of one value of the column: the lowest id
    unit: np.ndarray  # drawn together: the id that draws
    is_cut: np.ndarray  # drawn in parts of `connected`
    in_conflict: np.ndarray  # of a whole that the job has in several splits already
    is_grouped: np.ndarray  # with a value of the column


def _tie(choice: Selection, images: Candidates) -> _Ties:
    length = len(images.is_kept)
    is_kept = images.is_kept
    similar = images.similar
    of = np.full(length, -1) if images.groups is None else images.groups.of
    is_grouped = of >= 0
    by_key = (images.sha[:, 1], images.sha[:, 0], np.where(is_grouped, of, length))
    order = np.lexsort(by_key)
    rank = np.empty(length, np.int64)
    rank[order] = np.arange(length)
    members = np.flatnonzero(is_grouped & is_kept)
    firsts = np.full(length, -1, np.int64)
    firsts[of[members[::-1]]] = members[::-1]
    tied = (firsts[of[members]], members)
    group = _roots(length, [tied])
    both = is_kept[similar.near[0]] & is_kept[similar.near[1]]
    a, b, bits = (part[both] for part in similar.near)
    whole = _roots(length, [similar.twins, (a, b), tied])
    largest = _largest_unit(int(is_kept.sum()), min(choice.shares.values()))
    largest = max(largest, int(_sizes(group, is_kept).max(initial=0)))
    unit = _lowest(whole, rank)
    is_cut = _sizes(whole, is_kept) > largest
    in_conflict = _in_several(whole, images.placed)
    if images.groups is not None:
        coarse = _lowest(_roots(length, [similar.twins, tied]), rank)
        fine = _lowest(group, rank)
        too_large = _sizes(coarse, is_kept) > largest
        unit = np.where(is_cut, np.where(too_large, fine, coarse), unit)
        unit = np.where(in_conflict, fine, unit)
    elif is_cut.any():
        equal = bits == 0
        alike = _roots(length, [similar.twins, (a[equal], b[equal])])
        around = _lowest(alike, rank)
        lowest = around.copy()
        np.minimum.at(lowest, alike[a], around[b])
        np.minimum.at(lowest, alike[b], around[a])
        lowest = lowest[alike]
        twins = _roots(length, [similar.twins])
        unit = np.where(is_cut, lowest, unit)
        too_large = is_cut & (_sizes(lowest, is_kept) > largest)
        unit = np.where(too_large, _lowest(twins, rank), unit)
    if images.groups is None:
        in_conflict &= ~is_cut
    return _Ties(whole, group, order[unit], is_cut, in_conflict, is_grouped)


def _in_several(tie: np.ndarray, placed: np.ndarray) -> np.ndarray:
    """True for images of a tie whose placed ones are in several splits."""
    there = np.flatnonzero(placed >= 0)
    lowest = np.full(len(tie), np.iinfo(np.int64).max)
    highest = np.full(len(tie), -1)
    np.minimum.at(lowest, tie[there], placed[there])
    np.maximum.at(highest, tie[there], placed[there])
    return (highest > lowest)[tie]


def _largest_unit(count: int, share: float) -> int:
    """Images that one draw may place together: a twentieth of the smallest split, or a burst."""
    side = count * share
    return int(max(_WHOLE, min(_BURST, _OF_SMALL_SIDE * side), _OF_SIDE * side))


def _sizes(ties: np.ndarray, is_kept: np.ndarray) -> np.ndarray:
    """The number of kept images in the tie of each."""
    return np.bincount(ties, weights=is_kept, minlength=len(ties))[ties]


def _lowest(ties: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """The lowest rank in the tie of each: int64, same shape."""
    lowest = np.full(len(rank), len(rank))
    np.minimum.at(lowest, ties, rank)
    return lowest[ties]


def _roots(length: int, pairs: list[Edges]) -> np.ndarray:
    """The lowest id connected to each by pairs: int64, shape (length,)."""
    a, b = (np.concatenate(ends) for ends in zip(*pairs, strict=True))
    roots = np.arange(length)
    while len(a):
        low = np.minimum(roots[a], roots[b])
        high = np.maximum(roots[a], roots[b])
        if np.array_equal(low, high):
            break
        np.minimum.at(roots, high, low)
        while not np.array_equal(roots, further := roots[roots]):
            roots = further
    return roots


@dataclass(frozen=True, slots=True, eq=False)
class ColumnGroups:
    """Values of a column, as sorted texts, and the one of each image."""

    column: str
    values: list[str]
    of: np.ndarray  # int64, shape (length,): position in `values`, -1 for no value


def read_groups(input: Input, column: str) -> ColumnGroups:
    """Read a column of all samples. ConfigError if it has no values, or others than one each."""
    name = next((n for n in (column, *normalize_names("tar", (column,))) if n in input.columns), "")
    if not name:
        known = ", ".join(input.columns) or "no columns"
        raise ConfigError(
            f"group: {column!r} is not a column of {input.text}, which is opened with {known}; pass"
            f" columns=[{column!r}] where it is opened",
            field="group",
        )
    known_values: dict[str, int] = {}
    of = np.full(len(input.source), -1, np.int64)
    for i, columns in read_columns(input, (name,), "group"):
        value = _as_text(field_value(columns, name), column, input.source.uri, i)
        of[i] = known_values.setdefault(value, len(known_values)) if value else -1
    if not known_values:
        raise ConfigError(
            f"group: no image of {input.text} has a value of {column!r}; pass another column",
            field="group",
        )
    values = sorted(known_values)
    position = np.empty(len(values) + 1, np.int64)
    position[[known_values[value] for value in values]] = np.arange(len(values))
    position[-1] = -1
    return ColumnGroups(column, values, position[of])


def _as_text(value: Any, column: str, uri: Any, i: int) -> str:
    """The value as text, equal for equal numbers; "" for a missing one."""
    if isinstance(value, (list, dict, bytes)):
        raise ConfigError(
            f"group: a value must be a number or a text, got {printable(repr(value), 60)} in column"
            f" {column!r} of {printable(uri(i), None)}; pass a column of one",
            field="group",
        )
    if isinstance(value, float):
        if not math.isfinite(value):
            return ""
        value = int(value) if value.is_integer() else value
    return "" if value is None else nfc(str(value)).strip()
