"""Data of the page's timeline: lanes, steps, gaps; integer nanoseconds since the first op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.columns import factorize
from fastfeed.profiler.model.format import one_line
from fastfeed.profiler.model.result import DeviceResult, Gap, Result
from fastfeed.profiler.reports import figures

PICTURES = 32  # devices with a timeline
MARGIN = 0.4  # of a gap's length, shown before and after it
NAMES = 2000  # pairs of thread and name on a page
STEPS = 4000  # steps on a page
# classes other than causes have dull colors, so that causes stand out
LOOK = {
    "compute": ("compute", "#8492a6"),
    "comm": ("communication (exposed)", "#56677f"),
    "h2d": ("copies to the GPU (exposed)", "#a38a5a"),
    "other": ("other copies (exposed)", "#7f7358"),
    "overhead": ("the profiler at work", "#6f6e77"),
    "nothing": ("not recorded", "#64686f"),
}


def data(result: Result, rows: int) -> dict[str, Any]:
    """Data for `JSON.parse`: about `rows` spans and mixes, five times as many if exact."""
    devices = figures.by_need(result)[:PICTURES]
    begin = dict(zip(map(id, result.devices), figures.offsets(result), strict=True))
    return timelines([(device, begin[id(device)]) for device in devices], rows)


def timelines(devices: Sequence[tuple[DeviceResult, int]], rows: int) -> dict[str, Any]:
    """Return the timelines of any devices, each with the time that its picture calls 0."""
    share = max(1, len(devices))
    look = [{"title": title, "color": color, "means": ""} for title, color in LOOK.values()]
    causes = [{"title": cause.title, "color": cause.color, "means": cause.means} for cause in Cause]
    return {
        "classes": look + causes,
        "busy": len(look),
        "devices": [
            _device(device, begin, rows // share, NAMES // share, STEPS // share)
            for device, begin in devices
        ],
    }


def _device(device: DeviceResult, begin: int, rows: int, names: int, steps: int) -> dict[str, Any]:
    where, pairs = _slice_rows(device, names)
    lane = device_lane(device, where)
    waits = wait_lane(device)
    judged = device.judged.spans
    return {
        "label": one_line(device.label, 120),
        "start": device.first - begin,
        "end": device.last - begin,
        "judged": [int(judged[0, 0]) - begin, int(judged[-1, 1]) - begin] if len(judged) else [],
        "lane": _flat_lane(lane, rows),
        "waits": _flat_lane(waits, rows // 4),
        "where": pairs,
        "steps": _steps(device, begin, steps),
        "worst": [_gap(gap, lane, waits, begin) for gap in device.worst[:3]],
    }


def _flat_lane(lane: TimelineLane, rows: int) -> list[int]:
    return flatten(lane, len(lane.start) if len(lane.start) <= 5 * rows else rows)


def _slice_rows(device: DeviceResult, limit: int) -> tuple[np.ndarray, list[list[str]]]:
    """A table of (thread, name), and the row of each slice; 0 for slices with little time."""
    width = len(device.names) + 1
    key = (device.slices.thread.astype(np.int64) + 1) * width + device.slices.name + 1
    keys, inverse = factorize(key)
    time = np.zeros(len(keys), np.int64)
    np.add.at(time, inverse, device.slices.end - device.slices.start)
    largest = np.argsort(-time, kind="stable")[: max(1, limit)]
    row = np.zeros(len(keys), np.int64)
    pairs = [["", ""]]
    for index in largest.tolist():
        thread, name = divmod(int(keys[index]), width)
        text = [
            one_line(_at(device.threads, thread - 1), 60),
            one_line(_at(device.names, name - 1), 160),
        ]
        if any(text):
            row[index] = len(pairs)
            pairs.append(text)
    return row[inverse], pairs


def _at(texts: tuple[str, ...], index: int) -> str:
    return texts[index] if 0 <= index < len(texts) else ""


def _steps(device: DeviceResult, begin: int, limit: int) -> list[list[Any]]:
    """[start, end, label, steady, input, idle] of each step, or of several consecutive steps."""
    spans = device.steps.spans
    (waited, idle) = figures.step_shares(device)
    group_size = max(1, -(-len(spans) // max(1, limit)))
    rows = []
    for first in range(0, len(spans), group_size):
        last = min(first + group_size, len(spans)) - 1
        label = one_line(_at(device.steps.labels, first), 60)
        if last > first:
            label = f"{label} to {one_line(_at(device.steps.labels, last), 60)}"
        group = slice(first, last + 1)
        rows.append(
            [
                int(spans[first, 0]) - begin,
                int(spans[last, 1]) - begin,
                label,
                int(device.steps.steady[group].all()),
                round(float(waited[group].mean()), 4),
                round(float((waited + idle)[group].mean()), 4),
            ]
        )
    return rows


def _gap(gap: Gap, lane: TimelineLane, waits: TimelineLane, begin: int) -> dict[str, Any]:
    """One gap and its surroundings."""
    around = max(1, int((gap.end - gap.start) * MARGIN))
    low = gap.start - around
    high = gap.end + around
    near = clip_lane(lane, low, high)
    waited = clip_lane(waits, low, high)
    return {
        "gap": [gap.start - begin, gap.end - begin],
        "view": [low - begin, high - begin],
        "start": int(near.start[0]) - begin if len(near.start) else low - begin,
        "lane": flatten(near, 400),
        "waits": flatten(waited, 100),
    }


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
    """Lane of the device's work and causes of idle time. `where` has one entry per slice."""
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
    """Sort, clip to [low, high), remove overlaps, and fill holes with NOTHING."""
    order = np.argsort(start, kind="stable")
    start = np.clip(start[order], low, high)
    end = np.clip(end[order], low, high)
    kind = kind[order]
    where = where[order]
    before = np.concatenate([[low], np.maximum.accumulate(end)[:-1]]) if len(end) else end
    start = np.maximum(start, before)
    nonempty = end > start
    start = start[nonempty]
    end = end[nonempty]
    kind = kind[nonempty]
    where = where[nonempty]
    hole_start = np.concatenate([[low], end])
    hole_end = np.concatenate([start, [high]])
    hole = hole_end > hole_start
    if not hole.any():
        return TimelineLane(start, end, kind, where)
    start = np.concatenate([start, hole_start[hole]])
    end = np.concatenate([end, hole_end[hole]])
    kind = np.concatenate([kind, np.full(hole.sum(), NOTHING)])
    where = np.concatenate([where, np.zeros(hole.sum(), np.int64)])
    order = np.argsort(start, kind="stable")
    return TimelineLane(start[order], end[order], kind[order], where[order])


def clip_lane(lane: TimelineLane, low: int, high: int) -> TimelineLane:
    """The part of a lane within [low, high)."""
    part = slice(np.searchsorted(lane.end, low, side="right"), np.searchsorted(lane.start, high))
    start = np.maximum(lane.start[part], low)
    end = np.minimum(lane.end[part], high)
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
