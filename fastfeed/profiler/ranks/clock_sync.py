"""Clock offsets between several recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.ranks.collectives import MatchedCollectives

__all__ = ["WALL_NS", "Clock", "align_clocks", "estimate_offset", "format_seconds"]

WALL_NS = 10_000_000_000  # maximum difference between the wall clocks of two hosts


@dataclass(frozen=True, slots=True)
class Clock:
    """A recording's clock: its time minus `offset_ns` is the first recording's time."""

    offset_ns: int
    spread_ns: int  # median deviation of the ends of collectives from it; 0 if none is matched
    found_by: str  # "same file", "collectives", "wall clock", "" unknown


def estimate_offset(a: Trace, b: Trace) -> tuple[int, int] | None:
    """Clock b minus clock a, and its maximum error, by the wall clocks; None if unknown."""
    if a is b:
        return 0, 0
    if a.origin.wall_ns is None or b.origin.wall_ns is None:
        return None
    return a.origin.wall_ns - b.origin.wall_ns, WALL_NS


def align_clocks(
    traces: Sequence[Trace], of_member: Sequence[int], matched: Sequence[MatchedCollectives]
) -> tuple[Clock, ...]:
    """One clock per trace, from the ends of collectives, which all participants leave together.

    `of_member` is each member's index in `traces`.
    """
    ends: dict[tuple[int, int], list[np.ndarray]] = {}
    for collectives in matched:
        for row in range(1, len(collectives.members)):
            a, b = of_member[collectives.members[0]], of_member[collectives.members[row]]
            difference = collectives.end[row] - collectives.end[0]
            ends.setdefault((a, b), []).append(difference)
            if a != b:
                ends.setdefault((b, a), []).append(-difference)
    pairs = {pair: np.concatenate(parts) for pair, parts in ends.items()}
    aligned = {
        0: Clock(0, _exact_median(np.abs(pairs[0, 0])) if (0, 0) in pairs else 0, "same file")
    }
    while True:
        reached = [pair for pair in pairs if pair[0] in aligned and pair[1] not in aligned]
        if not reached:
            break
        a, b = max(reached, key=lambda pair: len(pairs[pair]))
        difference = pairs[a, b]
        median = _exact_median(difference)
        spread = _exact_median(np.abs(difference - median))
        aligned[b] = Clock(
            aligned[a].offset_ns + median, max(spread, aligned[a].spread_ns), "collectives"
        )
    for index, trace in enumerate(traces):
        if index not in aligned:
            estimate = estimate_offset(traces[0], trace)
            aligned[index] = Clock(estimate[0], 0, "wall clock") if estimate else Clock(0, 0, "")
    return tuple(aligned[index] for index in range(len(traces)))


def _exact_median(values: np.ndarray) -> int:
    """The median, without the rounding errors of large float64."""
    return int(values[0]) + round(float(np.median(values - values[0])))


def format_seconds(ns: int) -> str:
    seconds = ns / 1e9
    return next(
        (
            f"{seconds / unit:.0f} {name}"
            for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes"))
            if seconds >= 2 * unit
        ),
        f"{seconds:.0f} seconds",
    )
