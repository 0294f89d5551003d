"""Activities of host threads, by the name of the call or range that they are in."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np

from fastfeed.errors import ConfigError
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.columns import factorize, unique_values
from fastfeed.profiler.model.kernel_names import signatures
from fastfeed.profiler.model.trace import RangeKind, Trace


class Activity(IntEnum):
    """Host activities by precedence: the first that covers an instant is the cause."""

    INPUT = 0
    CHECKPOINT = 1
    COMPILE = 2
    LOAD = 3
    ALLOC = 4
    COPY = 5
    SYNC = 6
    HOST_COMM = 7
    # this one and the next four: long stretches of code without a launch, see host_code/kinds
    INPUT_IN_THREAD = 8
    ENVIRONMENT = 9
    IO = 10
    PROFILER = 11
    HOST_CODE = 12
    LAUNCH = 13
    GC = 14
    GIL = 15
    FRAMEWORK = 16
    PYTHON = 17
    WAITING = 18  # parked until another thread has work for it: that thread decides
    NOTHING = 19  # irrelevant to lateness

    @property
    def cause(self) -> Cause:
        return Cause.MODULE_LOAD if self is Activity.LOAD else Cause[self.name]


INPUT_ACTIVITIES = (Activity.INPUT, Activity.INPUT_IN_THREAD)


_CALLS = signatures("calls")
_RANGES = signatures("ranges")
# returns immediately unless the host memory is pageable
_QUEUED_COPY = re.compile("async|batch", re.IGNORECASE)
_PROFILER_STEP = re.compile(r"^(ProfilerStep[#*]|gpu_user_annotation)")

# where the name says nothing; of other kinds NOTHING
_DEFAULTS = {
    RangeKind.FEED: Activity.INPUT,
    RangeKind.OP: Activity.FRAMEWORK,
    RangeKind.PYTHON: Activity.PYTHON,
    RangeKind.GC: Activity.GC,
    RangeKind.GIL: Activity.GIL,
    RangeKind.COMPILE: Activity.COMPILE,
    RangeKind.NVTX: Activity.FRAMEWORK,
}


def call_activities(trace: Trace) -> np.ndarray:
    """An Activity per call: uint8, shape (len(calls),). An asynchronous copy is a launch."""
    # the last entry is for name -1
    table = np.full(len(trace.names) + 1, Activity.LAUNCH, np.uint8)
    for name in unique_values(trace.calls.name).tolist():
        table[name] = _classify_call(trace.name(name))
    return table[trace.calls.name]


def _classify_call(name: str) -> Activity:
    activity = next(
        (Activity[kind] for kind, pattern in _CALLS.items() if pattern.search(name)),
        Activity.LAUNCH,
    )
    return Activity.LAUNCH if activity is Activity.COPY and _QUEUED_COPY.search(name) else activity


def range_activities(trace: Trace, input_range: str = "") -> np.ndarray:
    """An Activity per range: uint8, shape (len(ranges),).

    `input_range` is the user's regular expression for ranges that wait for input. Raises
    ConfigError if it is invalid.
    """
    try:
        user_pattern = re.compile(input_range) if input_range else None
    except re.error as error:
        raise ConfigError(
            f"the pattern of input ranges, {input_range!r}, is not a regular expression: {error}"
        ) from error
    kinds = len(RangeKind)
    key = (trace.ranges.name.astype(np.int64) + 1) * kinds + trace.ranges.kind
    used, number = factorize(key)
    activities = [
        _classify_range(trace.name(name - 1), RangeKind(kind), user_pattern)
        for name, kind in (divmod(code, kinds) for code in used.tolist())
    ]
    return np.array(activities, np.uint8)[number]


def frame_activity(name: str) -> Activity:
    """The activity that a Python frame's name shows, `dataloader.py(521): __next__`."""
    return _classify_range(name, RangeKind.PYTHON, None)


def _classify_range(name: str, kind: RangeKind, user_pattern: re.Pattern[str] | None) -> Activity:
    if user_pattern is not None and user_pattern.search(name):
        return Activity.INPUT
    if kind in (RangeKind.STEP, RangeKind.OTHER) or _PROFILER_STEP.match(name):
        return Activity.NOTHING
    if kind is RangeKind.FEED:
        return Activity.INPUT
    if kind is RangeKind.SYSTEM:
        return Activity.WAITING if _RANGES["WAITING"].search(name) else Activity.NOTHING
    return next(
        (Activity[kind] for kind, pattern in _RANGES.items() if pattern.search(name)),
        _DEFAULTS[kind],
    )
