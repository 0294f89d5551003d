"""Results of a selection: shares of each side and class, and duplicates with other labels."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.preprocess.model.plan import JobPlan
from fastfeed.preprocess.model.recipe import Selection
from fastfeed.preprocess.model.record import Label
from fastfeed.preprocess.planning.check_source import label_hash
from fastfeed.preprocess.planning.split import ColumnGroups, Split

_OFF = 0.2  # of the share requested
_SHOWN = 5  # classes


@dataclass(frozen=True, slots=True)
class DuplicatePair:
    """A dropped image and the one that is kept in its favor: ids in the source."""

    kept: int
    dropped: int
    reason: str  # "duplicate_exact", "duplicate_near" or "duplicate_semantic"
    bits: int = 0  # number of differing dHash bits, of 64
    conflict: bool = False  # whether their labels differ
    cosine: float = 1.0  # of their embeddings, where these are compared


def summarize_shares(
    choice: Selection,
    labels: np.ndarray,
    is_kept: np.ndarray,
    drawn: Split,
    pairs: Sequence[DuplicatePair],
    column: ColumnGroups | None = None,
    label_sets: Sequence[tuple[int, ...]] = (),
) -> dict[str, Any]:
    """Results as JSON values, for `sentences`.

    "wanted" (share by split), "images" (count by split), "by_label" (label, count by split in the
    same order, of each class where samples have several), "look_alikes" (images that look like one in a larger split), "ungrouped" (column,
    images without a value), "other_label" (dropped ones with another label, by reason).
    """
    shares: dict[str, Any] = {}
    if conflicts := Counter(pair.reason for pair in pairs if pair.conflict):
        shares["other_label"] = dict(sorted(conflicts.items()))
    if not choice.shares:
        return shares
    if column is not None and (ungrouped := int((is_kept & (column.of < 0)).sum())):
        shares["ungrouped"] = [column.column, ungrouped]
    names = sorted(choice.shares)
    known = np.unique(labels[is_kept])
    counts = {}
    for side, name in enumerate(choice.shares):
        of_side = labels[is_kept & (drawn.side == side)]
        counts[name] = np.bincount(np.searchsorted(known, of_side), minlength=len(known))
    shares["wanted"] = {name: choice.shares[name] for name in names}
    shares["images"] = {name: int(counts[name].sum()) for name in names}
    if drawn.parted:
        shares["look_alikes"] = drawn.parted
    rows = np.stack([known, *(counts[name] for name in names)], axis=1)
    by_label = rows[known >= 0].tolist()
    if label_sets:
        by_label = _by_class(by_label, label_sets)
    return shares | ({"by_label": by_label} if by_label else {})


def _by_class(
    by_label: Sequence[Sequence[int]], label_sets: Sequence[tuple[int, ...]]
) -> list[list[int]]:
    """Rows of each class, from those of sets of classes."""
    totals: dict[int, list[int]] = {}
    for label, *counts in by_label:
        for k in label_sets[label]:
            before = totals.get(k, [0] * len(counts))
            totals[k] = [a + b for a, b in zip(before, counts, strict=True)]
    return [[k, *totals[k]] for k in sorted(totals)]


def counted(plan: JobPlan, rows: np.ndarray, by_class: np.ndarray | None = None) -> dict[str, Any]:
    """The shares of a plan, with images and classes of each split counted as its edits leave them.

    rows: `describe` of its images. by_class: where samples have several, `counts_by_class` of all;
    None: not known, and left out.
    """
    shares = plan.shares
    names = list(shares.get("images", {}))
    if not names:
        return plan.shares
    ids = plan.order[~np.isin(plan.order, plan.edits.gone)]
    side = split_positions(plan, names)[ids]
    totals = np.bincount(side, minlength=len(names)).tolist()
    shares = shares | {"images": dict(zip(names, totals, strict=True))}
    shares.pop("by_label", None)
    if plan.multi:
        table = [] if by_class is None else by_class.tolist()
        by_label = [[k, *counts] for k, counts in enumerate(table) if any(counts)]
        return shares | ({"by_label": by_label} if by_label else {})
    labels = plan.edits.labels(ids, _labels(plan, rows["label"][ids]))
    known = np.unique(labels)
    counts = np.zeros((len(known), len(names)), np.int64)
    np.add.at(counts, (np.searchsorted(known, labels), side), 1)
    by_label = np.column_stack([known, counts])[known >= 0].tolist()
    return shares | ({"by_label": by_label} if by_label else {})


def split_positions(plan: JobPlan, names: Sequence[str]) -> np.ndarray:
    """The split of each image, by position in these names: int64, (length,), -1 if left out."""
    sides = np.full(plan.length, -1, np.int64)
    of_groups = [names.index(folder.split("/")[0]) if names else 0 for folder, _ in plan.groups]
    sides[plan.order] = np.repeat(of_groups, [count for _, count in plan.groups])
    return sides


def counts_by_class(plan: JobPlan, ids: np.ndarray, labels: Sequence[Label]) -> np.ndarray:
    """Samples of each class and split, if these have several: int64, shape (classes, splits).

    ids: of images of the plan that are not gone. labels: their classes.
    """
    names = list(plan.shares.get("images", {}))
    counts = np.zeros((len(plan.classes), len(names)), np.int64)
    if counts.size:
        for side, label in zip(split_positions(plan, names)[ids].tolist(), labels, strict=True):
            counts[list(label) if isinstance(label, tuple) else [], side] += 1
    return counts


def recounted(
    before: JobPlan, plan: JobPlan, rows: np.ndarray, sets: Mapping[int, tuple[int, ...]]
) -> np.ndarray | None:
    """`counts_by_class` of a plan, from those of the plan before its last edits; None if unknown.

    rows: `describe` of its images. sets: classes by the hash that the rows have of them.
    """
    rows_before = before.shares.get("by_label")
    ids = np.union1d(before.edits.ids, plan.edits.ids)
    ids = ids[before.edits.at(ids) != plan.edits.at(ids)]
    ids = ids[np.isin(ids, plan.order)]
    of_source = [sets.get(code) for code in rows["label"][ids].tolist()]
    labels = before.labels(ids, of_source)
    if rows_before is None or None in labels:
        return None
    counts = -counts_by_class(plan, ids, labels)
    for k, *row in rows_before:
        counts[k] += row
    stays = ~np.isin(ids, plan.edits.gone)
    now = [label for label, stay in zip(plan.labels(ids, labels), stays, strict=True) if stay]
    return counts + counts_by_class(plan, ids[stays], now)


def _labels(plan: JobPlan, hashes: np.ndarray) -> np.ndarray:
    """Class numbers of what `describe` keeps of them, -1 for none: int64."""
    numbers = [label for label, *_ in plan.shares.get("by_label", ())]
    names = dict(enumerate(plan.classes)) or {label: str(label) for label in numbers}
    known = {
        label_hash(text): label
        for label, name in reversed(names.items())
        for text in (name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD")))
    }
    codes, which = np.unique(hashes, return_inverse=True)
    return np.array([known.get(code, -1) for code in codes.tolist()], np.int64)[which]


def sentences(shares: dict[str, Any], classes: Sequence[str]) -> tuple[str, ...]:
    """Results of the split and the duplicates in sentences, for a report."""
    return (*map(" has ".join, split_rows(shares)), *concerns(shares, classes))


def split_rows(shares: dict[str, Any]) -> list[tuple[str, str]]:
    """Name of each split, and its images with the share wanted and got, as text."""
    total = sum(shares.get("images", {}).values())
    return [
        (f"{name}/", f"{count:,} of {total:,} images: {share}")
        for name, count in shares.get("images", {}).items()
        for share in [f"{_percent(count, total)}, of {shares['wanted'][name]:.3g} requested"]
    ]


def concerns(shares: dict[str, Any], classes: Sequence[str]) -> tuple[str, ...]:
    """The sentences that may be reasons to plan the job otherwise."""
    lines: list[str] = []
    for reason, count in shares.get("other_label", {}).items():
        kind = reason.removeprefix("duplicate_")
        had = "had another label than the one that is kept"
        lines.append(f"{count:,} {kind} duplicates {had}: {_HINTS[kind]}")
    if "ungrouped" in shares:
        column, count = shares["ungrouped"]
        lines.append(f"images without a value of {column}: {count:,}, each drawn by itself")
    images = list(shares.get("images", {}).values())
    shares_wanted = shares.get("wanted", {})
    largest = max(shares_wanted, key=shares_wanted.__getitem__, default="")  # off as the others are
    for at, (name, wanted) in enumerate(shares_wanted.items()):
        if name == largest:
            continue
        if _is_off(wanted, images[at], sum(images)):
            lines.append(
                f"the share of {name}/ is off by more than a fifth:"
                f" {_percent(images[at], sum(images))} instead of {wanted:.3g}; another split_seed"
                " (--split-seed) draws again"
            )
        lines += _classes_off(shares.get("by_label", []), name, at, wanted, classes)
    if "look_alikes" in shares:
        lines.append(
            f"{shares['look_alikes']:,} images look like one of a larger split, as their groups"
            ' were too large for one; dedupe="near" (--dedupe near) drops such copies'
        )
    return tuple(lines)


def _classes_off(
    by_label: list[list[int]], name: str, at: int, wanted: float, classes: Sequence[str]
) -> list[str]:
    """A sentence on the classes whose share of a split is off, by an image at least."""
    off = []
    for label, *counts in by_label:
        missing = abs(counts[at] - wanted * sum(counts))
        if missing >= 1 and _is_off(wanted, counts[at], sum(counts)):
            off.append((-missing, label, _percent(counts[at], sum(counts))))
    if not off:
        return []
    shown = ", ".join(
        f"{classes[label] if label < len(classes) else label} {got}"
        for _, label, got in sorted(off)[:_SHOWN]
    )
    more = f" and {len(off) - _SHOWN:,} more" if len(off) > _SHOWN else ""
    return [
        f"in {len(off):,} of {len(by_label):,} classes the share of {name}/ is off by more than a"
        f" fifth: {shown}{more}"
    ]


def _is_off(wanted: float, count: int, total: int) -> bool:
    """True if a share is off by more than a fifth of the one requested."""
    return abs(count - wanted * total) > _OFF * wanted * total


_HINTS = {
    "near": (
        'they may be other objects; a smaller distance, or dedupe="exact" (--dedupe exact), keeps'
        " them"
    ),
    "semantic": "they may be other objects; a larger similarity (--similarity) keeps them",
    "exact": "one of the labels is wrong",
}


def _percent(count: int, total: int) -> str:
    return f"{count / max(total, 1):.1%}"
