"""Two readings of a page -> rates of the time between them.

Pure arithmetic; times are nanoseconds unless named.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fastfeed.live.page import READY, TRAINING, WAITING, Page


@dataclass(frozen=True, slots=True)
class PageReading:
    """A page as read at `at_ns` (CLOCK_MONOTONIC), including the time since its last write."""

    page: Page
    at_ns: int
    ended: bool = False  # its process no longer runs, so nothing lasts beyond the last write

    @property
    def since(self) -> int:
        """Nanoseconds of the current phase so far, or up to the last write of an ended process."""
        return max(0, self._until_ns - self.page.counters["since_ns"])

    @property
    def wait(self) -> int:
        """Time inside next(), with the wait that has not ended."""
        counters = self.page.counters
        return counters["wait_ns"] + (self.since if counters["phase"] == WAITING else 0)

    @property
    def consumer(self) -> int:
        """Time of the trainer between batches, with the step that has not ended."""
        counters = self.page.counters
        return counters["consumer_ns"] + (self.since if counters["phase"] == TRAINING else 0)

    @property
    def doing_ns(self) -> int:
        """Time that the batch needed first has been at its stage, in nanoseconds."""
        return max(0, self._until_ns - self.page.counters["doing_since_ns"])

    @property
    def _until_ns(self) -> int:
        return min(self.at_ns, self.page.counters["updated_ns"]) if self.ended else self.at_ns

    @property
    def step_ns(self) -> float:
        """Median of the last steps in nanoseconds, or the mean until the median is known.

        A step that compiles or saves does not move the median.
        """
        counters = self.page.counters
        if counters["step_median_ns"]:
            return counters["step_median_ns"]
        return (
            (counters["wait_ns"] + counters["consumer_ns"]) / counters["batches"]
            if counters["batches"]
            else 0.0
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates between two readings; None if nothing could be counted."""

    seconds: float
    batches: int
    images: int
    wait: float | None  # exact: share of the trainer's time spent inside next(), 0..1
    need: float | None  # exact: images/s the trainer would take if it never waited
    delivered: float | None  # exact: images/s that it got
    capacity: float | None  # estimate: images/s of all threads together, from their time per image
    ready: float | None  # exact: batches ready when one was requested, mean; 7 stands for more
    # framework: time per training step, from a callback; median of the last ones
    framework_step_ms: float | None
    read_rate: float | None = None  # exact: bytes/s of samples that were read
    retries: int = 0  # exact: reads and requests that were repeated
    # exact: thread time per image, milliseconds
    stage_ms: dict[str, float] = field(default_factory=dict)

    @property
    def make(self) -> float | None:
        """Images/s delivered if the trainer waited for them, else the capacity."""
        if (
            self.delivered is None
            or self.capacity is None
            or self.wait is None
            or self.wait >= 0.05
        ):
            return self.delivered
        return max(self.delivered, self.capacity)

    @property
    def thread_ms(self) -> float:
        """Thread time per image, milliseconds."""
        return sum(self.stage_ms.values())

    @property
    def dominant(self) -> tuple[str, float] | None:
        """The stage with the most thread time, and its share of that time."""
        if not self.thread_ms:
            return None
        stage = max(self.stage_ms, key=lambda name: self.stage_ms[name])
        return stage, self.stage_ms[stage] / self.thread_ms


def rates(before: PageReading, after: PageReading) -> Rates:
    """Rates between two readings of the same page.

    wait = Δwait / (Δwait + Δconsumer), which for a feed that makes a batch in p ms and a trainer
    that uses one for c ms is max(0, p - c) / max(p, c). Time in which nothing iterates the feed
    belongs to neither.
    """
    one = before.page.counters
    two = after.page.counters

    def delta(name: str) -> int:
        return two[name] - one[name]

    wait = max(0, after.wait - before.wait)
    consumer = max(0, after.consumer - before.consumer)
    spent = wait + consumer
    images = delta("images")
    if after.page.identity.get(
        "steps_only"
    ):  # a callback counts them, and the wait is part of the steps
        spent = 0
    asked = delta("asked")
    ready = [two[f"ready_{n}"] - one[f"ready_{n}"] for n in range(READY)]
    steps = delta("framework_steps")
    counted_ns = delta("stages_ns") if one["stages_ns"] else 0
    step_ns = two["framework_median_ns"] or (delta("framework_ns") / steps if steps else 0)
    stage_ms = _stage_ms(before.page, after.page)
    threads = after.page.identity.get("threads") or 0
    thread_ms = sum(stage_ms.values())
    return Rates(
        seconds=(after.at_ns - before.at_ns) / 1e9,
        batches=delta("batches"),
        images=images,
        wait=wait / spent if spent else None,
        need=images / consumer * 1e9 if images and consumer else None,
        delivered=images / spent * 1e9 if images and spent else None,
        capacity=threads / thread_ms * 1e3 if thread_ms and threads else None,
        ready=sum(n * times for n, times in enumerate(ready)) / asked if asked else None,
        framework_step_ms=step_ns / 1e6 if steps else None,
        read_rate=delta("read_bytes") / counted_ns * 1e9 if counted_ns > 0 else None,
        retries=delta("retries"),
        stage_ms=stage_ms,
    )


def _stage_ms(before: Page, after: Page) -> dict[str, float]:
    """Milliseconds of thread time per image and stage, between the two pages' writes of stages.

    Counted from the beginning if both pages have the same write.
    """
    images = after.counters["stages_images"] - before.counters["stages_images"]
    earlier = before.stages
    if images <= 0:
        images = after.counters["stages_images"]
        earlier = {}
    if images <= 0:
        return {}
    spent = {stage: ns - earlier.get(stage, (0, 0))[1] for stage, (_, ns) in after.stages.items()}
    return {stage: ns / images / 1e6 for stage, ns in spent.items() if ns > 0}
