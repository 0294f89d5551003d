"""Results of a selection: shares of each side and class, and duplicates with other labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.preprocess.model.recipe import Selection

_OFF = 0.2  # of the share requested
_SHOWN = 5  # classes


@dataclass(frozen=True, slots=True)
class DuplicatePair:
    """A dropped image and the one that is kept in its favor: ids in the source."""

    kept: int
    dropped: int
    reason: str  # "duplicate_exact" or "duplicate_near"
    bits: int = 0  # number of differing dHash bits, of 64
    conflict: bool = False  # whether their labels differ


def shares_of(
    choice: Selection,
    labels: np.ndarray,
    is_kept: np.ndarray,
    val: np.ndarray,
    parted: int,
    pairs: Sequence[DuplicatePair],
) -> dict[str, Any]:
    """Results as JSON values, for `sentences`.

    "val" and "train" (images), "wanted" (the share of val), "by_label" (label, train, val),
    "look_alikes" (of val, that look like one in train), "other_label" (dropped ones with another
    label, by reason).
    """
    shares: dict[str, Any] = {}
    if conflicts := Counter(pair.reason for pair in pairs if pair.conflict):
        shares["other_label"] = dict(sorted(conflicts.items()))
    if not choice.val:
        return shares
    sides = np.flatnonzero(is_kept & ~val), np.flatnonzero(is_kept & val)
    shares |= {"wanted": choice.val, "train": len(sides[0]), "val": len(sides[1])}
    if parted:
        shares["look_alikes"] = parted
    known = np.unique(labels[is_kept])
    which = [np.searchsorted(known, labels[ids]) for ids in sides]
    counts = [np.bincount(of, minlength=len(known)).tolist() for of in which]
    by_label = [list(row) for row in zip(known.tolist(), *counts, strict=True) if row[0] >= 0]
    return shares | ({"by_label": by_label} if by_label else {})


def is_off(wanted: float, train: int, val: int) -> bool:
    """True if the share of val is off by more than a fifth of the one requested."""
    return abs(val - wanted * (train + val)) > _OFF * wanted * (train + val)


def sentences(shares: dict[str, Any], classes: Sequence[str]) -> tuple[str, ...]:
    """Results of the split and the duplicates in sentences, for a report."""
    if "wanted" not in shares:
        return concerns(shares, classes)
    train, val = shares["train"], shares["val"]
    share = f"{_percent(train, val)}, of {shares['wanted']:.3g} requested"
    return (f"val/ has {val:,} of {train + val:,} images: {share}", *concerns(shares, classes))


def concerns(shares: dict[str, Any], classes: Sequence[str]) -> tuple[str, ...]:
    """The sentences that may be reasons to plan the job otherwise."""
    lines: list[str] = []
    for reason, count in shares.get("other_label", {}).items():
        kind = reason.removeprefix("duplicate_")
        had = "had another label than the one that is kept"
        lines.append(f"{count:,} {kind} duplicates {had}: {_HINTS[kind]}")
    if "wanted" not in shares:
        return tuple(lines)
    wanted, train, val = shares["wanted"], shares["train"], shares["val"]
    if is_off(wanted, train, val):
        lines.append(
            f"the share of val/ is off by more than a fifth: {_percent(train, val)} instead of"
            f" {wanted:.3g}; another split_seed (--split-seed) draws again"
        )
    by_label = shares.get("by_label", [])
    off = [row for row in by_label if is_off(wanted, *row[1:])]
    if off:
        off.sort(key=lambda row: -abs(row[2] - wanted * (row[1] + row[2])))
        shown = ", ".join(f"{_name(classes, row[0])} {_percent(*row[1:])}" for row in off[:_SHOWN])
        more = f" and {len(off) - _SHOWN:,} more" if len(off) > _SHOWN else ""
        lines.append(
            f"in {len(off):,} of {len(by_label):,} classes the share of val/ is off by more than a"
            f" fifth: {shown}{more}"
        )
    if "look_alikes" in shares:
        lines.append(
            f"{shares['look_alikes']:,} images of val/ look like one of train/, as their"
            ' groups were too large for one side; dedupe="near" (--dedupe near) drops such copies'
        )
    return tuple(lines)


_HINTS = {
    "near": (
        'they may be other objects; a smaller distance, or dedupe="exact" (--dedupe exact), keeps'
        " them"
    ),
    "exact": "one of the labels is wrong",
}


def _percent(train: int, val: int) -> str:
    return f"{val / max(train + val, 1):.1%}"


def _name(classes: Sequence[str], label: int) -> str:
    return classes[label] if label < len(classes) else str(label)
