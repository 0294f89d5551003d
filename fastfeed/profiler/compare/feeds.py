"""Compares feeds by their own timelines: how long the trainer waited for a batch, which needs no GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastfeed.profiler.compare.changes import FeedChange, MetricChange
from fastfeed.profiler.compare.noise import with_statistics
from fastfeed.profiler.model.intervals import overlap, spans, union
from fastfeed.profiler.model.result import FeedResult

__all__ = ["feed_changes", "waited_share"]


def feed_changes(before: Sequence[FeedResult], after: Sequence[FeedResult]) -> tuple[FeedChange, ...]:
    """The feeds that both runs have, by name and rank; of one feed in each run, whatever their names."""
    keys = [[(feed.name or "", feed.rank) for feed in feeds] for feeds in (before, after)]
    pairs = [(feed, after[keys[1].index(key)]) for feed, key in zip(before, keys[0], strict=True) if key in keys[1]]
    if not pairs and len(before) == len(after) == 1:
        pairs = [(before[0], after[0])]
    changes = [_change(*pair) for pair in pairs]
    return tuple(sorted(changes, key=lambda change: -max(change.wait.before, change.wait.after)))


def waited_share(feed: FeedResult) -> float:
    """The fraction of the time that the trainer waited, from the first batch on: the first fills the queue."""
    batches = _batches(feed)
    if not len(batches):
        return feed.waited_ns / max(feed.span_ns, 1)
    return float(_waited(feed, batches).sum() / max(int((batches[:, 1] - batches[:, 0]).sum()), 1))


def _batches(feed: FeedResult) -> np.ndarray:
    """From the arrival of one batch to that of the next: spans, shape (n, 2)."""
    return spans(feed.waits[:-1, 1], feed.waits[1:, 1]) if len(feed.waits) > 1 else np.empty((0, 2), np.int64)


def _waited(feed: FeedResult, batches: np.ndarray) -> np.ndarray:
    return overlap(batches, union(feed.waits))


def _change(before: FeedResult, after: FeedResult) -> FeedChange:
    batches = _batches(before), _batches(after)
    batch = MetricChange("batch", "batch to batch", 1.0, 1.0, None, None, None, "unknown")
    wait = MetricChange("wait", "trainer waits", waited_share(before), waited_share(after), None, None, None, "unknown")
    if min(map(len, batches)):
        batch = with_statistics(batch, [each[:, 1] - each[:, 0] for each in batches], batches)
        waited = [_waited(feed, each) for feed, each in zip((before, after), batches, strict=True)]
        wait = with_statistics(wait, waited, batches)
    names = [name for name in {**before.stages, **after.stages} if name != "wait"]
    stages = [_stage(name, before, after) for name in names]
    stages.sort(key=lambda change: -max(change.before_ns or 0, change.after_ns or 0))
    label = " / ".join(dict.fromkeys(feed.name or feed.feed or "feed" for feed in (before, after)))
    if before.rank or after.rank:
        label += f", rank {after.rank}"
    return FeedChange(before, after, label, batch, wait, tuple(stages))


def _stage(name: str, before: FeedResult, after: FeedResult) -> MetricChange:
    """Work of one stage per batch. The threads work side by side, so its share may exceed 1."""
    ns = [feed.stages.get(name, (0, 0))[1] for feed in (before, after)]
    shares = [part / max(feed.span_ns, 1) for part, feed in zip(ns, (before, after), strict=True)]
    each = [part / max(feed.batches, 1) for part, feed in zip(ns, (before, after), strict=True)]
    return MetricChange(f"stage:{name}", name, shares[0], shares[1], each[0], each[1], None, "unknown")
