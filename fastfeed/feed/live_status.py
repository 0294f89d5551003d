"""The live status of a feed, without a reference to the feed itself."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from fastfeed.feed.faults.quarantine import Quarantine
from fastfeed.live.meter import Meter
from fastfeed.live.status import LiveStatus, SlowCounts
from fastfeed.runtime.timeline import Timeline
from fastfeed.storage.retry import retry_count
from fastfeed.version import __version__

if TYPE_CHECKING:
    from fastfeed.feed.config import FeedConfig
    from fastfeed.feed.producer import Producer

__all__ = ["live_status"]


_MAX_TEXT = 200  # characters of a name or a uri


def live_status(
    meter: Meter,
    timeline: Timeline,
    quarantine: Quarantine,
    producer: Producer,
    config: FeedConfig,
    name: str,
) -> LiveStatus:
    """Create the live status of a feed.

    It holds no reference to the feed, so the feed is collected when dropped.
    """
    plan = config.plan
    identity = {
        "version": __version__,
        "name": name[:_MAX_TEXT],
        "source": type(config.source).__name__[:_MAX_TEXT],
        "samples": plan.length,
        "batch": plan.batch,
        "steps": plan.steps,
        "threads": config.threads,
        "prefetch": config.buffers - 2,
        "rank": plan.world.rank,
        "world": plan.world.size,
        "local_rank": plan.world.local_rank,
    }

    progress, begun = timeline.progress, retry_count()

    def slow() -> SlowCounts:
        stages = {stage: spent for stage, spent in timeline.totals().items() if stage != "wait"}
        retries = progress.retries + retry_count() - begun
        bad = len(quarantine.failures)
        return SlowCounts(
            stages, bad, producer.helper_pid, progress.read_bytes, retries, progress.doing()
        )

    status = LiveStatus(meter, identity, slow)
    waits = weakref.WeakMethod(status.waits)

    def told(now_ns: int) -> None:
        call = waits()
        if call is not None:
            call(now_ns)

    progress.told = told
    return status
