"""Interval algebra: which nanoseconds, exactly.

Spans are int64 nanoseconds, shape (n, 2), half-open [start, end). A *set* of spans is sorted, disjoint, and holds no
empty span; `union` makes one of anything, and the others take and give sets. Everything is O(n log n) or better.
"""

from __future__ import annotations

import numpy as np

__all__ = ["clip", "complement", "empty", "intersect", "measure", "overlap", "spans", "subtract", "union"]


def empty() -> np.ndarray:
    """No span: shape (0, 2)."""
    return np.empty((0, 2), np.int64)


def spans(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Columns as spans, shape (n, 2)."""
    return np.column_stack([np.asarray(start, np.int64), np.asarray(end, np.int64)]).reshape(-1, 2)


def union(*many: np.ndarray) -> np.ndarray:
    """The set of nanoseconds that any of these spans covers; spans in any order, overlapping as they like."""
    given = np.concatenate([empty(), *many])
    given = given[given[:, 1] > given[:, 0]]
    if not len(given):
        return empty()
    given = given[np.argsort(given[:, 0], kind="stable")]
    reach = np.maximum.accumulate(given[:, 1])
    first = np.concatenate([[True], given[1:, 0] > reach[:-1]])  # touching spans become one
    last = np.concatenate([first[1:], [True]])
    return np.column_stack([given[first, 0], reach[last]])


def measure(a: np.ndarray) -> int:
    """Nanoseconds of a set."""
    return int((a[:, 1] - a[:, 0]).sum())


def complement(a: np.ndarray, start: int, end: int) -> np.ndarray:
    """What a set leaves of [start, end)."""
    if end <= start:
        return empty()
    a = clip(a, start, end)
    edges = np.concatenate([[start], a.ravel(), [end]]).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]


def clip(a: np.ndarray, start: int, end: int) -> np.ndarray:
    """The part of a set within [start, end)."""
    cut = np.clip(a, start, max(start, end))
    return cut[cut[:, 1] > cut[:, 0]]


def intersect(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Nanoseconds in both sets."""
    if not len(a) or not len(b):
        return empty()
    first = np.searchsorted(b[:, 1], a[:, 0], side="right")  # the first of b that ends after a begins
    last = np.searchsorted(b[:, 0], a[:, 1], side="left")  # past the last that begins before a ends
    count = np.maximum(last - first, 0)
    of_a = np.repeat(np.arange(len(a)), count)
    of_b = np.arange(len(of_a)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return np.column_stack([np.maximum(a[of_a, 0], b[of_b, 0]), np.minimum(a[of_a, 1], b[of_b, 1])])


def subtract(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Nanoseconds in `a` and not in `b`."""
    if not len(a) or not len(b):
        return a.copy()
    both = intersect(a, b)  # first, so that a large `b` costs no more than what it shares with `a`
    return intersect(a, complement(both, int(a[0, 0]), int(a[-1, 1])))


def overlap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Nanoseconds of the set `b` in each span of `a`: int64, shape (len(a),). Spans of `a` may overlap each other."""
    if not len(b):
        return np.zeros(len(a), np.int64)
    before = np.concatenate([[0], np.cumsum(b[:, 1] - b[:, 0])])

    def up_to(t: np.ndarray) -> np.ndarray:
        at = np.searchsorted(b[:, 0], t, side="right")  # spans that began by t
        last = np.maximum(at - 1, 0)
        return np.where(at > 0, before[last] + np.minimum(t, b[last, 1]) - b[last, 0], 0)

    return np.maximum(up_to(a[:, 1]) - up_to(a[:, 0]), 0)
