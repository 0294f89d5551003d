"""Comparison of two analyses: changes from before to after, and their significance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastfeed.profiler.compare.changes import Comparison, DeviceChange, MetricChange, Side
from fastfeed.profiler.compare.feeds import feed_changes
from fastfeed.profiler.compare.noise import with_statistics
from fastfeed.profiler.compare.outcome import summarize
from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import DeviceResult, Result, Share
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


def compare(a: Result, b: Result) -> Comparison:
    """Changes from `a`, before, to `b`, after."""
    pairs = _pairs(a.devices, b.devices)
    changes = [_device_change(before, after) for before, after in pairs]
    changes.sort(key=lambda change: -max(change.input.before, change.input.after))
    unpaired = [
        tuple(device.label for device in devices if all(device is not pair[side] for pair in pairs))
        for side, devices in enumerate((a.devices, b.devices))
    ]
    comparison = Comparison(
        "unknown",
        "",
        _side(a),
        _side(b),
        tuple(changes),
        unpaired[0],
        unpaired[1],
        (*_comparability_notes(a, b, changes), *_unpaired_notes(*unpaired)),
        feed_changes(a.feeds, b.feeds),
    )
    outcome, sentence = summarize(comparison)
    return replace(comparison, outcome=outcome, sentence=sentence)


def _side(result: Result) -> Side:
    verdict = result.verdict
    return Side(
        tuple(origin.path for origin in result.origins),
        verdict.word,
        verdict.reasons,
        len(result.devices),
    )


def _pairs(
    a: Sequence[DeviceResult], b: Sequence[DeviceResult]
) -> list[tuple[DeviceResult, DeviceResult]]:
    """Pairs devices by rank, else by label, else in order if there are equally many."""
    for key in (lambda device: device.rank, lambda device: device.label):
        keys = [key(device) for device in a], [key(device) for device in b]
        if all(None not in side and len(set(side)) == len(side) for side in keys):
            pairs = [
                (device, b[keys[1].index(value)])
                for device, value in zip(a, keys[0], strict=True)
                if value in keys[1]
            ]
            if pairs:
                return pairs
    return list(zip(a, b, strict=True)) if len(a) == len(b) else []


def _device_change(before: DeviceResult, after: DeviceResult) -> DeviceChange:
    parts = tuple(
        _metric_change(
            part,
            title,
            before,
            after,
            (getattr(before.judged.budget, part), getattr(after.judged.budget, part)),
            (_part_spans(before, part), _part_spans(after, part)),
        )
        for part, title in PARTS.items()
    )
    causes = [
        _metric_change(
            f"cause:{cause.key}",
            cause.title,
            before,
            after,
            (before.judged.causes.get(cause, 0), after.judged.causes.get(cause, 0)),
            (_spans_with_cause(before, cause), _spans_with_cause(after, cause)),
        )
        for cause in Cause
        if before.judged.causes.get(cause) or after.judged.causes.get(cause)
    ]
    causes.sort(key=lambda change: (-abs(_change_size(change)), -change.after))
    label = before.label if before.label == after.label else f"{before.label} / {after.label}"
    return DeviceChange(
        before,
        after,
        label,
        _step_change(before, after),
        _input_change(before, after),
        parts,
        tuple(causes),
    )


def _change_size(change: MetricChange) -> float:
    return change.change_ns[0] if change.change_ns else change.after - change.before


def _steps(device: DeviceResult) -> np.ndarray:
    """The steps of the judged period: spans, shape (n, 2); empty if it is not made of steps."""
    return (
        device.steps.spans[device.steps.steady] if device.steady is not None else intervals.empty()
    )


def _part_spans(device: DeviceResult, part: str) -> np.ndarray:
    return (
        intervals.union(_idle_spans(device))
        if part == "idle"
        else device.busy.get(part, intervals.empty())
    )


def _idle_spans(device: DeviceResult) -> np.ndarray:
    return intervals.spans_at(device.slices)


def _spans_with_cause(device: DeviceResult, *causes: Cause) -> np.ndarray:
    return intervals.union(_idle_spans(device)[np.isin(device.slices.cause, causes)])


def _metric_change(
    key: str,
    title: str,
    before: DeviceResult,
    after: DeviceResult,
    ns: tuple[float, float],
    sets: tuple[np.ndarray, np.ndarray],
) -> MetricChange:
    """Change per step of what these sets cover; `ns` covers the whole judged periods."""
    windows = [max(device.judged.budget.window, 1) for device in (before, after)]
    shares = ns[0] / windows[0], ns[1] / windows[1]
    spans = _steps(before), _steps(after)
    change = MetricChange(key, title, *shares, None, None, None, "unknown")
    if min(map(len, spans)) == 0:
        return change
    spent = [intervals.overlap(steps, covered) for steps, covered in zip(spans, sets, strict=True)]
    return with_statistics(change, spent, [steps[:, 1] - steps[:, 0] for steps in spans])


def _step_change(before: DeviceResult, after: DeviceResult) -> MetricChange:
    """Change of the step length, from start to end, wherever the device starts in it."""
    change = MetricChange("step", "step", 1.0, 1.0, None, None, None, "unknown")
    spans = _steps(before), _steps(after)
    if min(map(len, spans)) == 0:
        return change
    length = [steps[:, 1] - steps[:, 0] for steps in spans]
    return with_statistics(change, length, length)


def _input_change(before: DeviceResult, after: DeviceResult) -> MetricChange:
    """Input as the verdict counts it; input by proxy is only in the shares, less precise."""
    shares = before.share.value, after.share.value
    windows = before.judged.budget.window, after.judged.budget.window
    change = _metric_change(
        "input",
        "input",
        before,
        after,
        (shares[0] * windows[0], shares[1] * windows[1]),
        (_spans_with_cause(before, *STARVING), _spans_with_cause(after, *STARVING)),
    )
    by_proxy = any(
        charge.cause in STARVING for device in (before, after) for charge in device.charges
    )
    if not by_proxy:
        return change
    a, b, direction = _interval(before.share), _interval(after.share), "unknown"
    if a is not None and b is not None:
        direction = "less" if b[1] < a[0] else "more" if a[1] < b[0] else "same"
    return replace(change, before_ns=None, after_ns=None, change_ns=None, direction=direction)


def _interval(share: Share) -> tuple[float, float] | None:
    """Ends of an interval, the value itself if all steps are alike; None with too few."""
    if share.low is not None and share.high is not None:
        return share.low, share.high
    return None if share.median is None else (share.value, share.value)


def _unpaired_notes(only_before: tuple[str, ...], only_after: tuple[str, ...]) -> list[str]:
    return [
        f"{when} only: {', '.join(labels[:4])}{' and more' if len(labels) > 4 else ''}; not"
        " compared"
        for when, labels in (("before", only_before), ("after", only_after))
        if labels
    ]


def _comparability_notes(a: Result, b: Result, changes: Sequence[DeviceChange]) -> list[str]:
    """Differences that make the two analyses hard to compare."""
    notes = []
    dialects = [sorted({origin.dialect for origin in result.origins}) for result in (a, b)]
    if all(dialects) and dialects[0] != dialects[1]:
        notes.append(
            f"recorded by different profilers ({', '.join(dialects[0])} and"
            f" {', '.join(dialects[1])}), whose overhead differs; record both the same way"
        )
    if len(a.devices) != len(b.devices) and a.devices and b.devices:
        notes.append(
            f"{len(a.devices)} devices before and {len(b.devices)} after: the work per step may"
            " differ, so compare samples per second as well"
        )
    for change in changes[:1]:
        if change.before.label != change.after.label:
            notes.append(f"{change.before.label} before, {change.after.label} after")
        launches = [
            device.metrics.get("launches_per_step") for device in (change.before, change.after)
        ]
        if launches[0] and launches[1] and not 0.8 < launches[1] / launches[0] < 1.25:
            notes.append(
                f"{launches[0]:,.0f} device operations per step before and {launches[1]:,.0f}"
                " after: if the batch size or the model changed, compare samples per second"
                " instead of steps"
            )
    return notes
