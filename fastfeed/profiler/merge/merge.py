"""Traces of one run as one: the feed's timeline in a GPU trace, the two tables that nvprof prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from fastfeed.profiler.merge.align import align, nearest
from fastfeed.profiler.model.intervals import spans
from fastfeed.profiler.model.trace import Calls, Process, RangeKind, Ranges, Table, Thread, Trace, table

__all__ = ["combine", "merge"]

_WAIT = "fastfeed:wait"  # the trainer's thread, by definition
_JOINED = 0.5  # of the ops whose call must be in the other table, for both to be of one recording


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the side's processes and threads are in the trace, whose rows may have grown."""

    processes: tuple[Process, ...]
    threads: tuple[Thread, ...]
    process: Mapping[int, int]  # side -> trace
    thread: np.ndarray  # side -> trace; -1 where it is of another run
    notes: tuple[str, ...] = ()


def combine(traces: Sequence[Trace]) -> list[Trace]:
    """What belongs together: timelines go into the GPU traces, nvprof's printed calls to its printed ops.

    Timelines are left as they are where there is no GPU trace.
    """
    sides = [trace for trace in traces if trace.origin.dialect == "timeline"]
    main = _joined([trace for trace in traces if trace.origin.dialect != "timeline"])
    if not main:
        return sides
    for side in sides:
        tried = [merge(trace, side) for trace in main]
        took = [len(_told(made)) > len(_told(trace)) for trace, made in zip(main, tried, strict=True)]
        # each rank has a timeline of its own: that it is not another's is worth no word
        main = [made if took[at] or not any(took) else main[at] for at, made in enumerate(tried)]
    return main


def _told(trace: Trace) -> Sequence[Any]:
    return trace.metadata.get("feeds", ())


def merge(trace: Trace, side: Trace) -> Trace:
    """A GPU trace with the ranges of a feed's timeline; unchanged but for a note where they do not fit together."""
    name = f"the timeline {side.origin.path}"
    process, how = _matched(trace, side)
    if not process:
        theirs, ours = (", ".join(str(one.pid) for one in of.processes[:3]) or "none" for of in (side, trace))
        return trace.with_notes(f"{name} is not used: it is of process {theirs}, the trace of {ours}")
    place = _place(trace, side, process)
    mine = np.append(place.thread, -1)[side.ranges.thread] >= 0
    seen = _spans(trace, np.append(np.arange(len(trace.threads)), -1), trace.ranges.kind == RangeKind.FEED)
    told = _spans(side, np.append(place.thread, -1), mine)
    both = [{key: spans(of.start[rows], of.end[rows]) for key, rows in found.items()}
            for of, found in ((trace.ranges, seen), (side.ranges, told))]  # fmt: skip
    found = align(trace.origin.wall_ns, side.origin.wall_ns, both[0], both[1])
    if found is None:
        return trace.with_notes(f"{name} is not used: neither a wall clock nor NVTX ranges line it up with the trace")
    start, end = side.ranges.start + found.shift, side.ranges.end + found.shift
    window = _window(trace)
    inside = mine & (start < window[1]) & (end > window[0])
    if not inside.any():
        return trace.with_notes(f"{name} is not used: {_apart(start[mine], end[mine], window)}; is it of this run?")
    twice = np.zeros(len(inside), bool)
    for key in told.keys() & seen.keys():
        twice[told[key][nearest(both[0][key], both[1][key] + found.shift)[1]]] = True
    new = inside & ~twice
    names, again = _names(trace.names, side.names)
    ranges = table(
        Ranges, start=start[new], end=end[new], thread=place.thread[side.ranges.thread[new]],
        name=again[side.ranges.name[new]], kind=side.ranges.kind[new], domain=again[side.ranges.domain[new]],
    )  # fmt: skip
    counts = {
        f"of {name} are added, lined up {found.how}": new,
        "of it are in the trace as NVTX ranges already": inside & twice,
        "of it are before or after the trace's time and are left out": mine & ~inside,
        "of it are of processes that are not in this trace and are left out": ~mine,
    }
    notes = [f"{int(rows.sum())} spans {what}" for what, rows in counts.items() if rows.any() or rows is new]
    feeds = [*_told(trace), *_feeds(side, place.process, found.shift)]
    merged = replace(
        trace, names=names, processes=place.processes, threads=place.threads, ranges=_both(trace.ranges, ranges),
        metadata={**trace.metadata, "feeds": feeds},
    )  # fmt: skip
    return merged.with_notes(*notes, *filter(None, [how]), *place.notes)


def _matched(trace: Trace, side: Trace) -> tuple[dict[int, int], str]:
    """The side's process -> the trace's, by pid and host, else by rank, else the only one; and a note on that."""
    ours, theirs = trace.processes, side.processes
    found: dict[int, int] = {}
    for index, one in enumerate(theirs):
        same = [at for at, other in enumerate(ours) if other.pid == one.pid > 0 and _one_host(one, other)]
        if len(same) == 1:
            found[index] = same[0]
    if found:
        return found, ""
    leaders = sorted({helped[0] for helped in _by_feed(side).values()})
    ranks = {other.rank: at for at, other in enumerate(ours) if other.rank is not None}
    found = {index: ranks[rank] for index in leaders if (rank := theirs[index].rank) in ranks}
    if found:
        return found, "its process was matched by rank, the process ids differ"
    if len(ours) == 1 and len(leaders) == 1 and min(ours[0].pid, theirs[leaders[0]].pid) <= 0:
        return {leaders[0]: 0}, "its process was taken for the trace's, which has no process id"
    return {}, ""


def _one_host(one: Process, other: Process) -> bool:
    return not one.host or not other.host or one.host.split(".")[0] == other.host.split(".")[0]


def _by_feed(side: Trace) -> dict[str, list[int]]:
    """The processes of each feed: the trainer's first, then those that help it."""
    index = {(one.pid, one.host): at for at, one in enumerate(side.processes)}
    found: dict[str, list[int]] = {}
    for feed in _told(side):
        found.setdefault(feed["feed"], []).append(index[feed["pid"], feed["host"]])
    return found


def _place(trace: Trace, side: Trace, process: dict[int, int]) -> _Place:
    """Rows for the side's processes that help a matched one, and for threads that the trace has not seen."""
    processes, threads = list(trace.processes), list(trace.threads)
    process = dict(process)
    for helped in _by_feed(side).values():
        if helped[0] in process:
            for index in helped[1:]:
                if index not in process:
                    process[index] = len(processes)
                    processes.append(side.processes[index])
    rows = {(one.process, one.tid): at for at, one in enumerate(threads)}
    by_tid: dict[int, list[int]] = {}
    for at, one in enumerate(trace.threads):
        by_tid.setdefault(one.tid, []).append(at)
    placed, notes = np.full(len(side.threads), -1, np.int64), []
    walls = side.origin.wall_ns, trace.origin.wall_ns
    shift = None if walls[0] is None or walls[1] is None else walls[0] - walls[1]
    for index, one in enumerate(side.threads):
        if one.process not in process:
            continue
        key = (process[one.process], one.tid)
        same = by_tid.get(one.tid, [])
        if key not in rows and len(same) == 1:  # a timeline can only guess which process of a feed a thread is of
            rows[key] = same[0]
        ended = _waits(side, index)
        if key not in rows and len(ended) and key[0] < len(trace.processes) and shift is not None:
            trainer = _trainer(trace, key[0], ended + shift)
            if trainer >= 0:
                rows[key] = trainer
                notes.append(f"its waiting thread {one.tid} is taken for the trace's thread {threads[trainer].tid}")
        if key not in rows:
            rows[key] = len(threads)
            threads.append(Thread(key[0], one.tid, one.name))
        placed[index] = rows[key]
    return _Place(tuple(processes), tuple(threads), process, placed, tuple(notes))


def _waits(side: Trace, thread: int) -> np.ndarray:
    """When the waits of a thread ended, on the side's clock."""
    name = side.names.index(_WAIT) if _WAIT in side.names else -1
    return side.ranges.end[(side.ranges.thread == thread) & (side.ranges.name == name)]


def _trainer(trace: Trace, process: int, ended: np.ndarray) -> int:
    """The thread whose calls follow the waits, where the trace numbers threads in its own way, as nvprof; else -1."""
    mine = [at for at, one in enumerate(trace.threads) if one.process == process]
    native = any(trace.threads[at].tid == trace.processes[process].pid for at in mine)
    rows = np.flatnonzero(np.isin(trace.calls.thread, mine))
    if native or not len(rows):
        return -1
    rows = rows[np.argsort(trace.calls.start[rows], kind="stable")]
    after = np.searchsorted(trace.calls.start[rows], ended)
    after = after[after < len(rows)]
    return int(np.argmax(np.bincount(trace.calls.thread[rows[after]]))) if len(after) else -1


def _spans(trace: Trace, thread: np.ndarray, which: np.ndarray) -> dict[tuple[str, int], np.ndarray]:
    """Row numbers of the picked ranges by name and thread of the merged trace, in order of their start."""
    rows = np.flatnonzero(which)
    rows = rows[np.argsort(trace.ranges.start[rows], kind="stable")]
    keys = trace.ranges.name[rows].astype(np.int64) << 32 | thread[trace.ranges.thread[rows]]
    return {(trace.name(int(key) >> 32), int(key) & 0xFFFFFFFF): rows[keys == key] for key in np.unique(keys).tolist()}


def _window(trace: Trace) -> tuple[int, int]:
    """From the first to the last time in the trace."""
    tables = [one for one in (trace.ops, trace.calls, trace.ranges, trace.overheads) if len(one.start)]
    if not tables:
        return 0, 0
    return min(int(one.start.min()) for one in tables), max(int(one.end.max()) for one in tables)


def _apart(start: np.ndarray, end: np.ndarray, window: tuple[int, int]) -> str:
    if not len(start):
        return "it has no span"
    if int(end.max()) <= window[0]:
        return f"it ends {(window[0] - int(end.max())) / 1e9:.3g} s before the trace begins"
    return f"it begins {(int(start.min()) - window[1]) / 1e9:.3g} s after the trace ends"


def _names(ours: Sequence[str], theirs: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """All names, and where the side's are in them; -1, none, is the last and stays."""
    every = list(ours)
    index = {text: at for at, text in reversed(list(enumerate(ours)))}
    again = []
    for text in theirs:
        if text not in index:
            index[text] = len(every)
            every.append(text)
        again.append(index[text])
    return tuple(every), np.array([*again, -1], np.int64)


def _both(one: Table, other: Table) -> Table:
    """Rows of both."""
    columns = [field.name for field in fields(one)]
    return type(one)(**{name: np.concatenate([getattr(one, name), getattr(other, name)]) for name in columns})


def _feeds(side: Trace, process: Mapping[int, int], shift: int) -> list[dict[str, Any]]:
    """What the side says of the feeds that are here, on the trace's clock."""
    here = {feed for feed, processes in _by_feed(side).items() if processes[0] in process}
    made = []
    for feed in _told(side):
        if feed["feed"] in here:
            moved = {key: feed[key] + shift for key in ("start", "end") if key in feed}
            if "waits" in feed:
                moved["waits"] = feed["waits"] + np.array([0, shift, shift])
            made.append({**feed, **moved})
    return made


def _joined(traces: list[Trace]) -> list[Trace]:
    """nvprof's printed calls with the printed ops of the same process."""
    printed = [trace for trace in traces if trace.origin.dialect == "nvprof" and not trace.origin.version]
    with_calls = [trace for trace in printed if len(trace.calls.start) and not len(trace.ops.start)]
    used: list[Trace] = []
    made = []
    for trace in traces:
        other = next((one for one in with_calls if _is_of(trace, one)), None) if not len(trace.calls.start) else None
        if other is not None:
            used.append(other)
        made.append(_with_calls(trace, other) if other is not None else trace)
    return [trace for trace in made if not any(trace is one for one in used)]


def _is_of(ops: Trace, calls: Trace) -> bool:
    """Whether the ops were launched by these calls."""
    pids = [{one.pid for one in trace.processes if one.pid > 0} for trace in (ops, calls)]
    if all(pids) and not pids[0] & pids[1]:
        return False
    known = ops.ops.corr[ops.ops.corr >= 0]
    return len(known) > 0 and float(np.isin(known, calls.calls.corr).mean()) > _JOINED


def _with_calls(ops: Trace, calls: Trace) -> Trace:
    names, again = _names(ops.names, calls.names)
    thread = tuple(Thread(0, one.tid, one.name) for one in calls.threads)
    rows = {
        column.name: getattr(calls.calls, column.name) if column.name != "name" else again[calls.calls.name]
        for column in fields(Calls)
    }
    joined = replace(
        ops, names=names, threads=(*ops.threads, *thread),
        calls=table(Calls, **{**rows, "thread": calls.calls.thread + len(ops.threads)}),
        origin=replace(ops.origin, host_calls=True),
    )  # fmt: skip
    return joined.with_notes(f"{len(calls.calls.start)} calls are from {calls.origin.path}", *calls.origin.notes)
