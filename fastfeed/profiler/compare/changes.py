"""Values of a comparison of two analyses, which reports print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fastfeed.profiler.model.result import DeviceResult, FeedResult


class Difference(NamedTuple):
    """After minus before, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class MetricChange:
    """One quantity before and after. Fields that need steps are None if either side has too few."""

    # stable: "step", "input", a part of the time breakdown, or "cause:" and the key of a cause
    key: str
    title: str
    before: float  # share of the judged window
    after: float
    before_ns: float | None = None  # per step
    after_ns: float | None = None
    change_ns: Difference | None = None  # per step
    direction: str = "unknown"  # "less", "more", "same" (within noise, or negligible), "unknown"

    @property
    def name(self) -> str:
        """The key without the kind before it."""
        kind, _, name = self.key.partition(":")
        return name or kind


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """One device before and after."""

    before: DeviceResult
    after: DeviceResult
    label: str
    step: MetricChange  # its length
    input: (
        MetricChange  # waits for input and staged copies, including those of other ranks by proxy
    )
    parts: tuple[MetricChange, ...]  # of the time breakdown
    causes: tuple[MetricChange, ...]  # of idle time, largest change first

    @property
    def speedup(self) -> float | None:
        """Steps per second, after divided by before; None without steps."""
        a = self.step.before_ns
        b = self.step.after_ns
        return a / b if a and b else None


@dataclass(frozen=True, slots=True)
class FeedChange:
    """One feed before and after, by its own timelines, felt by a GPU or not."""

    before: FeedResult
    after: FeedResult
    label: str
    batch: MetricChange  # from one batch to the next
    wait: MetricChange  # of the trainer, per batch
    stages: tuple[MetricChange, ...]  # work per batch, all threads together

    @property
    def batches(self) -> tuple[int, int]:
        return self.before.batches, self.after.batches


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two analyses."""

    paths: tuple[str, ...]
    word: str  # of its verdict
    reasons: tuple[str, ...]  # why it abstained
    devices: int


@dataclass(frozen=True, slots=True)
class Comparison:
    outcome: str  # "better", "worse", "same", "unknown"
    sentence: str
    before: Side
    after: Side
    devices: tuple[DeviceChange, ...] = ()  # most starved, on either side, first
    only_before: tuple[str, ...] = ()  # labels of devices without a counterpart
    only_after: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    feeds: tuple[FeedChange, ...] = ()  # those that wait most, on either side, first
