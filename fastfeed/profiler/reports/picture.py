"""What the page's timeline is drawn from: lanes of spans, steps, gaps; integer nanoseconds since the first op."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastfeed.profiler.model.causes import CAUSES
from fastfeed.profiler.model.format import one_line
from fastfeed.profiler.model.result import DeviceResult, Gap, Result
from fastfeed.profiler.reports import figures, merging

__all__ = ["LOOK", "PICTURES", "data"]

PICTURES = 32  # devices with a timeline of their own
MARGIN = 0.4  # of a gap's length, shown before and after it
NAMES = 2000  # pairs of thread and name on a page
STEPS = 4000  # steps on a page
# classes that are no cause: their colors are dull, so that causes stand out
LOOK = {
    "compute": ("compute", "#8492a6"),
    "comm": ("communication (exposed)", "#56677f"),
    "h2d": ("copies to the GPU (exposed)", "#a38a5a"),
    "other": ("other copies (exposed)", "#7f7358"),
    "overhead": ("the profiler at work", "#6f6e77"),
    "nothing": ("not recorded", "#64686f"),
}


def data(result: Result, rows: int) -> dict[str, Any]:
    """For `JSON.parse`: at most about `rows` spans and mixes over all devices, five times that where all are exact."""
    devices = figures.by_need(result)[:PICTURES]
    begin = dict(zip(map(id, result.devices), figures.offsets(result), strict=True))
    share = max(1, len(devices))
    look = [{"title": title, "color": color, "means": ""} for title, color in LOOK.values()]
    causes = [{"title": about.title, "color": about.color, "means": about.means} for _, about in sorted(CAUSES.items())]
    return {
        "classes": look + causes,
        "busy": len(look),
        "devices": [_device(one, begin[id(one)], rows // share, NAMES // share, STEPS // share) for one in devices],
    }


def _device(one: DeviceResult, begin: int, rows: int, names: int, steps: int) -> dict[str, Any]:
    where, pairs = _where(one, names)
    lane, waits = merging.device_lane(one, where), merging.wait_lane(one)
    judged = one.judged.spans
    return {
        "label": one_line(one.label, 120),
        "start": one.first - begin,
        "end": one.last - begin,
        "judged": [int(judged[0, 0]) - begin, int(judged[-1, 1]) - begin] if len(judged) else [],
        "lane": _flat(lane, rows),
        "waits": _flat(waits, rows // 4),
        "where": pairs,
        "steps": _steps(one, begin, steps),
        "worst": [_gap(gap, lane, waits, begin) for gap in one.worst[:3]],
    }


def _flat(lane: merging.Lane, rows: int) -> list[int]:
    return merging.flat(lane, len(lane.start) if len(lane.start) <= 5 * rows else rows)


def _where(one: DeviceResult, most: int) -> tuple[np.ndarray, list[list[str]]]:
    """Rows of a table of (thread, inside of what) for each slice; those with little time in them stay without."""
    width = len(one.names) + 1
    key = (one.slices.thread.astype(np.int64) + 1) * width + one.slices.name + 1
    known, inverse = np.unique(key, return_inverse=True)
    time = np.zeros(len(known), np.int64)
    np.add.at(time, inverse, one.slices.end - one.slices.start)
    kept = np.argsort(-time, kind="stable")[: max(1, most)]
    row = np.zeros(len(known), np.int64)
    pairs = [["", ""]]
    for index in kept.tolist():
        thread, name = divmod(int(known[index]), width)
        text = [one_line(_at(one.threads, thread - 1), 60), one_line(_at(one.names, name - 1), 160)]
        if any(text):
            row[index] = len(pairs)
            pairs.append(text)
    return row[inverse.reshape(-1)], pairs


def _at(texts: tuple[str, ...], index: int) -> str:
    return texts[index] if 0 <= index < len(texts) else ""


def _steps(one: DeviceResult, begin: int, most: int) -> list[list[Any]]:
    """[start, end, label, steady, input, idle] of each, or of several that follow each other."""
    spans, shares = one.steps.spans, figures.step_shares(one)
    many = max(1, -(-len(spans) // max(1, most)))
    found = []
    for at in range(0, len(spans), many):
        last = min(at + many, len(spans)) - 1
        label = one_line(_at(one.steps.labels, at), 60)
        if last > at:
            label = f"{label} to {one_line(_at(one.steps.labels, last), 60)}"
        held = slice(at, last + 1)
        found.append([
            int(spans[at, 0]) - begin, int(spans[last, 1]) - begin, label, int(one.steps.steady[held].all()),
            round(float(shares.input[held].mean()), 4), round(float((shares.input + shares.idle)[held].mean()), 4),
        ])  # fmt: skip
    return found


def _gap(gap: Gap, lane: merging.Lane, waits: merging.Lane, begin: int) -> dict[str, Any]:
    """One gap with what is around it."""
    around = max(1, int((gap.end - gap.start) * MARGIN))
    low, high = gap.start - around, gap.end + around
    near, waited = merging.part(lane, low, high), merging.part(waits, low, high)
    return {
        "gap": [gap.start - begin, gap.end - begin],
        "view": [low - begin, high - begin],
        "start": int(near.start[0]) - begin if len(near.start) else low - begin,
        "lane": merging.flat(near, 400),
        "waits": merging.flat(waited, 100),
    }
