"""What fastfeed's own timeline says: how long the trainer waited for each feed, and which stage is slowest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastfeed.profiler.model.intervals import measure, spans, union
from fastfeed.profiler.model.result import FeedResult
from fastfeed.profiler.model.trace import RangeKind, Trace

__all__ = ["feed_results"]

_WAIT = "wait"
_PASSIVE = {_WAIT, "place"}  # not the making of a batch


def feed_results(traces: Sequence[Trace]) -> tuple[FeedResult, ...]:
    """One row per feed that the traces tell of, in order of name and rank."""
    found = [feed for trace in traces for feed in _of(trace)]
    return tuple(sorted(found, key=lambda feed: (feed.name, feed.rank, feed.feed)))


def _of(trace: Trace) -> list[FeedResult]:
    told: Sequence[Mapping[str, Any]] = trace.metadata.get("feeds", ())
    ranges = trace.ranges
    of_feed = ranges.kind == RangeKind.FEED
    if not of_feed.any():
        return []
    if not told:  # NVTX ranges alone: one feed per process
        told = [{"feed": "", "pid": process.pid, "rank": process.rank or 0} for process in trace.processes]
    process = np.array([thread.process for thread in trace.threads] or [0])
    made = []
    for pids, feed in _by_feed(told).items():
        mine = [index for index, one in enumerate(trace.processes) if one.pid in pids[1]]
        rows = np.flatnonzero(of_feed & np.isin(process[ranges.thread], mine))
        if len(rows):
            made.append(_result(trace, rows, feed))
    return made


def _by_feed(told: Sequence[Mapping[str, Any]]) -> dict[tuple[str, frozenset[int]], Mapping[str, Any]]:
    """A feed with a helper process has a row of each, with one id."""
    pids: dict[str, set[int]] = {}
    first: dict[str, Mapping[str, Any]] = {}
    for feed in told:
        key = str(feed.get("feed", "")) or f"pid {feed.get('pid')}"
        pids.setdefault(key, set()).add(int(feed.get("pid", -1)))
        first.setdefault(key, feed)
    return {(key, frozenset(pids[key])): feed for key, feed in first.items()}


def _result(trace: Trace, rows: np.ndarray, feed: Mapping[str, Any]) -> FeedResult:
    ranges = trace.ranges
    stage = {int(name): trace.name(int(name)).removeprefix("fastfeed:") for name in np.unique(ranges.name[rows])}
    length = ranges.end[rows] - ranges.start[rows]
    stages = {}
    for name, text in stage.items():
        mine = ranges.name[rows] == name
        stages[text] = (int(mine.sum()), int(length[mine].sum()))
    waiting = rows[np.isin(ranges.name[rows], [name for name, text in stage.items() if text == _WAIT])]
    working = {text: spent for text, (_, spent) in stages.items() if text not in _PASSIVE}
    decoding = np.isin(ranges.name[rows], [name for name, text in stage.items() if text in ("decode", "dali")])
    return FeedResult(
        feed=str(feed.get("feed", "")),
        name=str(feed.get("name", "")),
        rank=int(feed.get("rank", 0) or 0),
        batches=len(waiting),
        span_ns=int(ranges.end[rows].max() - ranges.start[rows].min()),
        waited_ns=measure(union(spans(ranges.start[waiting], ranges.end[waiting]))),
        stages=stages,
        threads=len(np.unique(ranges.thread[rows[decoding]])),
        busiest=max(working, key=lambda text: working[text], default=""),
    )
