"""A comparison in one sentence: what became of a step, of its input wait, and what costs most now."""

from __future__ import annotations

from fastfeed.profiler.compare.changes import Comparison, DeviceChange, MetricChange
from fastfeed.profiler.model.causes import CAUSES
from fastfeed.profiler.model.format import duration, percent
from fastfeed.profiler.model.result import DeviceResult
from fastfeed.profiler.model.thresholds import STARVED

__all__ = ["summarize"]

_BUSY = 0.05  # of the window may be idle on a GPU that is called busy
_NOISE = "within noise"


def summarize(made: Comparison) -> tuple[str, str]:
    """The outcome, and the sentence that says it."""
    if not made.devices:
        return "unknown", _incomparable(made)
    worst = made.devices[0]
    if not worst.before.judged.budget.window or not worst.after.judged.budget.window:
        return "unknown", "nothing to compare: a recording holds no time in which its GPU worked"
    said = [_step(worst), _input(worst.input), _first(worst)]
    if len(made.devices) > 1:
        said[0] = f"{worst.label}: {said[0]}"
    refused = [
        f"{when} has no verdict ({side.reasons[0].rstrip('.') if side.reasons else 'it abstained'})"
        for when, side in (("before", made.before), ("after", made.after))
        if side.word == "abstained"
    ]
    if refused:
        return "unknown", "; ".join([*refused, "as far as was recorded: " + said[0], *said[1:]])
    return _outcome(worst), "; ".join(said)


def _incomparable(made: Comparison) -> str:
    if not made.before.devices or not made.after.devices:
        without = " and ".join(
            when for when, side in (("before", made.before), ("after", made.after)) if not side.devices
        )
        return f"nothing to compare: {without} has no device activity; record with CUDA activities on"
    return (
        f"nothing to compare: no device before ({', '.join(made.only_before[:3])}) is one after "
        f"({', '.join(made.only_after[:3])}); give one rank of each, or the same ranks"
    )


def _outcome(one: DeviceChange) -> str:
    """By the step where both have steps, else by input."""
    moved = one.step.moved if one.step.moved != "unknown" else one.input.moved
    return {"less": "better", "more": "worse", "same": "same"}.get(moved, "unknown")


def _step(one: DeviceChange) -> str:
    move, speedup = one.step, one.speedup
    if speedup is None or move.before_ns is None or move.after_ns is None:
        without = [when for when in ("before", "after") if getattr(one, when).steady is None]
        return f"no steady steps {' and '.join(without)}, so shares of the recordings are compared; noise is unknown"
    times = f"{duration(move.before_ns)} -> {duration(move.after_ns)}"
    if move.moved == "same":
        return f"step unchanged, {times} ({_NOISE})"
    by = f"{max(speedup, 1 / speedup):.2f}x {'shorter' if speedup > 1 else 'longer'}"
    few = ", of too few steps to be sure" if move.moved == "unknown" else ""
    return f"step {by}, {times}{few}"


def _input(move: MetricChange) -> str:
    words = {"less": ", significant", "more": ", significant", "same": f", {_NOISE}"}
    shares = f"input wait {percent(move.before)} -> {percent(move.after)} of the window"
    if move.moved == "same" and max(move.before, move.after) < STARVED:
        return f"input wait is small on both sides ({percent(move.before)}, {percent(move.after)})"
    return shares + words.get(move.moved, "")


def _first(one: DeviceChange) -> str:
    """What to look at next."""
    idle = one.after.judged.budget.idle / one.after.judged.budget.window
    now, before = _largest(one.after), _largest(one.before)
    if idle < _BUSY or now is None:
        return f"the GPU is now idle {percent(idle)} of the time"
    name, share = now
    return f"{name} is {'still' if before and before[0] == name else 'now'} first ({percent(share)})"


def _largest(device: DeviceResult) -> tuple[str, float] | None:
    """The cause that costs most, and its share of the window."""
    causes, window = device.judged.causes, device.judged.budget.window
    if not causes or not window:
        return None
    cause = max(causes, key=lambda cause: causes[cause])
    return CAUSES[cause].title, causes[cause] / window
