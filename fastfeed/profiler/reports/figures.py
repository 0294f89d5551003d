"""Figures that every report shows: order of devices, rows of causes, shares of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model import intervals
from fastfeed.profiler.model.causes import INPUT_CAUSES, Cause
from fastfeed.profiler.model.format import duration, multiple
from fastfeed.profiler.model.result import DeviceResult, Result, Share
from fastfeed.profiler.verdict.input_advice import PHASES, phase_change
from fastfeed.profiler.verdict.verdict import focus

_MIN_PHASE = 0.005  # of the recording: a shorter phase is in the JSON document alone
PARTS = {
    "compute": "compute",
    "comm": "communication",
    "h2d": "copies to the GPU",
    "other": "other copies",
    "overhead": "profiler",
    "idle": "idle",
}


@dataclass(frozen=True, slots=True)
class CauseRow:
    """One cause in a period."""

    cause: Cause
    ns: int
    share: float  # of the period
    ns_per_step: float | None  # None without steps


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One part of the run other than steady training."""

    title: str  # with how many times, e.g. "3 starts of epochs"
    share: float  # of the recording
    idle: float  # of the phase
    ns: int
    causes: Mapping[Cause, int]
    change: str


def by_need(result: Result) -> list[DeviceResult]:
    """Devices: the verdict's first, then by share of waiting for input, then by idle time."""
    if not result.devices:
        return []
    focused = focus(result.devices)
    return sorted(
        result.devices,
        key=lambda device: (
            device is not focused,
            -device.share.value,
            -device.judged.share(device.judged.budget.idle),
        ),
    )


def steps_judged(device: DeviceResult) -> int:
    """Steps in the judged period; 0 if it is not made of steps."""
    return int(device.steps.steady.sum()) if device.steady is not None else 0


def step_ns(device: DeviceResult) -> float | None:
    """Mean length of a judged step; None if the judged period is not made of steps."""
    count = steps_judged(device)
    return device.judged.budget.window / count if count else None


def cause_rows(device: DeviceResult) -> list[CauseRow]:
    """Causes of the judged period, largest first."""
    count = steps_judged(device)
    rows = [
        CauseRow(cause, ns, device.judged.share(ns), ns / count if count else None)
        for cause, ns in device.judged.causes.items()
        if ns > 0
    ]
    return sorted(rows, key=lambda row: (-row.ns, row.cause))


def phase_rows(device: DeviceResult) -> list[PhaseRow]:
    """Parts of the run other than steady training, from half a percent on, largest first."""
    rows = [
        PhaseRow(
            f"{phase.count:,} × {PHASES[phase.kind]}" if phase.count > 1 else PHASES[phase.kind],
            device.whole.share(phase.period.budget.window),
            phase.period.share(phase.period.budget.idle),
            phase.period.budget.window,
            phase.period.causes,
            phase_change(device, phase),
        )
        for phase in device.phases
    ]
    return sorted((row for row in rows if row.share >= _MIN_PHASE), key=lambda row: -row.share)


def gain(result: Result) -> str:
    """The largest possible gain of the recommended change; "" if unknown."""
    verdict = result.verdict
    remedy = next((remedy for remedy in verdict.remedies if remedy.change == verdict.change), None)
    is_known = remedy is not None and verdict.word != "abstained" and remedy.family != "unknown"
    return f"at most {multiple(remedy.ceiling)} faster" if remedy is not None and is_known else ""


def judged_share(result: Result) -> Share:
    """Share that the verdict is about: of copies if they starve the device, else of input."""
    if result.verdict.word == "starved_of_copies" and result.devices:
        return focus(result.devices).copies
    return result.verdict.share


def top_cause(device: DeviceResult) -> str:
    """Title of the largest cause; "" if the device is never idle."""
    rows = cause_rows(device)
    return rows[0].cause.title if rows else ""


def computing(device: DeviceResult) -> str:
    """The time in which kernels run, of a step; of all of the judged time without steps."""
    return duration(device.judged.budget.compute / max(steps_judged(device), 1))


def step_shares(device: DeviceResult) -> tuple[np.ndarray, np.ndarray]:
    """Shares of each step spent waiting for input, and idle for other causes: (n,)."""
    spans = device.steps.spans
    length = np.maximum(spans[:, 1] - spans[:, 0], 1)
    idle = intervals.spans(device.slices.start, device.slices.end)
    is_input = np.isin(device.slices.cause, INPUT_CAUSES)
    waited, other = (intervals.overlap(spans, idle[rows]) for rows in (is_input, ~is_input))
    return waited / length, other / length


def offsets(result: Result) -> list[int]:
    """Offsets that put each device's times on one clock, which starts with the first op.

    Clocks of ranks are shifted by their estimated offsets. Recordings that share no collective keep
    their own clocks, each starting at 0.
    """
    clock = [_offset(result, device) for device in result.devices]
    group_start: dict[int, int] = {}  # key -1: all ranks with a known clock; else a trace
    for device, shift in zip(result.devices, clock, strict=True):
        group = device.trace if shift is None else -1
        start = device.first - (shift or 0)
        group_start[group] = min(group_start.get(group, start), start)
    return [
        group_start[device.trace] if shift is None else group_start[-1] + shift
        for device, shift in zip(result.devices, clock, strict=True)
    ]


def begin(result: Result, device: DeviceResult) -> int:
    """The time on a device's clock that reports call 0."""
    return offsets(result)[[other is device for other in result.devices].index(True)]


def _offset(result: Result, device: DeviceResult) -> int | None:
    for rank in result.ranks:
        if device.label == rank.label or device.label.startswith(f"{rank.label},"):
            return rank.offset_ns
    return None
