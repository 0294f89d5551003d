"""Whether a framework and a feed agree on which rank this process is."""

from __future__ import annotations

from fastfeed.errors import ConfigError
from fastfeed.feed.feed import Feed

__all__ = ["check_ranks"]


def check_ranks(feed: Feed, framework: str, rank: int, size: int) -> None:
    """Raise where the framework runs several processes and the feed does not know.

    A world that was passed on purpose is believed: a feed may be for one rank alone, as when rank 0 evaluates.
    """
    world = feed.plan.world
    if (world.rank, world.size) == (rank, size) or not world.found_by.startswith("default: "):
        return
    raise ConfigError(
        f"the feed reads as rank {world.rank} of {world.size} ({world.found_by.partition(': ')[2]}), but {framework} "
        f"runs this process as {rank} of {size}: every process would train on the same samples; pass "
        f"Feed(world=ff.World({rank}, {size}, local_rank, local_size)), or world=ff.World() if this is meant"
    )
