"""Comparison of feeds by their own timelines, which needs no GPU."""

from __future__ import annotations

from collections.abc import Sequence

from fastfeed.profiler.compare.changes import FeedChange, MetricChange
from fastfeed.profiler.compare.noise import with_statistics
from fastfeed.profiler.model.intervals import union
from fastfeed.profiler.model.result import FeedResult
from fastfeed.profiler.verdict.feed_timelines import rounds

__all__ = ["feed_changes"]


def feed_changes(
    before: Sequence[FeedResult], after: Sequence[FeedResult]
) -> tuple[FeedChange, ...]:
    """Changes of the feeds in both runs, by name and rank; a single feed matches any."""
    keys = [[(feed.name or "", feed.rank) for feed in feeds] for feeds in (before, after)]
    pairs = [
        (feed, after[keys[1].index(key)])
        for feed, key in zip(before, keys[0], strict=True)
        if key in keys[1]
    ]
    if not pairs and len(before) == len(after) == 1:
        pairs = [(before[0], after[0])]
    changes = [_change(*pair) for pair in pairs]
    return tuple(sorted(changes, key=lambda change: -max(change.wait.before, change.wait.after)))


def _change(before: FeedResult, after: FeedResult) -> FeedChange:
    """Change of one feed; times of a batch leave out the first, which fills the queue."""
    waited, trained = zip(*(rounds(union(feed.waits)) for feed in (before, after)), strict=True)
    waited = [each[1:] for each in waited]
    length = [wait + each[1:] for wait, each in zip(waited, trained, strict=True)]
    batch = MetricChange("batch", "batch to batch", 1.0, 1.0, None, None, None, "unknown")
    wait = MetricChange(
        "wait", "trainer waits", before.wait_share, after.wait_share, None, None, None, "unknown"
    )
    if min(map(len, length)):
        batch = with_statistics(batch, length, length)
        wait = with_statistics(wait, waited, length)
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
    return MetricChange(
        f"stage:{name}", name, shares[0], shares[1], each[0], each[1], None, "unknown"
    )
