"""Merges the spans of a timeline lane into as many rows as fit on a page.

A lane is a partition of time: every span has one class. If there are more spans than rows, long
spans stay exact and
runs of short ones become *mixes*: the nanoseconds of each class, and the longest idle slice among
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import DeviceResult

__all__ = ["BUSY", "NOTHING", "TimelineLane", "clip_lane", "device_lane", "flatten", "wait_lane"]

BUSY = ("compute", "comm", "h2d", "other", "overhead")  # classes 0 to 4
NOTHING = len(BUSY)  # neither work nor idle: inconsistent data; in the lane of waits, no wait
FIRST_CAUSE = NOTHING + 1  # class of a cause: this plus its value
CLASSES = FIRST_CAUSE + len(Cause)
EXACT_IDLE = 200  # the longest idle slices stay exact


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """Spans in order, without holes or overlaps."""

    start: np.ndarray  # int64
    end: np.ndarray  # int64
    kind: np.ndarray  # int64, class
    where: np.ndarray  # int64, row in the table of threads and names; 0 none


def device_lane(device: DeviceResult, where: np.ndarray) -> TimelineLane:
    """What the device did, and why it was idle. `where` has one entry per slice."""
    sets = [device.busy.get(key, intervals.empty()) for key in BUSY]
    slices = device.slices
    busy = np.concatenate([intervals.empty(), *sets])
    kinds = np.repeat(np.arange(len(BUSY)), [len(spans) for spans in sets])
    return _fill_holes(
        np.concatenate([busy[:, 0], slices.start]),
        np.concatenate([busy[:, 1], slices.end]),
        np.concatenate([kinds, slices.cause.astype(np.int64) + FIRST_CAUSE]),
        np.concatenate([np.zeros(len(busy), np.int64), where]),
        device.first,
        device.last,
    )


def wait_lane(device: DeviceResult) -> TimelineLane:
    """When host threads waited for input."""
    waits = intervals.clip(device.waits, device.first, device.last)
    kind = np.full(len(waits), Cause.INPUT + FIRST_CAUSE)
    return _fill_holes(
        waits[:, 0], waits[:, 1], kind, np.zeros(len(waits), np.int64), device.first, device.last
    )


def _fill_holes(
    start: np.ndarray, end: np.ndarray, kind: np.ndarray, where: np.ndarray, low: int, high: int
) -> TimelineLane:
    """In order, clipped to [low, high), without overlaps, holes filled with NOTHING."""
    order = np.argsort(start, kind="stable")
    start, end = np.clip(start[order], low, high), np.clip(end[order], low, high)
    kind, where = kind[order], where[order]
    before = np.concatenate([[low], np.maximum.accumulate(end)[:-1]]) if len(end) else end
    start = np.maximum(start, before)
    nonempty = end > start
    start, end, kind, where = start[nonempty], end[nonempty], kind[nonempty], where[nonempty]
    hole_start = np.concatenate([[low], end])
    hole_end = np.concatenate([start, [high]])
    hole = hole_end > hole_start
    if not hole.any():
        return TimelineLane(start, end, kind, where)
    start, end = np.concatenate([start, hole_start[hole]]), np.concatenate([end, hole_end[hole]])
    kind = np.concatenate([kind, np.full(hole.sum(), NOTHING)])
    where = np.concatenate([where, np.zeros(hole.sum(), np.int64)])
    order = np.argsort(start, kind="stable")
    return TimelineLane(start[order], end[order], kind[order], where[order])


def clip_lane(lane: TimelineLane, low: int, high: int) -> TimelineLane:
    """The part of a lane within [low, high)."""
    part = slice(np.searchsorted(lane.end, low, side="right"), np.searchsorted(lane.start, high))
    start, end = np.maximum(lane.start[part], low), np.minimum(lane.end[part], high)
    return TimelineLane(start, end, lane.kind[part], lane.where[part])


def flatten(lane: TimelineLane, limit: int) -> list[int]:
    """Rows for the page, flattened into one list; at most about `limit` rows.

    A span is `length, class, where`. A mix is `length, -classes, idle slices, where, length of the
    longest slice, its class`, then `class, nanoseconds` for each. The lane starts at its first
    span; each row starts where the previous one ends.
    """
    if not len(lane.start):
        return []
    group = _groups(lane, max(limit, 30))
    first = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    count = np.diff(np.concatenate([first, [len(group)]]))
    length = lane.end - lane.start
    idle = lane.kind >= FIRST_CAUSE
    ns_by_class = np.zeros(len(first) * CLASSES, np.int64)
    np.add.at(ns_by_class, group * CLASSES + lane.kind, length)
    ns_by_class = ns_by_class.reshape(-1, CLASSES)
    slices = np.bincount(group, idle, len(first)).astype(np.int64)
    idle_length = np.where(idle, length, -1)
    is_longest = np.flatnonzero(idle_length == np.maximum.reduceat(idle_length, first)[group])
    longest = np.empty(len(first), np.int64)  # of each group, its longest idle slice if it has one
    longest[group[is_longest]] = is_longest  # the last write wins: of several, the last
    rows: list[int] = []
    for index, (row, size, longest_index) in enumerate(
        zip(first.tolist(), count.tolist(), longest.tolist(), strict=True)
    ):
        if size == 1:
            rows += (int(length[row]), int(lane.kind[row]), int(lane.where[row]))
            continue
        kinds = np.flatnonzero(ns_by_class[index]).tolist()
        longest_idle = (
            (
                int(lane.where[longest_index]),
                int(length[longest_index]),
                int(lane.kind[longest_index]),
            )
            if idle[longest_index]
            else (0, 0, NOTHING)
        )
        rows += (int(ns_by_class[index].sum()), -len(kinds), int(slices[index]), *longest_idle)
        for kind in kinds:
            rows += (kind, int(ns_by_class[index, kind]))
    return rows


def _groups(lane: TimelineLane, limit: int) -> np.ndarray:
    """The row of each span: int64, shape (n,), increasing by at most one."""
    length = lane.end - lane.start
    if len(length) <= limit:
        return np.arange(len(length))
    # a third of the rows for cells, the rest for long spans and the parts of cells next to them
    cell = max(1, -(-int(lane.end[-1] - lane.start[0]) * 3 // limit))
    is_long = length >= cell
    idle = np.where(lane.kind >= FIRST_CAUSE, length, 0)
    exact = min(EXACT_IDLE, limit // 10)
    is_long[np.argpartition(-idle, exact)[:exact]] = True
    bucket = (lane.start - lane.start[0]) // cell
    is_new = np.concatenate([[False], (bucket[1:] != bucket[:-1]) | is_long[1:] | is_long[:-1]])
    return np.cumsum(is_new)
