"""One sentence about a comparison: step, input wait, and the largest cause now."""

from __future__ import annotations

from fastfeed.profiler.compare.changes import Comparison, DeviceChange, FeedChange, MetricChange
from fastfeed.profiler.model.format import duration, percent
from fastfeed.profiler.model.result import DeviceResult
from fastfeed.profiler.model.thresholds import STARVED

__all__ = ["summarize"]

_BUSY = 0.05  # of the window: a GPU idle for less is called busy
_NOISE = "within noise"


def summarize(comparison: Comparison) -> tuple[str, str]:
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
    """Outcome by the wait for each batch: with less of it, steps are shorter."""
    where = (
        "neither recording has"
        if not comparison.before.devices and not comparison.after.devices
        else "one lacks"
    )
    clauses = [f"{where} GPU activity, so feeds are compared"]
    batch, wait = change.batch, change.wait
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
    outcome = {"less": "better", "more": "worse", "same": "same"}.get(direction, "unknown")
    return outcome, "; ".join(clauses)


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
    """By the step if both sides have steps, else by input."""
    direction = (
        device_change.step.direction
        if device_change.step.direction != "unknown"
        else device_change.input.direction
    )
    return {"less": "better", "more": "worse", "same": "same"}.get(direction, "unknown")


def _step(device_change: DeviceChange) -> str:
    change, speedup = device_change.step, device_change.speedup
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
    now, before = _largest(device_change.after), _largest(device_change.before)
    if idle < _BUSY or now is None:
        return f"the GPU is now idle {percent(idle)} of the time"
    name, share = now
    return (
        f"{name} is {'still' if before and before[0] == name else 'now'} the largest cause"
        f" ({percent(share)})"
    )


def _largest(device: DeviceResult) -> tuple[str, float] | None:
    """The cause that costs most, and its share of the window."""
    causes, window = device.judged.causes, device.judged.budget.window
    if not causes or not window:
        return None
    cause = max(causes, key=lambda cause: causes[cause])
    return cause.title, causes[cause] / window
