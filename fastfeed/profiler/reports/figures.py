"""Figures that every report shows, calculated once: order of devices, rows of causes, shares of steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import CAUSES, Cause
from fastfeed.profiler.model.format import multiple
from fastfeed.profiler.model.result import DeviceResult, Period, Result
from fastfeed.profiler.verdict.verdict import focus

__all__ = [
    "PARTS",
    "Row",
    "StepShares",
    "by_need",
    "gain",
    "offsets",
    "rows",
    "step_shares",
    "steps_judged",
    "top_cause",
]

PARTS = {
    "compute": "compute",
    "comm": "communication",
    "h2d": "copies to the GPU",
    "other": "other copies",
    "overhead": "profiler",
    "idle": "idle",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One cause in a period."""

    cause: Cause
    ns: int
    share: float  # of the period
    ns_per_step: float | None  # None: no steps to divide by


@dataclass(frozen=True, slots=True)
class StepShares:
    """Each step's time, as fractions of it; shape (n,). What is left is work."""

    input: np.ndarray
    idle: np.ndarray  # for other causes


def by_need(result: Result) -> list[DeviceResult]:
    """The device that the verdict is about first, then those that wait most for input, then by idle time."""
    if not result.devices:
        return []
    about = focus(result.devices)
    return sorted(
        result.devices,
        key=lambda one: (one is not about, -one.share.value, -_part(one.judged, one.judged.budget.idle)),
    )


def _part(period: Period, ns: float) -> float:
    return ns / period.budget.window if period.budget.window > 0 else 0.0


def steps_judged(device: DeviceResult) -> int:
    """Steps in the judged period; 0 where it is not made of steps."""
    return int(device.steps.steady.sum()) if device.steady is not None else 0


def rows(device: DeviceResult, period: Period | None = None) -> list[Row]:
    """Causes of the judged period, or of another, largest first."""
    count = steps_judged(device) if period is None or period is device.steady else 0
    period = period or device.judged
    found = [
        Row(cause, ns, _part(period, ns), ns / count if count else None)
        for cause, ns in period.causes.items()
        if ns > 0
    ]
    return sorted(found, key=lambda row: (-row.ns, row.cause))


def gain(result: Result) -> str:
    """What the one change could win at most; "" where that is not known."""
    verdict = result.verdict
    best = next((one for one in verdict.remedies if one.change == verdict.change), None)
    known = best is not None and verdict.word != "abstained" and best.family != "unknown"
    return f"at most {multiple(best.ceiling)} faster" if best is not None and known else ""


def top_cause(device: DeviceResult) -> str:
    """Title of the cause with most time, "" where nothing is idle."""
    found = rows(device)
    return CAUSES[found[0].cause].title if found else ""


def step_shares(device: DeviceResult) -> StepShares:
    """What each step waited for input, and was idle for anything else."""
    spans = device.steps.spans
    length = np.maximum(spans[:, 1] - spans[:, 0], 1) if len(spans) else np.ones(0, np.int64)
    held = intervals.spans(device.slices.start, device.slices.end)
    is_input = device.slices.cause == Cause.INPUT
    waited = intervals.overlap(spans, held[is_input]) / length
    return StepShares(waited, intervals.overlap(spans, held[~is_input]) / length)


def offsets(result: Result) -> list[int]:
    """What to subtract from each device's times, so that all are on one clock that begins with the first op.

    Ranks' clocks are shifted by their estimated offsets; recordings that share no collective keep clocks of their own,
    and each of those begins at 0.
    """
    known = {rank.label: rank.offset_ns for rank in result.ranks}
    clock = [
        next((ns for label, ns in known.items() if one.label == label or one.label.startswith(f"{label},")), None)
        for one in result.devices
    ]
    began: dict[int, int] = {}  # -1: all ranks with a clock that is known; else a trace
    for one, shift in zip(result.devices, clock, strict=True):
        group = one.trace if shift is None else -1
        began[group] = min(began.get(group, one.first - (shift or 0)), one.first - (shift or 0))
    return [
        began[one.trace] if shift is None else began[-1] + shift
        for one, shift in zip(result.devices, clock, strict=True)
    ]
