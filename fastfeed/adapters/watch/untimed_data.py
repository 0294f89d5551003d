"""A trainer whose data is not watched: its steps are timed, its waits are unknown."""

from __future__ import annotations

from fastfeed.distributed.world import World
from fastfeed.live.meter import Meter
from fastfeed.live.status import LiveStatus, SlowCounts
from fastfeed.version import __version__


class StepsOnly:
    """A live page on which steps are counted by a callback."""

    def __init__(self, source: str) -> None:
        """Open the page; `source` names the data, as `fastfeed watch` shows it."""
        world = World.detect()
        identity = {
            "version": __version__,
            "name": "",
            "source": source[:200],
            "prefetch": None,
            "steps_only": True,
            "rank": world.rank,
            "world": world.size,
            "local_rank": world.local_rank,
        }
        self._meter = Meter()
        self.live = LiveStatus(self._meter, identity, SlowCounts)

    def stepped(self, now_ns: int) -> None:
        """A step, or several, has ended."""
        self._meter.record_request(now_ns, 0)
        self._meter.record_delivery(now_ns, now_ns, 0)
        self.live.delivered(now_ns, (0, self._meter.batches))

    def pause(self, now_ns: int) -> None:
        """Count no steps until the next begin."""
        self._meter.record_request(now_ns, 0)
        self.live.paused(now_ns)
