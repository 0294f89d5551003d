"""Results of an analysis as values, which reports print.

Nanoseconds are int and on the trace's clock; shares are fractions of a window, 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.intervals import empty
from fastfeed.profiler.model.trace import Origin


@dataclass(frozen=True, slots=True)
class TimeBreakdown:
    """A window split exactly: the parts sum to `window`. All nanoseconds."""

    window: int
    compute: int
    comm: int  # exposed: communication with no compute at the same time
    h2d: int  # exposed: copies to the device with neither at the same time
    other: int  # other copies and memsets, exposed
    overhead: int  # the profiler's, while the device did nothing
    idle: int


@dataclass(frozen=True, slots=True)
class Share:
    """A fraction of the window and its spread; None for fewer than three whole steps.

    Steps that are all alike have no interval: it would say nothing about another recording.
    """

    value: float
    low: float | None = None  # 95 % confidence interval, moving-block bootstrap over steps
    high: float | None = None
    median: float | None = None  # over steps
    p95: float | None = None
    steps_over: float | None = None  # fraction of the steps in which it is above 5 %


@dataclass(frozen=True, slots=True)
class InputWait:
    """Time of host threads waiting for input, felt by the device or not: nanoseconds."""

    total: int
    exposed: int  # while the device was idle
    hidden: int  # while it still had work: harmless
    # idle launch time right after an exposed wait: the queue fills up again; not part of `exposed`
    ramp: int
    waits: int  # how many
    longest: int


@dataclass(frozen=True, slots=True)
class InputStage:
    """The slowest stage of a tf.data pipeline while the trainer waited for it."""

    name: str  # ParallelMapV2
    path: str  # from the root: Root::Prefetch::ParallelMapV2
    self_ns: int  # in which it was at work itself, within the waits of the judged time
    share: float  # of these waits


@dataclass(frozen=True, slots=True)
class Slices:
    """Idle time in order, each slice with one cause. Disjoint; their sum is the idle time."""

    start: np.ndarray  # int64
    end: np.ndarray  # int64
    cause: np.ndarray  # uint8, a Cause
    gap: np.ndarray  # int32, index of the idle gap
    thread: np.ndarray  # int32, index into Trace.threads: who was late; -1 for none
    name: np.ndarray  # int32, index into Trace.names: what it was inside of; -1 nothing


@dataclass(frozen=True, slots=True)
class Period:
    """One stretch of the recording, or the union of some."""

    spans: np.ndarray  # set of spans, shape (n, 2)
    budget: TimeBreakdown
    causes: Mapping[Cause, int]  # ns; sum is budget.idle; causes without time are left out
    input: InputWait

    def ns(self, *causes: Cause) -> int:
        """Idle nanoseconds with one of these causes."""
        return sum(self.causes.get(cause, 0) for cause in causes)

    def share(self, ns: float) -> float:
        """These nanoseconds as a fraction of the window."""
        return ns / max(self.budget.window, 1)


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the run other than steady training."""

    kind: str  # epoch_start, validation, checkpoint, warm_up
    count: int  # how many times
    period: Period


@dataclass(frozen=True, slots=True)
class ColdStart:
    """The time left out before the steady period, and its idle causes."""

    steps: int
    spans: np.ndarray
    idle: int
    causes: Mapping[Cause, int]
    cut: int = 0  # of the steps: the recording begins inside them


@dataclass(frozen=True, slots=True)
class Steps:
    spans: np.ndarray  # int64 (n, 2), in order
    labels: tuple[str, ...]
    found_by: str  # e.g. "ProfilerStep#N", "recurrence of H2D copies"; "" without steps
    steady: np.ndarray  # bool (n,)
    guessed: bool = False  # nothing marks them: something recurs on the device
    # bool (n,): the recording covers all of the step; None: of each
    whole: np.ndarray | None = None
    missing: int = 0  # more that the numbers in the labels skip
    unrecorded: int = 0  # marked ones that begin after the last operation


@dataclass(frozen=True, slots=True)
class Spread:
    """Time of one thing in a steady step: nanoseconds, and a 95 % interval of its share."""

    mean: int
    median: int
    p95: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Gap:
    """One idle gap, for people."""

    start: int
    end: int
    causes: Mapping[Cause, int]  # ns, largest first
    next_op: str  # what ended it
    thread: str  # who should have launched earlier
    inside: str  # what that thread was in for most of the late part, e.g. "DataLoader.__next__"
    step: str  # label, "" outside of steps
    last_op: str = ""  # what ended when it began


@dataclass(frozen=True, slots=True)
class FunctionTime:
    """Idle time, by cause, with the host in one function for a millisecond or more."""

    function: str  # preprocess
    file: str  # as recorded; "" if it is not Python code
    line: int  # where it was entered or resumed; 0 unknown
    inside: str  # the innermost frame for most of the time; "" if that is the function itself
    cause: Cause
    ns: int  # idle time in the judged period
    gaps: int  # idle gaps in which it was

    def __str__(self) -> str:
        return (
            f"{self.function} ({self.file.rsplit('/', 1)[-1]}:{self.line})"
            if self.file
            else self.function
        )


ABSENT_RANKS = "ranks that are not in this analysis"  # in place of a device's label


@dataclass(frozen=True, slots=True)
class PeerWait:
    """Time inside collectives waiting for a late rank, and why that rank was late."""

    late_rank: str  # label of its device, or ABSENT_RANKS
    cause: Cause | None  # None: busy, or its reason is not recorded
    ns: int


@dataclass(frozen=True, slots=True)
class LateRank:
    """The rank that the others wait for longest inside collectives."""

    label: str  # of its device
    cause: Cause | None  # of most of its lateness; None: busy, or its reason is not recorded
    waited_ns: int  # by all others, for it
    share: float  # of all waiting of ranks for one another
    changes: bool  # no rank is late in most steps
    # times as long as the median rank's kernels its own take; None: not comparable
    kernels: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceResult:
    label: str  # e.g. "rank 0, GPU 0 (NVIDIA A100)"
    trace: int  # index into Result.origins
    device: int  # index into Trace.devices
    rank: int | None
    first: int  # its recording begins: its first op, or the marked step with it
    last: int  # its recording ends: its last op, or the marked step with it
    whole: Period  # first to last
    steady: Period | None  # the steady steps; None if there are too few
    cold: ColdStart | None
    steps: Steps
    share: Share  # of exposed input, input by proxy and staging, in `judged`
    slices: Slices  # of the whole
    # sets: compute, comm, h2d, other, overhead; disjoint, as in TimeBreakdown
    busy: Mapping[str, np.ndarray]
    waits: np.ndarray  # set: host threads waiting for input
    worst: tuple[Gap, ...]  # three longest gaps of `judged`, input first where input is the verdict
    ops: int
    launches: int  # ops whose launch is in the trace
    charges: tuple[PeerWait, ...] = ()
    comm_wait: int = 0  # ns inside collectives, waiting for others, in `judged`
    # behind the advice: see steps/device.py
    metrics: Mapping[str, float] = field(default_factory=dict)
    threads: tuple[str, ...] = ()  # what reports call Trace.threads, for Slices.thread
    names: tuple[str, ...] = ()  # Trace.names, for Slices.name
    # "step", "idle", busy classes, causes by key
    per_step: Mapping[str, Spread] = field(default_factory=dict)
    # of copies to the device that no other work hides, and of staging, in `judged`
    copies: Share = Share(0.0)
    functions: tuple[FunctionTime, ...] = ()  # idle time by function, in `judged`; longest first
    framework: str = ""  # of the program: pytorch, jax, tensorflow; "" unknown
    phases: tuple[Phase, ...] = ()  # in order of time
    stage: InputStage | None = None  # of tf.data; None: no such events, or none is slow
    # that others wait for, as this device sees it; None: not known
    late_rank: LateRank | None = None

    @property
    def judged(self) -> Period:
        """The period that the verdict is about."""
        return self.steady or self.whole


@dataclass(frozen=True, slots=True)
class RankResult:
    """One rank compared with the others."""

    label: str
    offset_ns: int  # of its clock against the first rank's
    collectives: int  # matched
    waited_ns: int  # inside collectives for others
    blamed_ns: int  # that others waited for it
    # times as long as the median rank's its kernels take; None: not comparable
    kernels: float | None = None


@dataclass(frozen=True, slots=True)
class FeedResult:
    """Results of one feed from fastfeed's own timeline."""

    feed: str
    name: str
    rank: int
    batches: int
    span_ns: int  # first span to last
    waited_ns: int  # the trainer, for batches
    stages: Mapping[str, tuple[int, int]]  # stage -> (spans, ns summed over threads)
    threads: int  # that decoded
    busiest: str  # the stage with most time, "" unknown
    # of the trainer for each batch, in order: spans, shape (n, 2)
    waits: np.ndarray = field(default_factory=empty)
    # waits and what the trainer did with each batch, without pauses between epochs; 0 unknown
    training_ns: int = 0

    @property
    def wait_share(self) -> float:
        """Fraction of the trainer's time that it waited, as in `feed.stats()`."""
        return self.waited_ns / max(self.training_ns or self.span_ns, 1)


@dataclass(frozen=True, slots=True)
class Remedy:
    """One family of causes, and the gain without it at most."""

    family: str
    share: float  # of the judged window
    ms_per_step: float | None
    ceiling: float  # at most this many times faster: T / (T - X)
    causes: Mapping[Cause, int]
    change: str  # one concrete thing to do, with a computed value
    evidence: str  # what in the trace says so, one sentence with numbers


@dataclass(frozen=True, slots=True)
class Verdict:
    word: str  # not_starved, starved, severe, borderline, starved_of_copies, abstained
    headline: str  # one sentence with the number
    bound: str  # family that costs most, "gpu" where the device is busy, "" unknown
    share: Share
    confidence: str  # "confirmed", "likely", "weak"; "" where abstained
    evidence: tuple[str, ...]
    counter_evidence: tuple[str, ...]
    refutation: str  # what would show that this is wrong
    change: str  # the one thing to do
    command: str  # that measures again
    reasons: tuple[str, ...] = ()  # of an abstention
    record: str = ""  # how to record a trace that can carry a verdict
    remedies: tuple[Remedy, ...] = ()  # largest first


@dataclass(frozen=True, slots=True)
class Result:
    origins: tuple[Origin, ...]
    verdict: Verdict
    devices: tuple[DeviceResult, ...] = ()
    ranks: tuple[RankResult, ...] = ()
    feeds: tuple[FeedResult, ...] = ()
    notes: tuple[str, ...] = ()
