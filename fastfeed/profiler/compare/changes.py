"""What a comparison of two analyses consists of, as values: reports print them, nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass

from fastfeed.profiler.model.result import DeviceResult

__all__ = ["Comparison", "DeviceChange", "MetricChange", "Side"]


@dataclass(frozen=True, slots=True)
class MetricChange:
    """One quantity before and after. Without enough steps on both sides, what needs them is None."""

    key: str  # stable: "step", "input", a part of the budget, or "cause:" and the key of a cause
    title: str
    before: float  # share of the judged window
    after: float
    before_ns: float | None  # per step
    after_ns: float | None
    change_ns: tuple[float, float, float] | None  # per step, after less before: value, and its 95 % interval
    moved: str  # "less", "more", "same" (within noise, or next to nothing), "unknown"


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """One device before and after."""

    before: DeviceResult
    after: DeviceResult
    label: str
    step: MetricChange  # its own length
    input: MetricChange  # waits for input, staged copies, and both by proxy of other ranks
    parts: tuple[MetricChange, ...]  # of the budget
    causes: tuple[MetricChange, ...]  # of idle time, largest change first

    @property
    def speedup(self) -> float | None:
        """Steps per second, after over before; None without steps."""
        a, b = self.step.before_ns, self.step.after_ns
        return a / b if a and b else None


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
    devices: tuple[DeviceChange, ...] = ()  # most in need of input, on either side, first
    only_before: tuple[str, ...] = ()  # labels of devices without a partner
    only_after: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
