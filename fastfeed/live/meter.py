"""Rates, waiting and stage times of a feed."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fastfeed.faults import Failure
from fastfeed.live.page import READY
from fastfeed.printable import plural
from fastfeed.system.processes import after_fork


@dataclass(frozen=True, slots=True)
class FeedStats:
    """Totals since the feed was created, as `feed.stats()` returns them.

    Args:
        images (int): Images delivered.
        batches (int): Batches delivered.
        seconds (float): From the request for an epoch's first batch to the one after its last,
            summed over epochs.
        wait_seconds (float): Of these, spent waiting for a batch.
        stage_ms (dict[str, float]): Thread time per delivered image, milliseconds, by stage.
        ready (float): Batches that were ready when one was requested, mean.
        bad (tuple[Failure, ...]): Each bad sample once.
        threads (int): Threads of the feed.

    Example:
        >>> feed = ff.Feed(ff.Arrays(np.zeros((8, 4, 4, 3), np.uint8)), [], batch=4)
        >>> for batch in feed:
        ...     pass
        >>> stats = feed.stats()
        >>> stats.images, stats.batches, 0 <= stats.wait_share <= 1
        (8, 2, True)
    """

    images: int
    batches: int
    seconds: float
    wait_seconds: float
    stage_ms: dict[str, float]
    ready: float
    bad: tuple[Failure, ...]
    threads: int

    @property
    def images_per_second(self) -> float:
        """Delivered images per second of training or validation."""
        return self.images / self.seconds if self.seconds else 0.0

    @property
    def wait_share(self) -> float:
        """Share of time in which the consumer waited for data, 0..1.

        This counts every wait, the first batch's included, whether or not a GPU still had work, and
        no time between epochs. The row of a feed in `fastfeed analyze` counts the same, with the
        ends of epochs guessed from long pauses; the verdict on a GPU counts only waits that leave
        the GPU idle, in steady steps.
        """
        return self.wait_seconds / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        stages = ", ".join(f"{stage} {ms:.2f}" for stage, ms in self.stage_ms.items())
        return (
            f"{self.images} images in {self.seconds:.1f} s: {self.images_per_second:.0f} images/s, "
            f"{self.wait_share:.1%} of the time waiting for data\n"
            f"  thread time per image, ms: {stages or 'nothing yet'} ({self.threads} threads)\n"
            f"  {self.ready:.1f} batches ready on average, {plural(len(self.bad), 'bad sample')}"
        )


_counting = threading.Lock()  # of all meters: several threads may take batches of one feed


def _forked() -> None:
    global _counting  # noqa: PLW0603 -- a lock that another thread held cannot be opened, only replaced
    _counting = threading.Lock()


after_fork(_forked)


@dataclass(slots=True)
class Meter:
    """Counters that batch iterators add to; times in nanoseconds."""

    images: int = 0
    batches: int = 0
    wait_ns: int = 0
    consumer_ns: int = 0
    ready: int = 0
    asked: int = 0
    # as the live page has them
    ready_counts: list[int] = field(default_factory=lambda: [0] * READY)
    # when the consumer last got a batch it may still be using
    _returned_ns: int | None = field(default=None)

    def record_request(self, now_ns: int, ready: int) -> None:
        """The consumer requests a batch."""
        with _counting:
            if self._returned_ns is not None:
                self.consumer_ns += now_ns - self._returned_ns
            self._returned_ns = None
            self.ready += ready

    def record_ready(self, ready: int) -> None:
        """Count a request for a batch, and the number of batches that were ready for it."""
        with _counting:
            self.asked += 1
            self.ready_counts[min(ready, READY - 1)] += 1

    def record_delivery(self, requested_ns: int, now_ns: int, images: int) -> None:
        """Count a batch that the consumer has received."""
        with _counting:
            self.wait_ns += now_ns - requested_ns
            self._returned_ns = now_ns
            self.batches += 1
            self.images += images

    def stats(
        self, spent: Mapping[str, tuple[int, int]], bad: Sequence[Failure], threads: int
    ) -> FeedStats:
        """The totals; `spent` is Timeline.totals()."""
        stages = {
            s: ns / 1e6 / self.images for s, (_, ns) in spent.items() if s != "wait" and self.images
        }
        return FeedStats(
            images=self.images,
            batches=self.batches,
            seconds=(self.wait_ns + self.consumer_ns) / 1e9,
            wait_seconds=self.wait_ns / 1e9,
            stage_ms=stages,
            ready=self.ready / self.batches if self.batches else 0.0,
            bad=tuple(bad),
            threads=threads,
        )

    def pause(self) -> None:
        """The time until the next request does not count: it is not training."""
        self._returned_ns = None
