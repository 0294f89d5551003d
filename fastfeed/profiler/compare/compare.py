"""Before and after: what moved between two analyses, and whether that is more than noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastfeed.profiler.compare.changes import Comparison, DeviceChange, MetricChange, Side
from fastfeed.profiler.compare.outcome import summarize
from fastfeed.profiler.model import intervals, statistics
from fastfeed.profiler.model.causes import CAUSES, Cause
from fastfeed.profiler.model.result import DeviceResult, Result
from fastfeed.profiler.steps.input_share import STARVING

__all__ = ["compare"]

PARTS = {
    "compute": "compute",
    "comm": "exposed communication",
    "h2d": "exposed copies to the GPU",
    "other": "other copies",
    "overhead": "profiler overhead",
    "idle": "idle",
}
FLOOR = 0.002  # of a step: what is less is not worth a word, however sure


def compare(a: Result, b: Result) -> Comparison:
    """What moved from `a`, before, to `b`, after."""
    pairs = _pairs(a.devices, b.devices)
    changes = [_change(before, after) for before, after in pairs]
    changes.sort(key=lambda one: -max(one.input.before, one.input.after))
    alone = [
        tuple(one.label for one in devices if all(one is not pair[side] for pair in pairs))
        for side, devices in enumerate((a.devices, b.devices))
    ]
    made = Comparison(
        "unknown", "", _side(a), _side(b), tuple(changes), alone[0], alone[1], (*_notes(a, b, changes), *_alone(*alone))
    )
    outcome, sentence = summarize(made)
    return replace(made, outcome=outcome, sentence=sentence)


def _side(result: Result) -> Side:
    verdict = result.verdict
    return Side(tuple(origin.path for origin in result.origins), verdict.word, verdict.reasons, len(result.devices))


def _pairs(a: Sequence[DeviceResult], b: Sequence[DeviceResult]) -> list[tuple[DeviceResult, DeviceResult]]:
    """By rank, else by label, else in order where there are as many."""
    for key in (lambda one: one.rank, lambda one: one.label):
        keys = [key(one) for one in a], [key(one) for one in b]
        if all(None not in side and len(set(side)) == len(side) for side in keys):
            found = [(one, b[keys[1].index(of)]) for one, of in zip(a, keys[0], strict=True) if of in keys[1]]
            if found:
                return found
    return list(zip(a, b, strict=True)) if len(a) == len(b) else []


def _change(before: DeviceResult, after: DeviceResult) -> DeviceChange:
    parts = tuple(
        _move(part, title, before, after,
              (getattr(before.judged.budget, part), getattr(after.judged.budget, part)),
              (_part(before, part), _part(after, part)))
        for part, title in PARTS.items()
    )  # fmt: skip
    causes = [
        _move(f"cause:{CAUSES[cause].key}", CAUSES[cause].title, before, after,
              (before.judged.causes.get(cause, 0), after.judged.causes.get(cause, 0)),
              (_caused(before, cause), _caused(after, cause)))
        for cause in Cause if before.judged.causes.get(cause) or after.judged.causes.get(cause)
    ]  # fmt: skip
    causes.sort(key=lambda one: (-abs(_size(one)), -one.after))
    label = before.label if before.label == after.label else f"{before.label} / {after.label}"
    return DeviceChange(before, after, label, _length(before, after), _input(before, after), parts, tuple(causes))


def _size(move: MetricChange) -> float:
    return move.change_ns[0] if move.change_ns else move.after - move.before


def _steps(device: DeviceResult) -> np.ndarray:
    """Of the judged period: spans, shape (n, 2); none where it is not made of steps."""
    return device.steps.spans[device.steps.steady] if device.steady is not None else intervals.empty()


def _part(device: DeviceResult, part: str) -> np.ndarray:
    return intervals.union(_idle(device)) if part == "idle" else device.busy.get(part, intervals.empty())


def _idle(device: DeviceResult) -> np.ndarray:
    return intervals.spans(device.slices.start, device.slices.end)


def _caused(device: DeviceResult, *causes: Cause) -> np.ndarray:
    return intervals.union(_idle(device)[np.isin(device.slices.cause, causes)])


def _move(
    key: str,
    title: str,
    before: DeviceResult,
    after: DeviceResult,
    ns: tuple[float, float],
    sets: tuple[np.ndarray, np.ndarray],
) -> MetricChange:
    """What these sets hold per step; `ns` is what they hold of the whole judged periods."""
    windows = [max(one.judged.budget.window, 1) for one in (before, after)]
    shares = ns[0] / windows[0], ns[1] / windows[1]
    spans = _steps(before), _steps(after)
    move = MetricChange(key, title, *shares, None, None, None, "unknown")
    if min(map(len, spans)) == 0:
        return move
    return _weighed(move, [intervals.overlap(steps, held) for steps, held in zip(spans, sets, strict=True)], spans)


def _weighed(move: MetricChange, each: Sequence[np.ndarray], spans: Sequence[np.ndarray]) -> MetricChange:
    """With what each step of both sides says of it; `each` is int64 nanoseconds, shape (steps,)."""
    value, low, high = statistics.difference(each[0], np.ones_like(each[0]), each[1], np.ones_like(each[1]))
    floor = FLOOR * min(float(np.mean(one[:, 1] - one[:, 0])) for one in spans)
    move = replace(move, before_ns=float(each[0].mean()), after_ns=float(each[1].mean()))
    if not math.isfinite(low):
        return move
    moved = "same" if low <= 0 <= high or abs(value) < floor else "less" if value < 0 else "more"
    return replace(move, change_ns=(value, low, high), moved=moved)


def _length(before: DeviceResult, after: DeviceResult) -> MetricChange:
    """Of a step, from its beginning to its end, also where the device began to work only within it."""
    move = MetricChange("step", "step", 1.0, 1.0, None, None, None, "unknown")
    spans = _steps(before), _steps(after)
    if min(map(len, spans)) == 0:
        return move
    return _weighed(move, [one[:, 1] - one[:, 0] for one in spans], spans)


def _input(before: DeviceResult, after: DeviceResult) -> MetricChange:
    """As the verdict counts it. What other ranks waited for input is in the shares alone, and makes it less sure."""
    shares = before.share.value, after.share.value
    windows = before.judged.budget.window, after.judged.budget.window
    move = _move(
        "input", "input", before, after, (shares[0] * windows[0], shares[1] * windows[1]),
        (_caused(before, *STARVING), _caused(after, *STARVING)),
    )  # fmt: skip
    by_proxy = any(charge.cause in STARVING for one in (before, after) for charge in one.charges)
    if not by_proxy:
        return move
    a, b, moved = before.share, after.share, "unknown"
    if a.low is not None and a.high is not None and b.low is not None and b.high is not None:
        moved = "less" if b.high < a.low else "more" if a.high < b.low else "same"
    return replace(move, before_ns=None, after_ns=None, change_ns=None, moved=moved)


def _alone(only_before: tuple[str, ...], only_after: tuple[str, ...]) -> list[str]:
    return [
        f"{when} only: {', '.join(labels[:4])}{' and more' if len(labels) > 4 else ''}; compared with nothing"
        for when, labels in (("before", only_before), ("after", only_after))
        if labels
    ]


def _notes(a: Result, b: Result, changes: Sequence[DeviceChange]) -> list[str]:
    """What makes the two hard to compare."""
    notes = []
    dialects = [sorted({origin.dialect for origin in one.origins}) for one in (a, b)]
    if all(dialects) and dialects[0] != dialects[1]:
        notes.append(
            f"recorded by different profilers ({', '.join(dialects[0])} and {', '.join(dialects[1])}), which slow a "
            "run down by different amounts; record both the same way"
        )
    if len(a.devices) != len(b.devices) and a.devices and b.devices:
        notes.append(
            f"{len(a.devices)} devices before and {len(b.devices)} after: steps may hold other amounts of work, so "
            "compare samples per second as well"
        )
    for one in changes[:1]:
        if one.before.label != one.after.label:
            notes.append(f"{one.before.label} before, {one.after.label} after")
        launches = [device.metrics.get("launches_per_step") for device in (one.before, one.after)]
        if launches[0] and launches[1] and not 0.8 < launches[1] / launches[0] < 1.25:
            notes.append(
                f"{launches[0]:,.0f} device operations per step before and {launches[1]:,.0f} after: if that is "
                "another batch size or another model, compare samples per second instead of steps"
            )
    return notes
