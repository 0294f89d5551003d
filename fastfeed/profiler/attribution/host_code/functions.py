"""Functions that the host was in while a device was idle for long, with their times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from fastfeed.profiler.attribution.host_code.frames import Frames, self_time
from fastfeed.profiler.attribution.host_code.kinds import LONG_NS
from fastfeed.profiler.attribution.host_code.names import RecordedFunction, parse
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.columns import factorize
from fastfeed.profiler.model.intervals import intersect, spans_at, union
from fastfeed.profiler.model.result import FunctionTime, Slices
from fastfeed.profiler.model.trace import Trace

_MIN_SHARE = 0.005  # of the judged time
_MOST = 20  # functions
_Key = tuple[str, str, Cause]  # a file, and a function in it


def function_times(
    trace: Trace, frames: Mapping[int, Frames], slices: Slices, late: np.ndarray, judged: np.ndarray
) -> tuple[FunctionTime, ...]:
    """The twenty functions with most idle time, by gaps of a millisecond or more."""
    long = union(late[late[:, 1] - late[:, 0] >= LONG_NS])
    window = intersect(judged, long)
    sums: dict[_Key, Counter[tuple[str, str]]] = defaultdict(Counter)
    gaps: dict[_Key, set[int]] = defaultdict(set)
    for thread, of_thread in frames.items():
        rows = np.flatnonzero(slices.thread == thread)
        for key, pair, ns, touched in _pieces(trace, of_thread, slices, rows, window):
            sums[key][pair] += ns
            gaps[key] |= touched
    least = _MIN_SHARE * max(int((judged[:, 1] - judged[:, 0]).sum()), 1)
    result = [
        _time(by_names, cause, len(gaps[file, name, cause]))
        for (file, name, cause), by_names in sums.items()
        if by_names.total() >= least
    ]
    return tuple(sorted(result, key=lambda time: -time.ns)[:_MOST])


def _time(by_names: Counter[tuple[str, str]], cause: Cause, gaps: int) -> FunctionTime:
    """Time of one function with one cause, by the names of its outer and inner frame."""
    name, inner = max(by_names, key=lambda names: by_names[names])
    function = parse(name)
    inside = "" if inner == name else str(parse(inner))
    return FunctionTime(
        function.name, function.file, function.line, inside, cause, by_names.total(), gaps
    )


def _pieces(
    trace: Trace, frames: Frames, slices: Slices, rows: np.ndarray, window: np.ndarray
) -> Iterator[tuple[_Key, tuple[str, str], int, set[int]]]:
    """One thread's time within a window by outer and inner frame, and the gaps that it is in."""
    inner, owner = self_time(frames)
    idle = intersect(spans_at(slices, rows), window)
    pieces = intersect(idle, inner)
    if not len(pieces):
        return
    owner = owner[np.searchsorted(inner[:, 0], pieces[:, 0], side="right") - 1]
    rows = rows[np.searchsorted(slices.start[rows], pieces[:, 0], side="right") - 1]
    shown = _shown(trace, frames)[owner]
    names = len(trace.names)
    key = (frames.name[shown].astype(np.int64) * names + frames.name[owner]) * len(
        Cause
    ) + slices.cause[rows]
    used, number = factorize(key)
    length = np.zeros(len(used), np.int64)
    np.add.at(length, number, pieces[:, 1] - pieces[:, 0])
    for at, code in enumerate(used.tolist()):
        pair, cause = divmod(code, len(Cause))
        outer, leaf = (trace.names[name] for name in divmod(pair, names))
        function = parse(outer)
        touched = set(slices.gap[rows[number == at]].tolist())
        yield (function.file, function.name, Cause(cause)), (outer, leaf), int(length[at]), touched


def _shown(trace: Trace, frames: Frames) -> np.ndarray:
    """The frame that reports name for each: int64, shape (n,).

    The outermost function of the program that launches nothing, else of the user's packages, else
    of any; else the innermost function of the user's.
    """
    used, number = factorize(frames.name)
    functions: list[RecordedFunction] = [parse(trace.names[name]) for name in used]
    is_users = np.array([function.is_users for function in functions], bool)[number]
    quiet = frames.quiet
    launching = np.bincount(number[is_users & ~quiet], minlength=len(used))
    packages = {
        function.package for function, count in zip(functions, launching, strict=True) if count
    } | {""}
    is_program = (
        is_users & np.array([function.package in packages for function in functions], bool)[number]
    )
    own = np.arange(len(frames.start))
    candidates = (
        frames.around(quiet & is_program),
        frames.around(quiet & is_users),
        frames.outer,
        frames.around(is_users, innermost=True),
        own,
    )
    return np.select([candidate >= 0 for candidate in candidates], candidates)
