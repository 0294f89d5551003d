"""Results of fastfeed's own timelines: waits for each feed, and its slowest stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastfeed.profiler.model.intervals import measure, spans_at, union
from fastfeed.profiler.model.result import FeedResult
from fastfeed.profiler.model.trace import RangeKind, Trace

_WAIT = "wait"
_PAUSE = 10  # times the usual time from one batch to the next request: the end of an epoch
_PASSIVE = {_WAIT, "place"}  # not part of producing a batch


def feed_results(traces: Sequence[Trace]) -> tuple[FeedResult, ...]:
    """One row per feed in the traces, by name and rank."""
    results = [feed for trace in traces for feed in _trace_feeds(trace)]
    return tuple(sorted(results, key=lambda feed: (feed.name, feed.rank, feed.feed)))


def _trace_feeds(trace: Trace) -> list[FeedResult]:
    feeds: Sequence[Mapping[str, Any]] = trace.metadata.get("feeds", ())
    ranges = trace.ranges
    is_feed = ranges.kind == RangeKind.FEED
    if not is_feed.any():
        return []
    if not feeds:  # NVTX ranges alone: one feed per process
        feeds = [
            {"feed": "", "pid": process.pid, "rank": process.rank or 0}
            for process in trace.processes
        ]
    process = trace.thread_processes(ranges.thread)
    by_feed = _by_feed(feeds)
    ids = [trace.names.index(id) if id in trace.names else -2 for id, _ in by_feed]
    # which feed it is of; NVTX ranges that no timeline has do not say
    is_told = np.isin(ranges.domain, ids)
    results = []
    for id, ((_, pids), feed) in zip(ids, by_feed.items(), strict=True):
        processes = [index for index, item in enumerate(trace.processes) if item.pid in pids]
        alone = sum(bool(pids & others) for _, others in by_feed) == 1
        mine = np.where(is_told, ranges.domain == id, alone)
        rows = np.flatnonzero(is_feed & mine & np.isin(process, processes))
        if len(rows):
            results.append(_result(trace, rows, feed))
    return results


def _by_feed(
    feeds: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, frozenset[int]], Mapping[str, Any]]:
    """Rows by feed: a feed with a helper process has one row per process, with the same id."""
    pids: dict[str, set[int]] = {}
    first_row: dict[str, Mapping[str, Any]] = {}
    for feed in feeds:
        key = str(feed.get("feed", "")) or f"pid {feed.get('pid')}"
        pids.setdefault(key, set()).add(int(feed.get("pid", -1)))
        first_row.setdefault(key, feed)
    return {(key, frozenset(pids[key])): feed for key, feed in first_row.items()}


def _result(trace: Trace, rows: np.ndarray, feed: Mapping[str, Any]) -> FeedResult:
    ranges = trace.ranges
    stages_by_id = {
        int(name): trace.name(int(name)).removeprefix("fastfeed:")
        for name in np.unique(ranges.name[rows])
    }
    length = ranges.end[rows] - ranges.start[rows]
    stages = {}
    for name, text in stages_by_id.items():
        mine = ranges.name[rows] == name
        stages[text] = (int(mine.sum()), int(length[mine].sum()))
    waiting = rows[
        np.isin(ranges.name[rows], [name for name, text in stages_by_id.items() if text == _WAIT])
    ]
    working = {text: spent for text, (_, spent) in stages.items() if text not in _PASSIVE}
    decoding = np.isin(
        ranges.name[rows],
        [name for name, text in stages_by_id.items() if text in ("decode", "dali")],
    )
    waits = spans_at(ranges, waiting[np.argsort(ranges.end[waiting], kind="stable")])
    training = rounds(union(waits))
    return FeedResult(
        feed=str(feed.get("feed", "")),
        name=str(feed.get("name", "")),
        rank=int(feed.get("rank", 0) or 0),
        batches=len(waiting),
        span_ns=int(ranges.end[rows].max() - ranges.start[rows].min()),
        waited_ns=measure(union(waits)),
        stages=stages,
        threads=len(np.unique(ranges.thread[rows[decoding]])),
        busiest=max(working, key=lambda text: working[text], default=""),
        waits=waits,
        training_ns=int(sum(map(np.sum, training))),
    )


def rounds(waits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A trainer's wait for each batch, and the time until it asked for the next.

    `waits`: a set of spans. Both int64 nanoseconds, shape (n,); empty for fewer than two waits. A
    timeline does not mark the end of an epoch: a pause much longer than usual is validation or the
    like and counts as a usual one, as does the time after the last batch. The first batch's step
    counts however long it is: programs are compiled in it.
    """
    between = waits[1:, 0] - waits[:-1, 1]
    if not len(between):
        return between, between
    is_pause = between > _PAUSE * np.median(between)
    is_pause[0] = False
    usual = between[~is_pause][1:] if (~is_pause).sum() > 1 else between[:1]
    typical = round(float(usual.mean()))
    return waits[:, 1] - waits[:, 0], np.append(np.where(is_pause, typical, between), typical)
