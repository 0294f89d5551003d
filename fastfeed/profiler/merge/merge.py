"""Merges of a feed's timeline into a GPU trace, and of the two tables that nvprof prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastfeed.profiler.merge.cycles import join_cycles
from fastfeed.profiler.model.intervals import by_start, spans_at
from fastfeed.profiler.model.trace import (
    Process,
    RangeKind,
    Ranges,
    Thread,
    Trace,
    concatenated,
    table,
)

_WAIT = "fastfeed:wait"  # the trainer's thread, by definition
# of the ops whose call must be in the other table, for both to be of one recording
_MIN_LAUNCHED = 0.5
# wall clocks of one machine agree far better; spans further apart are different ranges
_NEAR_NS = 50_000_000
_SAME_NS = 200_000  # between start and end of one range in NVTX and in the timeline
_MIN_MATCHES = 3  # ranges in both recordings, for a refinement
_SPREAD_NS = 1_000_000  # between their offsets; with more they are different ranges
_PATTERN_LENGTH = 64  # consecutive ranges to search for where no clock is known
_MIN_PATTERN = 6
_PATTERN_NS = 100_000
# ranges by name and thread: int64 (n, 2), in order of their start
_RangesByKey = Mapping[tuple[str, int], np.ndarray]


@dataclass(frozen=True, slots=True)
class _ProcessMap:
    """The side's processes and threads in the trace, which may have gained rows for them."""

    processes: tuple[Process, ...]
    threads: tuple[Thread, ...]
    process: Mapping[int, int]  # side -> trace
    thread: np.ndarray  # side -> trace; -1 if it is of another run
    notes: tuple[str, ...] = ()


def combine(traces: Sequence[Trace]) -> list[Trace]:
    """Merge timelines into GPU traces, cycles of one process, and nvprof's two tables."""
    timelines = [trace for trace in traces if trace.origin.dialect == "timeline"]
    gpu_traces = _join_nvprof(
        join_cycles([trace for trace in traces if trace.origin.dialect != "timeline"])
    )
    if not gpu_traces:
        return timelines
    for timeline in timelines:
        merged = [merge(trace, timeline) for trace in gpu_traces]
        pairs = list(zip(gpu_traces, merged, strict=True))
        accepted = [
            len(_recorded_feeds(result)) > len(_recorded_feeds(trace)) for trace, result in pairs
        ]
        # each rank has its own timeline: no note in the traces of other ranks where one of them
        # took it
        gpu_traces = [
            pairs[at][1] if accepted[at] or not any(accepted) else pairs[at][0]
            for at in range(len(pairs))
        ]
    return gpu_traces


def _recorded_feeds(trace: Trace) -> Sequence[Any]:
    return trace.metadata.get("feeds", ())


def merge(trace: Trace, side: Trace) -> Trace:
    """A GPU trace with the ranges of a feed's timeline; only with a note if they do not match."""
    name = f"the timeline {side.origin.path}"
    process, how = _match_processes(trace, side)
    if not process:
        theirs, ours = (
            ", ".join(str(one.pid) for one in of.processes[:3]) or "none" for of in (side, trace)
        )
        return trace.with_notes(
            f"{name} is not used: it is of process {theirs}, the trace of {ours}"
        )
    mapping = _map_processes(trace, side, process)
    is_mapped = np.append(mapping.thread, -1)[side.ranges.thread] >= 0
    trace_rows = _rows_by_key(
        trace, np.append(np.arange(len(trace.threads)), -1), trace.ranges.kind == RangeKind.FEED
    )
    side_rows = _rows_by_key(side, np.append(mapping.thread, -1), is_mapped)
    ranges_by_key = [
        {key: spans_at(of, rows) for key, rows in rows_of.items()}
        for of, rows_of in ((trace.ranges, trace_rows), (side.ranges, side_rows))
    ]
    alignment = _align(
        trace.origin.wall_ns, side.origin.wall_ns, ranges_by_key[0], ranges_by_key[1]
    )
    if alignment is None:
        return trace.with_notes(
            f"{name} is not used: neither a wall clock nor NVTX ranges line it up with the trace"
        )
    start = side.ranges.start + alignment.shift
    end = side.ranges.end + alignment.shift
    window = _window(trace)
    inside = is_mapped & (start < window[1]) & (end > window[0])
    if not inside.any():
        distance = _time_distance(start[is_mapped], end[is_mapped], window)
        return trace.with_notes(f"{name} is not used: {distance}; is it of this run?")
    names, name_index = _merge_names(trace.names, side.names)
    duplicate = np.zeros(len(inside), bool)
    domain = trace.ranges.domain.copy()
    for key in side_rows.keys() & trace_rows.keys():
        ours, theirs = _nearest(ranges_by_key[0][key], ranges_by_key[1][key] + alignment.shift)
        duplicate[side_rows[key][theirs]] = True
        # the feed's id
        domain[trace_rows[key][ours]] = name_index[side.ranges.domain[side_rows[key][theirs]]]
    new = inside & ~duplicate
    ranges = table(
        Ranges,
        start=start[new],
        end=end[new],
        thread=mapping.thread[side.ranges.thread[new]],
        name=name_index[side.ranges.name[new]],
        kind=side.ranges.kind[new],
        domain=name_index[side.ranges.domain[new]],
    )
    counts = {
        f"of {name} are added, lined up {alignment.how}": new,
        "of it are in the trace as NVTX ranges already": inside & duplicate,
        "of it are before or after the trace's time and are left out": is_mapped & ~inside,
        "of it are of processes that are not in this trace and are left out": ~is_mapped,
    }
    notes = [
        f"{int(rows.sum())} spans {what}"
        for what, rows in counts.items()
        if rows.any() or rows is new
    ]
    present = {
        feed for feed, group in _processes_by_feed(side).items() if group[0] in mapping.process
    }
    feeds = [
        *_recorded_feeds(trace),
        *(feed for feed in _recorded_feeds(side) if feed["feed"] in present),
    ]
    merged = replace(
        trace,
        names=names,
        processes=mapping.processes,
        threads=mapping.threads,
        ranges=concatenated(replace(trace.ranges, domain=domain), ranges),
        metadata={**trace.metadata, "feeds": feeds},
    )
    return merged.with_notes(*notes, *filter(None, [how]), *mapping.notes)


def _match_processes(trace: Trace, side: Trace) -> tuple[dict[int, int], str]:
    """Matching processes, side to trace, by pid and host, else by rank; and a note."""
    ours = trace.processes
    theirs = side.processes
    matches: dict[int, int] = {}
    for index, process in enumerate(theirs):
        candidates = [
            at
            for at, other in enumerate(ours)
            if other.pid == process.pid > 0 and _same_host(process, other)
        ]
        if len(candidates) == 1:
            matches[index] = candidates[0]
    if matches:
        return matches, ""
    trainers = sorted({group[0] for group in _processes_by_feed(side).values()})
    ranks = {candidate.rank: at for at, candidate in enumerate(ours) if candidate.rank is not None}
    matches = {index: ranks[rank] for index in trainers if (rank := theirs[index].rank) in ranks}
    if matches:
        return matches, "its process was matched by rank, the process ids differ"
    if len(ours) == 1 and len(trainers) == 1 and min(ours[0].pid, theirs[trainers[0]].pid) <= 0:
        return {trainers[0]: 0}, "its process was taken for the trace's, which has no process id"
    return {}, ""


def _same_host(a: Process, b: Process) -> bool:
    return not a.host or not b.host or a.host.split(".")[0] == b.host.split(".")[0]


def _processes_by_feed(side: Trace) -> dict[str, list[int]]:
    """The processes of each feed: the trainer's first, then those that help it."""
    index = {(process.pid, process.host): at for at, process in enumerate(side.processes)}
    groups: dict[str, list[int]] = {}
    for feed in _recorded_feeds(side):
        groups.setdefault(feed["feed"], []).append(index[feed["pid"], feed["host"]])
    return groups


def _map_processes(trace: Trace, side: Trace, process: dict[int, int]) -> _ProcessMap:
    """Add rows for helper processes of the matched ones, and for new threads."""
    processes = list(trace.processes)
    threads = list(trace.threads)
    process = dict(process)
    for group in _processes_by_feed(side).values():
        if group[0] in process:
            for index in group[1:]:
                if index not in process:
                    process[index] = len(processes)
                    processes.append(side.processes[index])
    rows = {(thread.process, thread.tid): at for at, thread in enumerate(threads)}
    by_tid: dict[int, list[int]] = {}
    for at, thread in enumerate(trace.threads):
        by_tid.setdefault(thread.tid, []).append(at)
    thread_rows = np.full(len(side.threads), -1, np.int64)
    notes = []
    walls = side.origin.wall_ns, trace.origin.wall_ns
    shift = None if walls[0] is None or walls[1] is None else walls[0] - walls[1]
    for index, thread in enumerate(side.threads):
        if thread.process not in process:
            continue
        key = (process[thread.process], thread.tid)
        candidates = by_tid.get(thread.tid, [])
        # a timeline can only guess which process of a feed a thread is of
        if key not in rows and len(candidates) == 1:
            rows[key] = candidates[0]
        wait_ends = _wait_ends(side, index)
        is_ours = key[0] < len(trace.processes)
        if key not in rows and len(wait_ends) and is_ours and shift is not None:
            trainer = _training_thread(trace, key[0], wait_ends + shift)
            if trainer >= 0:
                rows[key] = trainer
                notes.append(
                    f"its waiting thread {thread.tid} is taken for the trace's thread"
                    f" {threads[trainer].tid}"
                )
        if key not in rows:
            rows[key] = len(threads)
            threads.append(Thread(key[0], thread.tid, thread.name))
        thread_rows[index] = rows[key]
    return _ProcessMap(tuple(processes), tuple(threads), process, thread_rows, tuple(notes))


def _wait_ends(side: Trace, thread: int) -> np.ndarray:
    """When the waits of a thread ended, on the side's clock."""
    name = side.names.index(_WAIT) if _WAIT in side.names else -1
    return side.ranges.end[(side.ranges.thread == thread) & (side.ranges.name == name)]


def _training_thread(trace: Trace, process: int, wait_ends: np.ndarray) -> int:
    """The thread whose calls follow the waits, if the trace numbers threads its own way; or -1."""
    threads = [at for at, thread in enumerate(trace.threads) if thread.process == process]
    has_main_thread = any(trace.threads[at].tid == trace.processes[process].pid for at in threads)
    rows = np.flatnonzero(np.isin(trace.calls.thread, threads))
    if has_main_thread or not len(rows):
        return -1
    rows = by_start(trace.calls, rows)
    after = np.searchsorted(trace.calls.start[rows], wait_ends)
    after = after[after < len(rows)]
    return int(np.argmax(np.bincount(trace.calls.thread[rows[after]]))) if len(after) else -1


def _rows_by_key(
    trace: Trace, thread: np.ndarray, which: np.ndarray
) -> dict[tuple[str, int], np.ndarray]:
    """Row numbers of the chosen ranges by name and merged thread, in order of start."""
    rows = np.flatnonzero(which)
    rows = by_start(trace.ranges, rows)
    keys = trace.ranges.name[rows].astype(np.int64) << 32 | thread[trace.ranges.thread[rows]]
    return {
        (trace.name(int(key) >> 32), int(key) & 0xFFFFFFFF): rows[keys == key]
        for key in np.unique(keys).tolist()
    }


def _window(trace: Trace) -> tuple[int, int]:
    """The first and the last time in the trace."""
    tables = [
        each for each in (trace.ops, trace.calls, trace.ranges, trace.overheads) if len(each.start)
    ]
    first = min((int(each.start.min()) for each in tables), default=0)
    return first, max((int(each.end.max()) for each in tables), default=0)


def _time_distance(start: np.ndarray, end: np.ndarray, window: tuple[int, int]) -> str:
    if not len(start):
        return "it has no span"
    if int(end.max()) <= window[0]:
        return f"it ends {(window[0] - int(end.max())) / 1e9:.3g} s before the trace begins"
    return f"it begins {(int(start.min()) - window[1]) / 1e9:.3g} s after the trace ends"


def _merge_names(ours: Sequence[str], theirs: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """All names, and the indexes of the side's in them; the last, for -1, is -1."""
    index: dict[str, int] = {}
    for at, text in enumerate((*ours, *theirs)):
        index.setdefault(text, at)
    new = [text for text in dict.fromkeys(theirs) if index[text] >= len(ours)]
    index |= {text: at for at, text in enumerate(new, len(ours))}
    return (*ours, *new), np.array([*(index[text] for text in theirs), -1], np.int64)


def _join_nvprof(traces: list[Trace]) -> list[Trace]:
    """Merges nvprof's printed calls with the printed ops of the same process."""
    printed = [
        trace for trace in traces if trace.origin.dialect == "nvprof" and not trace.origin.version
    ]
    with_calls = [trace for trace in printed if len(trace.calls.start) and not len(trace.ops.start)]
    joined: list[Trace] = []
    result = []
    for trace in traces:
        candidates = () if len(trace.calls.start) else with_calls
        calls = [each for each in candidates if _launched_by(trace, each)][:1]
        joined += calls
        result.append(_with_calls(trace, calls[0]) if calls else trace)
    return [trace for trace in result if not any(trace is each for each in joined)]


def _launched_by(ops: Trace, calls: Trace) -> bool:
    """True if the ops were launched by these calls."""
    pids = [
        {process.pid for process in trace.processes if process.pid > 0} for trace in (ops, calls)
    ]
    if all(pids) and not pids[0] & pids[1]:
        return False
    corr = ops.ops.corr[ops.ops.corr >= 0]
    return len(corr) > 0 and float(np.isin(corr, calls.calls.corr).mean()) > _MIN_LAUNCHED


def _with_calls(ops: Trace, calls: Trace) -> Trace:
    names, name_index = _merge_names(ops.names, calls.names)
    thread = tuple(Thread(0, row.tid, row.name) for row in calls.threads)
    name = name_index[calls.calls.name].astype(np.int32)
    joined = replace(
        ops,
        names=names,
        threads=(*ops.threads, *thread),
        calls=replace(calls.calls, name=name, thread=calls.calls.thread + len(ops.threads)),
        origin=replace(ops.origin, host_calls=True),
    )
    return joined.with_notes(
        f"{len(calls.calls.start)} calls are from {calls.origin.path}", *calls.origin.notes
    )


@dataclass(frozen=True, slots=True)
class _Alignment:
    """Add `shift` to the side's times to have the trace's."""

    shift: int  # ns
    spread: int  # ns, median distance of their offsets from the middle one
    how: str  # a sentence's part for people: "by the wall clock, refined by 120 ranges"


def _align(
    trace_wall: int | None, side_wall: int | None, trace: _RangesByKey, side: _RangesByKey
) -> _Alignment | None:
    """The offset of the side's clock against the trace's; None if it cannot be determined."""
    if trace_wall is None or side_wall is None:
        return _by_pattern(trace, side)
    shift = side_wall - trace_wall
    offsets_by_key = []
    for key in trace.keys() & side.keys():
        at, partner = _nearest(trace[key], side[key] + shift, _NEAR_NS)
        offsets_by_key.append(trace[key][at, 0] - (side[key][partner, 0] + shift))
    offsets = np.concatenate([np.empty(0, np.int64), *offsets_by_key])
    if len(offsets) >= _MIN_MATCHES:
        middle = int(np.sort(offsets)[len(offsets) // 2])
        spread = int(np.sort(np.abs(offsets - middle))[len(offsets) // 2])
        if spread < _SPREAD_NS:
            how = f"by the wall clock, refined by {len(offsets)} NVTX ranges"
            return _Alignment(shift + middle, spread, how)
    return _Alignment(shift, 0, "by the wall clock")


def _nearest(
    ours: np.ndarray, theirs: np.ndarray, within: int = _SAME_NS
) -> tuple[np.ndarray, np.ndarray]:
    """Indexes of equal spans: starts at most `within` ns apart, lengths alike; each used once."""
    if not len(ours) or not len(theirs):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    after = np.searchsorted(theirs[:, 0], ours[:, 0])
    low = np.maximum(after - 1, 0)
    high = np.minimum(after, len(theirs) - 1)
    closer = np.abs(theirs[low, 0] - ours[:, 0]) <= np.abs(theirs[high, 0] - ours[:, 0])
    closest = np.where(closer, low, high)
    lengths = ours[:, 1] - ours[:, 0]
    other = (theirs[:, 1] - theirs[:, 0])[closest]
    similar = np.abs(lengths - other) <= np.maximum(_SAME_NS, lengths // 10)
    at = np.flatnonzero(similar & (np.abs(theirs[closest, 0] - ours[:, 0]) <= within))
    _, first = np.unique(closest[at], return_index=True)
    return at[first], closest[at[first]]


def _by_pattern(trace: _RangesByKey, side: _RangesByKey) -> _Alignment | None:
    """Align by a sequence of ranges with the same distances in both recordings."""
    best: _Alignment | None = None
    for key in trace.keys() & side.keys():
        ours = trace[key][:_PATTERN_LENGTH]
        theirs = side[key]
        count = min(len(ours), len(theirs))
        if count < _MIN_PATTERN:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(theirs[:, 0], count)
        offsets = ours[:count, 0] - windows
        spread = np.median(np.abs(offsets - offsets[:, [count // 2]]), axis=1)
        at = int(np.argmin(spread))
        is_unique = (
            len(spread) == 1
            or float(np.partition(spread, 1)[1]) > 4 * float(spread[at]) + _PATTERN_NS
        )
        if is_unique and spread[at] < _PATTERN_NS and (best is None or spread[at] < best.spread):
            middle = int(np.sort(offsets[at])[count // 2])
            best = _Alignment(middle, int(spread[at]), f"by the pattern of {count} NVTX ranges")
    return best
