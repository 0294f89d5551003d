"""The truth against what an analysis says, nanosecond by nanosecond."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import Slices
from helpers.profiler.simulator.events import Idle

Confusion = Mapping[tuple[Cause, Cause], int]  # (truth, said) -> ns

# What a dialect has no record of, and what it can say at best.
_NOT_RECORDED: Mapping[str, Mapping[Cause, frozenset[Cause]]] = {
    "nsys": {Cause.PYTHON: frozenset({Cause.HOST_UNKNOWN})},  # no frames of the interpreter
    "nvprof": {
        Cause.PYTHON: frozenset({Cause.HOST_UNKNOWN}),
        Cause.GC: frozenset({Cause.GC, Cause.FRAMEWORK}),
    },
    "chrome": {Cause.GC: frozenset({Cause.GC, Cause.FRAMEWORK})},  # an annotation like any other
    "xplane": {
        Cause.GC: frozenset({Cause.GC, Cause.FRAMEWORK}),
        Cause.PEER: frozenset({Cause.DEPENDENCY}),  # no record of stream waits
    },
}


def tellable(dialect: str, truth: Cause) -> frozenset[Cause]:
    """What counts as right: the truth, or the most that this dialect lets anybody know of it."""
    return _NOT_RECORDED.get(dialect, {}).get(truth, frozenset({truth}))


def confusion(truth: Sequence[Idle], slices: Slices, shift: int) -> Confusion:
    """Overlaps of the true spans, `shift` later, with the slices, all in order.

    Raises ValueError where a nanosecond has a cause on one side only.
    """
    reported = list(
        zip(slices.start.tolist(), slices.end.tolist(), slices.cause.tolist(), strict=True)
    )
    matrix: Counter[tuple[Cause, Cause]] = Counter()
    at = 0
    for one in truth:
        start, end = one.start + shift, one.end + shift
        while at < len(reported) and reported[at][1] <= start:
            at += 1
        look = at
        while look < len(reported) and reported[look][0] < end:
            matrix[one.cause, Cause(reported[look][2])] += min(end, reported[look][1]) - max(
                start, reported[look][0]
            )
            look += 1
    total = sum(one.end - one.start for one in truth)
    if not sum(matrix.values()) == total == sum(end - start for start, end, _ in reported):
        raise ValueError(
            f"{total} ns idle in truth, {sum(end - start for start, end, _ in reported)} ns said"
        )
    return matrix


def agreement(matrix: Confusion, dialect: str) -> float:
    """The fraction of idle nanoseconds with the right cause; 1 where there are none."""
    right = sum(
        ns for (truth, reported), ns in matrix.items() if reported in tellable(dialect, truth)
    )
    return right / (sum(matrix.values()) or 1)
