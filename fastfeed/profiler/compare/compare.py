"""Comparison of two analyses: changes from before to after, their significance, one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np

from fastfeed.profiler.attribution.attribution import spans_with_cause
from fastfeed.profiler.compare.changes import (
    Comparison,
    DeviceChange,
    Difference,
    FeedChange,
    MetricChange,
    Side,
)
from fastfeed.profiler.model import intervals, statistics
from fastfeed.profiler.model.causes import STARVED, STARVING, Cause
from fastfeed.profiler.model.format import duration, percent
from fastfeed.profiler.model.intervals import union
from fastfeed.profiler.model.result import DeviceResult, FeedResult, Result, Share
from fastfeed.profiler.verdict.feed_timelines import rounds

PARTS = {
    "compute": "compute",
    "comm": "exposed communication",
    "h2d": "exposed copies to the GPU",
    "other": "other copies",
    "overhead": "profiler overhead",
    "idle": "idle",
}
FLOOR = 0.002  # of a step: a smaller change is negligible, however certain
_BUSY = 0.05  # of the window: a GPU idle for less is called busy
_NOISE = "within noise"
_OUTCOMES = {"less": "better", "more": "worse", "same": "same"}  # of the time of a step


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
        _feed_changes(a.feeds, b.feeds),
    )
    outcome, sentence = _summarize(comparison)
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
    for key in map(attrgetter, ("rank", "label")):
        keys = [*map(key, a)], [*map(key, b)]
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
    pair = before, after
    parts = tuple(
        _metric_change(
            part,
            title,
            pair,
            [getattr(device.judged.budget, part) for device in pair],
            [_part_spans(device, part) for device in pair],
        )
        for part, title in PARTS.items()
    )
    causes = [
        _metric_change(
            f"cause:{cause.key}",
            cause.title,
            pair,
            [device.judged.ns(cause) for device in pair],
            [spans_with_cause(device.slices, cause) for device in pair],
        )
        for cause in Cause
        if any(device.judged.ns(cause) for device in pair)
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
    if device.steady is None:
        return intervals.empty()
    return device.steps.spans[device.steps.steady]


def _part_spans(device: DeviceResult, part: str) -> np.ndarray:
    if part == "idle":
        return spans_with_cause(device.slices, *Cause)
    return device.busy.get(part, intervals.empty())


def _metric_change(
    key: str,
    title: str,
    pair: tuple[DeviceResult, DeviceResult],
    ns: Sequence[float],
    sets: Sequence[np.ndarray],
) -> MetricChange:
    """Change per step of what these sets cover; `ns` covers the whole judged periods."""
    spans = [_steps(device) for device in pair]
    shares = [device.judged.share(part) for device, part in zip(pair, ns, strict=True)]
    change = MetricChange(key, title, shares[0], shares[1])
    spent = [intervals.overlap(steps, covered) for steps, covered in zip(spans, sets, strict=True)]
    return _with_statistics(change, spent, [steps[:, 1] - steps[:, 0] for steps in spans])


def _step_change(before: DeviceResult, after: DeviceResult) -> MetricChange:
    """Change of the step length, from start to end, wherever the device starts in it."""
    change = MetricChange("step", "step", 1.0, 1.0)
    spans = _steps(before), _steps(after)
    length = [steps[:, 1] - steps[:, 0] for steps in spans]
    return _with_statistics(change, length, length)


def _input_change(before: DeviceResult, after: DeviceResult) -> MetricChange:
    """Input as the verdict counts it; input by proxy is only in the shares, less precise."""
    sets = tuple(spans_with_cause(device.slices, *STARVING) for device in (before, after))
    change = replace(
        _metric_change("input", "input", (before, after), (0, 0), sets),
        before=before.share.value,
        after=after.share.value,
    )
    by_proxy = any(
        charge.cause in STARVING for device in (before, after) for charge in device.charges
    )
    if not by_proxy:
        return change
    a = _interval(before.share)
    b = _interval(after.share)
    direction = "unknown"
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


def _with_statistics(
    change: MetricChange, per_step: Sequence[np.ndarray], lengths: Sequence[np.ndarray]
) -> MetricChange:
    """The change with statistics over steps, if both sides have some: int64 ns, and lengths."""
    if not min(map(len, lengths)):
        return change
    value, low, high = statistics.difference(
        per_step[0], np.ones_like(per_step[0]), per_step[1], np.ones_like(per_step[1])
    )
    floor = FLOOR * min(float(np.mean(length)) for length in lengths)
    change = replace(
        change, before_ns=float(per_step[0].mean()), after_ns=float(per_step[1].mean())
    )
    if not math.isfinite(low):
        return change
    direction = (
        "same" if low <= 0 <= high or abs(value) < floor else "less" if value < 0 else "more"
    )
    return replace(change, change_ns=Difference(value, low, high), direction=direction)


def _feed_changes(
    before: Sequence[FeedResult], after: Sequence[FeedResult]
) -> tuple[FeedChange, ...]:
    """Changes of the feeds in both runs, by name and rank; a single feed matches any."""
    keys = [[(feed.name or "", feed.rank) for feed in feeds] for feeds in (before, after)]
    pairs = [
        (feed, after[keys[1].index(key)])
        for feed, key in zip(before, keys[0], strict=True)
        if key in keys[1]
    ]
    if not pairs and len(before) == len(after) == 1:
        pairs = [(before[0], after[0])]
    changes = [_change(*pair) for pair in pairs]
    return tuple(sorted(changes, key=lambda change: -max(change.wait.before, change.wait.after)))


def _change(before: FeedResult, after: FeedResult) -> FeedChange:
    """Change of one feed; times of a batch leave out the first, which fills the queue."""
    waited, trained = zip(*(rounds(union(feed.waits)) for feed in (before, after)), strict=True)
    waited = [each[1:] for each in waited]
    length = [wait + each[1:] for wait, each in zip(waited, trained, strict=True)]
    batch = MetricChange("batch", "batch to batch", 1.0, 1.0)
    wait = MetricChange("wait", "trainer waits", before.wait_share, after.wait_share)
    batch = _with_statistics(batch, length, length)
    wait = _with_statistics(wait, waited, length)
    names = [name for name in {**before.stages, **after.stages} if name != "wait"]
    stages = [_stage(name, before, after) for name in names]
    stages.sort(key=lambda change: -max(change.before_ns or 0, change.after_ns or 0))
    label = " / ".join(dict.fromkeys(feed.name or feed.feed or "feed" for feed in (before, after)))
    if before.rank or after.rank:
        label += f", rank {after.rank}"
    return FeedChange(before, after, label, batch, wait, tuple(stages))


def _stage(name: str, before: FeedResult, after: FeedResult) -> MetricChange:
    """Work of one stage per batch. The threads work side by side, so its share may exceed 1."""
    ns = [feed.stages.get(name, (0, 0))[1] for feed in (before, after)]
    shares = [part / max(feed.span_ns, 1) for part, feed in zip(ns, (before, after), strict=True)]
    each = [part / max(feed.batches, 1) for part, feed in zip(ns, (before, after), strict=True)]
    return MetricChange(f"stage:{name}", name, shares[0], shares[1], each[0], each[1])


def _summarize(comparison: Comparison) -> tuple[str, str]:
    """The outcome, and a sentence that explains it."""
    if (
        not comparison.devices
        and comparison.feeds
        and not (comparison.before.devices and comparison.after.devices)
    ):
        return _of_feed(comparison.feeds[0], comparison)
    if not comparison.devices:
        return "unknown", _incomparable(comparison)
    worst = comparison.devices[0]
    if not worst.before.judged.budget.window or not worst.after.judged.budget.window:
        return "unknown", "nothing to compare: a recording has no GPU activity"
    clauses = [_step(worst), _input(worst.input), _next_cause(worst)]
    if len(comparison.devices) > 1:
        clauses[0] = f"{worst.label}: {clauses[0]}"
    abstained = [
        f"{when} has no verdict ({side.reasons[0].rstrip('.') if side.reasons else 'it abstained'})"
        for when, side in (("before", comparison.before), ("after", comparison.after))
        if side.word == "abstained"
    ]
    if abstained:
        return "unknown", "; ".join(
            [*abstained, "from what was recorded: " + clauses[0], *clauses[1:]]
        )
    return _outcome(worst), "; ".join(clauses)


def _of_feed(change: FeedChange, comparison: Comparison) -> tuple[str, str]:
    """Outcome by the wait for each batch: less of it makes steps shorter."""
    where = (
        "neither recording has"
        if not comparison.before.devices and not comparison.after.devices
        else "one lacks"
    )
    clauses = [f"{where} GPU activity, so feeds are compared"]
    batch = change.batch
    wait = change.wait
    if batch.before_ns is not None and batch.after_ns is not None:
        noise = {"same": f" ({_NOISE})", "unknown": ", too few batches to be certain"}.get(
            batch.direction, ""
        )
        clauses.append(
            f"a batch every {duration(batch.before_ns)} -> {duration(batch.after_ns)}{noise}"
        )
    noise = {"same": f", {_NOISE}", "unknown": ""}.get(wait.direction, ", significant")
    clauses.append(
        f"the trainer waits {percent(wait.before)} -> {percent(wait.after)} of the time{noise}"
    )
    direction = batch.direction if batch.direction not in ("same", "unknown") else wait.direction
    return _OUTCOMES.get(direction, "unknown"), "; ".join(clauses)


def _incomparable(comparison: Comparison) -> str:
    if not comparison.before.devices or not comparison.after.devices:
        without = " and ".join(
            when
            for when, side in (("before", comparison.before), ("after", comparison.after))
            if not side.devices
        )
        return (
            f"nothing to compare: {without} has no device activity; record with CUDA activities on"
        )
    return (
        f"nothing to compare: no device before ({', '.join(comparison.only_before[:3])}) matches"
        f" one after ({', '.join(comparison.only_after[:3])}); compare one rank of each, or the"
        " same ranks"
    )


def _outcome(device_change: DeviceChange) -> str:
    """Outcome by the step if both sides have steps, else by input."""
    direction = (
        device_change.step.direction
        if device_change.step.direction != "unknown"
        else device_change.input.direction
    )
    return _OUTCOMES.get(direction, "unknown")


def _step(device_change: DeviceChange) -> str:
    change = device_change.step
    speedup = device_change.speedup
    if speedup is None or change.before_ns is None or change.after_ns is None:
        without = [
            when for when in ("before", "after") if getattr(device_change, when).steady is None
        ]
        return (
            f"no steady steps {' and '.join(without)}, so shares of the recordings are compared;"
            " the noise is unknown"
        )
    times = f"{duration(change.before_ns)} -> {duration(change.after_ns)}"
    if change.direction == "same":
        return f"step unchanged, {times} ({_NOISE})"
    by = f"{max(speedup, 1 / speedup):.2f}x {'shorter' if speedup > 1 else 'longer'}"
    caveat = ", too few steps to be certain" if change.direction == "unknown" else ""
    return f"step {by}, {times}{caveat}"


def _input(change: MetricChange) -> str:
    suffixes = {"less": ", significant", "more": ", significant", "same": f", {_NOISE}"}
    shares = f"input wait {percent(change.before)} -> {percent(change.after)} of the window"
    if change.direction == "same" and max(change.before, change.after) < STARVED:
        return (
            f"input wait is small on both sides ({percent(change.before)}, {percent(change.after)})"
        )
    return shares + suffixes.get(change.direction, "")


def _next_cause(device_change: DeviceChange) -> str:
    """The cause to look at next."""
    idle = device_change.after.judged.budget.idle / device_change.after.judged.budget.window
    now = _largest(device_change.after)
    before = _largest(device_change.before)
    if idle < _BUSY or now is None:
        return f"the GPU is now idle {percent(idle)} of the time"
    name, share = now
    return (
        f"{name} is {'still' if before and before[0] == name else 'now'} the largest cause"
        f" ({percent(share)})"
    )


def _largest(device: DeviceResult) -> tuple[str, float] | None:
    """The cause that costs most, and its share of the window."""
    causes = device.judged.causes
    window = device.judged.budget.window
    if not causes or not window:
        return None
    cause = max(causes, key=lambda cause: causes[cause])
    return cause.title, causes[cause] / window
