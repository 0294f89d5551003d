"""Reasons against any verdict on a trace, and doubts that lower its confidence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastfeed.printable import plural
from fastfeed.profiler.model.causes import STARVED, Cause
from fastfeed.profiler.model.format import duration, percent
from fastfeed.profiler.model.intervals import clip, intersect, measure, union
from fastfeed.profiler.model.result import DeviceResult
from fastfeed.profiler.model.trace import Origin

# steps for a likely and for a confirmed verdict
LIKELY_STEPS = 5
CONFIRMED_STEPS = 20
_LEVELS = ("weak", "likely", "confirmed")
_MIN_WAITS = 3  # waits for input, if no steps are judged: a single one may be something else
# of the judged time, in one piece without a wait: input was not recorded all along
_MAX_WITHOUT = 0.5
_MAX_SHARED = 0.2  # of the operations: a launch call starts one, except for graphs
_MAX_MISSING = 0.05  # of the steps, and of idle time that ends in operations without a launch
# of the launches have no operation: a doubt, and no verdict
_SOME_LOST = 0.02
_MANY_LOST = 0.1
_MIN_LOST = 3  # launches: fewer are chance
_MAX_ASSUMED = 0.5  # of the cost of input: with more, a verdict is less certain
_NEGLIGIBLE = 0.001  # of the window
_MIN_RECORDED = 0.5  # of the time of marked steps, if none of them is whole
_LONG_OP = 0.5  # of the window
_MAX_OVERLAP = 0.01  # of an operation, with others of its stream: clocks are that exact


def abstention_reasons(device: DeviceResult, origin: Origin) -> tuple[str, ...]:
    """Reasons why the trace does not support a verdict; empty if it does."""
    judged = device.judged
    metrics = device.metrics
    window = max(judged.budget.window, 1)
    idle = max(judged.budget.idle, 1)
    reasons = []
    if origin.sampled:
        reasons.append("The trace is sampled: events were left out.")
    if origin.dropped:
        reasons.append(f"The profiler lost {plural(origin.dropped, 'record')}.")
    missing, expected = _missing_steps(device)
    if origin.incomplete:
        missing += device.steps.unrecorded
        expected = missing + int((device.steps.spans[:, 0] < device.last).sum())
        if missing > _MAX_MISSING * expected:
            reasons.append(
                f"Only {expected - missing:,} of {expected:,} steps are left in a damaged file."
            )
    if (waited := _cut_wait(device)) > _NEGLIGIBLE * window:
        reasons.append(
            f"None of the {len(device.steps.labels)} steps is whole: the recording of the GPU"
            f" begins after {duration(waited)} of waiting for input, and where the last step ends"
            " is not known."
        )
    elif opened := _opening_wait(device):
        with_it = (device.share.value * window + opened) / (window + opened)
        if device.share.value < STARVED <= with_it:
            reasons.append(
                "No whole step was recorded, and the recording of the GPU begins after"
                f" {duration(opened)} of waiting for input: with it, input costs {percent(with_it)}"
                " of the time."
            )
    if device.ops == 1:
        reasons.append(
            f"One device operation of {duration(window)} was recorded: there is no time between"
            " operations to explain."
        )
    if not origin.host_calls:
        if idle >= STARVED * window:
            reasons.append(
                "The host's API calls were not recorded, so a late launch cannot be distinguished"
                " from a delayed kernel."
            )
    else:
        reasons += _launch_reasons(device, window, idle)
    if judged.budget.overhead > 0.1 * window:
        reasons.append(
            f"The profiler itself took {percent(judged.budget.overhead / window, 0)} of the window."
        )
    longest = metrics.get("longest_op_share", 0.0)
    if longest > _LONG_OP and metrics.get("longest_op_overlap", 0.0) > _MAX_OVERLAP:
        reasons.append(
            f"One device operation covers {percent(longest, 0)} of the window, and others of its"
            " own stream run inside of it, which no stream does: its record is damaged."
        )
    if (
        not reasons
        and device.share.value < STARVED
        and (recorded := _recorded_part(device)) < _MIN_RECORDED
    ):
        reasons.append(
            f"No whole step was recorded, and only {percent(recorded, 0)} of the time of the marked"
            " steps is in the GPU's part of the recording: the rest could be input."
        )
    return tuple(reasons)


def _launch_reasons(device: DeviceResult, window: int, idle: int) -> list[str]:
    """Reasons that concern launches, or the host before them."""
    judged = device.judged
    metrics = device.metrics
    reasons = []
    unlaunched = judged.ns(Cause.NO_LAUNCH)
    shared = metrics.get("shared_launches", 0.0)
    against_record = metrics.get("contradicted_ms", 0.0) * 1e6
    if shared > _MAX_SHARED:
        reasons.append(
            f"{percent(shared, 0)} of the device operations share their launch with others, which"
            " only graphs do: the correlation ids of the trace are damaged."
        )
    elif _lost_share(device) >= _MANY_LOST:
        reasons.append(
            f"{_lost(device)}: records were lost, and the time in which that work ran counts as"
            " idle."
        )
    elif _could_starve(device, against_record / window):
        reasons.append(
            f"The record contradicts itself: for {duration(against_record)},"
            f" {percent(against_record / window)} of the window, the launching thread waited for"
            " input and the GPU was idle, but work is recorded as launched."
        )
    if unlaunched > _MAX_MISSING * idle and _could_starve(device, unlaunched / window):
        reasons.append(
            f"Only {device.launches:,} of {device.ops:,} device operations have a recorded launch; "
            f"{percent(unlaunched / idle, 0)} of the idle time ends in the others."
        )
    elif (held := _held_share(device)) > 0.2 and held * idle > STARVED * window:
        reasons.append(
            f"For {percent(held, 0)} of the idle time work was already launched, and nothing"
            " recorded explains why it had not started: device operations are missing from the"
            " trace."
        )
    if _could_starve(device, unplaced := _unplaced_share(device)):
        reasons.append(
            f"For {percent(unplaced)} of the time the GPU waited for code that launches"
            f" nothing{_mostly_in(device)}. If it prepares batches, analyze with --input-range and"
            " its name."
        )
    unknown = judged.ns(Cause.HOST_UNKNOWN) + unlaunched
    if (
        unknown > 0.2 * idle
        and not _has_recorded_waits(device)
        and _could_starve(device, unknown / window)
    ):
        reasons.append(
            f"Host activity was not recorded for {percent(unknown / idle, 0)} of the idle time; "
            f"that is {percent(unknown / window)} of the window and could be input."
        )
    return reasons


def _held_share(device: DeviceResult) -> float:
    """Share of the idle time with launched work that did not start, and is not all recorded."""
    metrics = device.metrics
    is_complete = device.launches == device.ops and not metrics.get("lost_launches")
    unavailable = 0.0 if is_complete else metrics.get("unavailable_share", 0.0)
    return metrics.get("held_share", 0.0) + unavailable


def has_all_recorded(device: DeviceResult, reasons: Sequence[str]) -> bool:
    """True if the only reason is code without a known purpose."""
    return len(reasons) == 1 and _could_starve(device, _unplaced_share(device))


def _unplaced_share(device: DeviceResult) -> float:
    return device.judged.share(device.judged.ns(Cause.HOST_CODE, Cause.IO))


def _mostly_in(device: DeviceResult) -> str:
    """Name the function that most of the unplaced code belongs to."""
    unplaced = (time for time in device.functions if time.cause in (Cause.HOST_CODE, Cause.IO))
    return next((f", mostly in {time}" for time in unplaced), "")


def _is_assumed(device: DeviceResult) -> bool:
    """True if input starves the device, and mostly input that only its place in the step shows."""
    assumed = device.metrics.get("assumed_input_ms", 0.0) * 1e6
    cost = max(device.share.value * device.judged.budget.window, 1)
    return device.share.value >= STARVED and assumed > _MAX_ASSUMED * cost


def _lost_share(device: DeviceResult) -> float:
    """Share of the judged launches without an operation in the recording."""
    lost, checked = (device.metrics.get(f"{which}_launches", 0.0) for which in ("lost", "checked"))
    return lost / checked if lost >= _MIN_LOST else 0.0


def _lost(device: DeviceResult) -> str:
    metrics = device.metrics
    share = percent(_lost_share(device))
    return (
        f"{metrics['lost_launches']:,.0f} of {metrics['checked_launches']:,.0f} launches ({share})"
        " have no operation on the device"
    )


def _has_recorded_waits(device: DeviceResult) -> bool:
    """True if waits for input were recorded all along, so that unknown time is not input."""
    waits = device.judged.input.waits
    if device.steady is not None:
        return waits >= device.metrics["steps"] / 2
    longest = _longest_without_waits(device) if waits >= _MIN_WAITS else np.inf
    return longest <= _MAX_WITHOUT * device.judged.budget.window


def _longest_without_waits(device: DeviceResult) -> int:
    """Longest judged time from one wait for input, or an edge, to the next: nanoseconds."""
    judged = device.judged.spans
    length = judged[:, 1] - judged[:, 0]
    before = np.concatenate([[0], np.cumsum(length)])  # judged time before each span
    start = intersect(device.waits, judged)[:, 0]
    span = np.searchsorted(judged[:, 0], start, side="right") - 1
    at = before[span] + start - judged[span, 0]
    return int(np.diff(np.concatenate([[0], at, [before[-1]]])).max())


def _could_starve(device: DeviceResult, share: float) -> bool:
    """True if only this share of the window in addition makes the device starved."""
    return device.share.value < STARVED <= device.share.value + share


def _cut_wait(device: DeviceResult) -> int:
    """Input waits in marked steps before the first operation, if no step is whole: ns."""
    steps = device.steps
    if steps.guessed or steps.steady.any() or len(steps.labels) < 2:
        return 0
    return measure(clip(device.waits, int(steps.spans[0, 0]), device.first))


def _opening_wait(device: DeviceResult) -> int:
    """Input wait before the first operation, if no step is judged; at most a usual one: ns."""
    before = device.waits[device.waits[:, 0] < device.first]
    if device.steady is not None or not len(before):
        return 0
    others = intersect(device.waits, device.judged.spans)
    length = min(int(before[-1, 1]), device.first) - int(before[-1, 0])
    return min(length, int((others[:, 1] - others[:, 0]).max())) if len(others) else length


def _recorded_part(device: DeviceResult) -> float:
    """Recorded share of the marked time; 1 if whole steps are judged."""
    steps = device.steps
    if device.steady is not None or steps.guessed or not len(steps.labels):
        return 1.0
    marked = union(steps.spans)
    return measure(clip(marked, device.first, device.last)) / max(measure(marked), 1)


def _missing_steps(device: DeviceResult) -> tuple[int, int]:
    """Steps that the numbers in the labels skip, and how many there should be."""
    return device.steps.missing, len(device.steps.labels) + device.steps.missing


def confidence(device: DeviceResult, origin: Origin) -> str:
    """Confirmed, likely or weak: by the number of steps, less one level for each doubt.

    Guessed steps confirm nothing. Doubts: a recording with holes, lost device operations, absent
    ranks that may starve it, input that is mostly assumed.
    """
    steps = int(device.steps.steady.sum())
    missing, expected = _missing_steps(device)
    level = (steps >= LIKELY_STEPS) + (steps >= CONFIRMED_STEPS and not device.steps.guessed)
    level -= bool(origin.incomplete) or missing > _MAX_MISSING * expected
    level -= _lost_share(device) >= _SOME_LOST
    level -= _starved_by_others(device)
    level -= _is_assumed(device)
    return _LEVELS[max(level, 0)]


def _starved_by_others(device: DeviceResult) -> bool:
    """True if collectives may hide waits for the input of ranks that are missing."""
    comm = device.judged.share(device.judged.budget.comm)
    return device.metrics.get("absent_ranks", 0) > 0 and _could_starve(device, comm)


def doubts(device: DeviceResult, origin: Origin) -> list[str]:
    """Sentences about gaps and oddities of the recording that do not prevent a verdict."""
    sentences = []
    judged = device.judged
    if origin.incomplete:
        sentences.append(
            f"The file is incomplete ({origin.incomplete}): the verdict is about what could be"
            " read."
        )
    missing, expected = _missing_steps(device)
    if missing:
        sentences.append(
            f"Only {expected - missing:,} of {expected:,} steps are in the recording, by their"
            " numbers."
        )
    unlaunched = judged.ns(Cause.NO_LAUNCH)
    if not origin.host_calls:
        sentences.append(
            "The host's API calls were not recorded: the causes of the little idle time are"
            " unknown."
        )
    elif unlaunched > _MAX_MISSING * max(judged.budget.idle, 1):
        sentences.append(
            f"{percent(unlaunched / max(judged.budget.idle, 1), 0)} of the idle time,"
            f" {percent(judged.share(unlaunched))} of the window, ends in"
            " operations whose launch was not recorded."
        )
    if _lost_share(device) >= _SOME_LOST:
        sentences.append(
            f"{_lost(device)}: some records were lost, and what ran then counts as idle."
        )
    if _starved_by_others(device):
        sentences.append(
            f"{percent(judged.budget.comm / judged.budget.window)} of the window is in collectives,"
            f" and the traces of {device.metrics['absent_ranks']:.0f} other ranks are missing: if"
            " one of them was late because of its input, so is this one. Pass the traces of all"
            " ranks together."
        )
    if _is_assumed(device):
        prepares = next(
            (time for time in device.functions if time.cause.family == "input"), "this code"
        )
        sentences.append(
            f"That {prepares} prepares batches is concluded from its place: before the first launch"
            " of a step or the copy of a batch, or any wait where no steps are marked."
        )
    longest = device.metrics.get("longest_op_share", 0.0)
    if longest > _LONG_OP:
        sentences.append(f"One device operation covers {percent(longest, 0)} of the recording.")
    return sentences
