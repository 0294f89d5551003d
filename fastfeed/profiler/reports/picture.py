"""Data of the page's timeline: lanes, steps, gaps; integer nanoseconds since the first op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.columns import numbered
from fastfeed.profiler.model.format import one_line
from fastfeed.profiler.model.result import DeviceResult, Gap, Result
from fastfeed.profiler.reports import figures, merging

__all__ = ["LOOK", "PICTURES", "data", "timelines"]

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
    where, pairs = _where(device, names)
    lane, waits = merging.device_lane(device, where), merging.wait_lane(device)
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


def _flat_lane(lane: merging.TimelineLane, rows: int) -> list[int]:
    return merging.flatten(lane, len(lane.start) if len(lane.start) <= 5 * rows else rows)


def _where(device: DeviceResult, limit: int) -> tuple[np.ndarray, list[list[str]]]:
    """A table of (thread, name), and the row of each slice; 0 for slices with little time."""
    width = len(device.names) + 1
    key = (device.slices.thread.astype(np.int64) + 1) * width + device.slices.name + 1
    keys, inverse = numbered(key)
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
    spans, shares = device.steps.spans, figures.step_shares(device)
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
                round(float(shares.input[group].mean()), 4),
                round(float((shares.input + shares.idle)[group].mean()), 4),
            ]
        )
    return rows


def _gap(
    gap: Gap, lane: merging.TimelineLane, waits: merging.TimelineLane, begin: int
) -> dict[str, Any]:
    """One gap and its surroundings."""
    around = max(1, int((gap.end - gap.start) * MARGIN))
    low, high = gap.start - around, gap.end + around
    near, waited = merging.clip_lane(lane, low, high), merging.clip_lane(waits, low, high)
    return {
        "gap": [gap.start - begin, gap.end - begin],
        "view": [low - begin, high - begin],
        "start": int(near.start[0]) - begin if len(near.start) else low - begin,
        "lane": merging.flatten(near, 400),
        "waits": merging.flatten(waited, 100),
    }
