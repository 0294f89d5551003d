"""Spans of a lane of the picture, merged to as many rows as a page can carry.

A lane is a partition of time: every span has one class. Where there are more spans than rows, long ones stay exact and
runs of short ones become *mixes*: so many nanoseconds of each class, and the longest idle slice of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import DeviceResult

__all__ = ["BUSY", "NOTHING", "Lane", "device_lane", "flat", "part", "wait_lane"]

BUSY = ("compute", "comm", "h2d", "other", "overhead")  # classes 0 to 4
NOTHING = len(BUSY)  # neither work nor idle: odd data; in the lane of waits, no wait
FIRST_CAUSE = NOTHING + 1  # class of a cause: this and its value
CLASSES = FIRST_CAUSE + len(Cause)
KEPT = 200  # the longest idle slices stay exact


@dataclass(frozen=True, slots=True)
class Lane:
    """Spans in order, without holes or overlaps."""

    start: np.ndarray  # int64
    end: np.ndarray  # int64
    kind: np.ndarray  # int64, class
    where: np.ndarray  # int64, row of the table of threads and names; 0 none


def device_lane(device: DeviceResult, where: np.ndarray) -> Lane:
    """What the device did, and why it did nothing. `where` is for each slice."""
    sets = [device.busy.get(key, intervals.empty()) for key in BUSY]
    slices = device.slices
    busy = np.concatenate([intervals.empty(), *sets])
    kinds = np.repeat(np.arange(len(BUSY)), [len(one) for one in sets])
    return _filled(
        np.concatenate([busy[:, 0], slices.start]),
        np.concatenate([busy[:, 1], slices.end]),
        np.concatenate([kinds, slices.cause.astype(np.int64) + FIRST_CAUSE]),
        np.concatenate([np.zeros(len(busy), np.int64), where]),
        device.first,
        device.last,
    )


def wait_lane(device: DeviceResult) -> Lane:
    """When host threads waited for input."""
    waits = intervals.clip(device.waits, device.first, device.last)
    kind = np.full(len(waits), Cause.INPUT + FIRST_CAUSE)
    return _filled(waits[:, 0], waits[:, 1], kind, np.zeros(len(waits), np.int64), device.first, device.last)


def _filled(start: np.ndarray, end: np.ndarray, kind: np.ndarray, where: np.ndarray, low: int, high: int) -> Lane:
    """In order, cut to [low, high), overlaps cut off, holes filled with NOTHING."""
    order = np.argsort(start, kind="stable")
    start, end = np.clip(start[order], low, high), np.clip(end[order], low, high)
    kind, where = kind[order], where[order]
    before = np.concatenate([[low], np.maximum.accumulate(end)[:-1]]) if len(end) else end
    start = np.maximum(start, before)
    real = end > start
    start, end, kind, where = start[real], end[real], kind[real], where[real]
    hole_start = np.concatenate([[low], end])
    hole_end = np.concatenate([start, [high]])
    hole = hole_end > hole_start
    start, end = np.concatenate([start, hole_start[hole]]), np.concatenate([end, hole_end[hole]])
    kind = np.concatenate([kind, np.full(hole.sum(), NOTHING)])
    where = np.concatenate([where, np.zeros(hole.sum(), np.int64)])
    order = np.argsort(start, kind="stable")
    return Lane(start[order], end[order], kind[order].astype(np.int64), where[order].astype(np.int64))


def part(lane: Lane, low: int, high: int) -> Lane:
    """The part of a lane within [low, high)."""
    start, end = np.clip(lane.start, low, high), np.clip(lane.end, low, high)
    kept = end > start
    return Lane(start[kept], end[kept], lane.kind[kept], lane.where[kept])


def flat(lane: Lane, limit: int) -> list[int]:
    """Rows for the page, one after the other; at most about `limit`.

    A span is `length, class, where`. A mix is `length, -classes, idle slices, where, length of the longest of them, its
    class`, then `class, nanoseconds` for each. A lane begins at its first start, a row where the one before it ends.
    """
    if not len(lane.start):
        return []
    group = _groups(lane, max(limit, 30))
    first = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    count = np.diff(np.concatenate([first, [len(group)]]))
    length = lane.end - lane.start
    idle = lane.kind >= FIRST_CAUSE
    mixed = np.zeros((len(first), CLASSES), np.int64)
    np.add.at(mixed, (group, lane.kind), length)
    slices = np.bincount(group, idle, len(first)).astype(np.int64)
    by_length = np.lexsort((np.where(idle, length, -1), group))
    longest = by_length[np.cumsum(count) - 1]  # of each group, its longest idle slice if it has one
    rows: list[int] = []
    for index, (at, of, most) in enumerate(zip(first.tolist(), count.tolist(), longest.tolist(), strict=True)):
        if of == 1:
            rows += (int(length[at]), int(lane.kind[at]), int(lane.where[at]))
            continue
        kinds = np.flatnonzero(mixed[index]).tolist()
        at_most = (int(lane.where[most]), int(length[most]), int(lane.kind[most])) if idle[most] else (0, 0, NOTHING)
        rows += (int(mixed[index].sum()), -len(kinds), int(slices[index]), *at_most)
        for kind in kinds:
            rows += (kind, int(mixed[index, kind]))
    return rows


def _groups(lane: Lane, limit: int) -> np.ndarray:
    """Which spans become one row: int64, shape (n,), rising by one."""
    length = lane.end - lane.start
    if len(length) <= limit:
        return np.arange(len(length))
    # a third of the rows for cells, the rest for long spans and what is left of the cells beside them
    cell = max(1, -(-int(lane.end[-1] - lane.start[0]) * 3 // limit))
    long = length >= cell
    idle = np.where(lane.kind >= FIRST_CAUSE, length, 0)
    few = min(KEPT, limit // 10)
    long[np.argpartition(-idle, few)[:few]] = True
    bucket = (lane.start - lane.start[0]) // cell
    new = np.concatenate([[False], (bucket[1:] != bucket[:-1]) | long[1:] | long[:-1]])
    return np.cumsum(new)
