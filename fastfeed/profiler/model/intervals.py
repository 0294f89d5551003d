"""Interval algebra: which nanoseconds, exactly.

Spans are int64 nanoseconds, shape (n, 2), half-open [start, end). A *set* of spans is sorted,
disjoint, and holds no empty span; `union` makes one of anything, and the others take and give sets.
Everything is O(n log n) or better.

A million spans are usual, so their columns lie in memory one after the other: numpy reads and
selects columns several times as fast as rows.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np


def empty() -> np.ndarray:
    """An empty set of spans: shape (0, 2)."""
    return np.empty((0, 2), np.int64)


def spans(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Columns as spans, shape (n, 2)."""
    return np.array([start, end], np.int64).T


class Timed(Protocol):
    """A table with a start and an end in every row."""

    @property
    def start(self) -> np.ndarray: ...
    @property
    def end(self) -> np.ndarray: ...


def spans_at(table: Timed, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Rows (indexes or a mask) of a table as spans, shape (n, 2)."""
    return spans(table.start[rows], table.end[rows])


def by_start(table: Timed, rows: np.ndarray) -> np.ndarray:
    """These row indexes of a table, ordered by start."""
    return rows[np.argsort(table.start[rows], kind="stable")]


def _chosen_spans(chosen: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    return spans(start, end) if chosen.all() else spans(start[chosen], end[chosen])


def union(*many: np.ndarray) -> np.ndarray:
    """The set of nanoseconds covered by any of these spans, which may overlap, in any order."""
    parts = [part for part in many if len(part)]
    if not parts:
        return empty()
    start, end = (
        (parts[0][:, 0], parts[0][:, 1])
        if len(parts) == 1
        else np.concatenate([part.T for part in parts], 1)
    )
    is_span = end > start
    if not is_span.all():
        start = start[is_span]
        end = end[is_span]
    if (start[1:] > end[:-1]).all():  # a set already
        return spans(start, end)
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start = start[order]
        end = end[order]
    reach = np.maximum.accumulate(end)
    first = np.concatenate([[True], start[1:] > reach[:-1]])  # touching spans become one
    last = np.concatenate([first[1:], [True]])
    return spans(start[first], reach[last])


def measure(a: np.ndarray) -> int:
    """Total length of a set, nanoseconds."""
    return int((a[:, 1] - a[:, 0]).sum())


def complement(a: np.ndarray, start: int, end: int) -> np.ndarray:
    """The rest of [start, end) outside a set."""
    if end <= start:
        return empty()
    a = clip(a, start, end)
    starts = np.concatenate([[start], a[:, 1]])
    ends = np.concatenate([a[:, 0], [end]])
    return _chosen_spans(ends > starts, starts, ends)


def clip(a: np.ndarray, start: int, end: int) -> np.ndarray:
    """The part of a set within [start, end)."""
    if end <= start or not len(a):
        return empty()
    first = np.searchsorted(a[:, 1], start, side="right")  # the first that ends after `start`
    part = a[first : max(first, np.searchsorted(a[:, 0], end))]
    if len(part) and start <= part[0, 0] and part[-1, 1] <= end:
        return part.copy(order="K")
    return spans(np.maximum(part[:, 0], start), np.minimum(part[:, 1], end))


def intersect(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The set of nanoseconds in both sets."""
    if not len(a) or not len(b):
        return empty()
    if len(b) == 1:
        return clip(a, int(b[0, 0]), int(b[0, 1]))
    # the first of b that ends after a begins
    first = np.searchsorted(b[:, 1], a[:, 0], side="right")
    last = np.searchsorted(b[:, 0], a[:, 1], side="left")  # past the last that begins before a ends
    count = np.maximum(last - first, 0)
    of_a = np.repeat(np.arange(len(a)), count)
    of_b = np.arange(len(of_a)) + np.repeat(first - np.cumsum(count) + count, count)
    return spans(np.maximum(a[of_a, 0], b[of_b, 0]), np.minimum(a[of_a, 1], b[of_b, 1]))


def subtract(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Nanoseconds in `a` and not in `b`."""
    if not len(a) or not len(b):
        return spans(a[:, 0], a[:, 1])
    both = intersect(a, b)  # first, so that a large `b` costs no more than what it shares with `a`
    return intersect(a, complement(both, int(a[0, 0]), int(a[-1, 1])))


def overlap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Nanoseconds of the set `b` in each span of `a`, which may overlap: int64, (len(a),)."""
    if not len(b):
        return np.zeros(len(a), np.int64)
    if len(b) == 1:  # a whole recording
        return np.maximum(np.minimum(a[:, 1], b[0, 1]) - np.maximum(a[:, 0], b[0, 0]), 0)
    start, end = np.ascontiguousarray(b[:, 0]), np.ascontiguousarray(b[:, 1])
    before = np.concatenate([[0], np.cumsum(end - start)])

    def up_to(t: np.ndarray) -> np.ndarray:
        at = np.searchsorted(start, t, side="right")  # spans that began by t
        last = np.maximum(at - 1, 0)
        return np.where(at > 0, before[last] + np.minimum(t, end[last]) - start[last], 0)

    return np.maximum(up_to(a[:, 1]) - up_to(a[:, 0]), 0)
