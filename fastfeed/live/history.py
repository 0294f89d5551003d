"""Shares of time spent waiting over the last minutes, in intervals of a fixed length.

The intervals do not depend on how often the feed is looked at.
"""

from __future__ import annotations

from collections import deque

from fastfeed.live.rates import Reading, rates

BUCKET_S = 2.0  # that a value covers
BUCKETS = 120  # four minutes


class History:
    """The last minutes of one feed."""

    def __init__(self) -> None:
        self._shares: deque[float | None] = deque(maxlen=BUCKETS)
        self._begin: Reading | None = None

    def add(self, reading: Reading) -> None:
        """Add a look; one that spans several intervals fills all of them with its share."""
        begin = self._begin
        if begin is None:
            self._begin = reading
            return
        buckets = (reading.at_ns - begin.at_ns) / 1e9 / BUCKET_S
        if buckets >= 0.99:
            share = rates(begin, reading).wait
            self._shares.extend([share] * min(BUCKETS, round(buckets)))
            self._begin = reading

    @property
    def shares(self) -> tuple[float | None, ...]:
        """Shares of time spent waiting, oldest first; None for intervals without iteration."""
        return tuple(self._shares)
