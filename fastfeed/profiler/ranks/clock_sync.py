"""What the clocks of several recordings show at the same moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastfeed.profiler.model.trace import Trace
from fastfeed.profiler.ranks.collectives import Matched

__all__ = ["WALL_NS", "Clock", "clocks", "guess"]

WALL_NS = 10_000_000_000  # that the wall clocks of two hosts may differ


@dataclass(frozen=True, slots=True)
class Clock:
    """One recording's clock against the first one's: its time less `offset_ns` is the first one's."""

    offset_ns: int
    spread_ns: int  # median distance of the ends of collectives from that; 0 where none has a partner
    found_by: str  # "same file", "collectives", "wall clock", "" where nothing says


def guess(a: Trace, b: Trace) -> tuple[int, int] | None:
    """Clock b less clock a, and how far that may be wrong, before any collective is matched; None where unknown."""
    if a is b:
        return 0, 0
    if a.origin.wall_ns is None or b.origin.wall_ns is None:
        return None
    return a.origin.wall_ns - b.origin.wall_ns, WALL_NS


def clocks(traces: Sequence[Trace], of_member: Sequence[int], matched: Sequence[Matched]) -> tuple[Clock, ...]:
    """One per trace, from the ends of collectives: all participants leave together. `of_member` says whose is which."""
    ends: dict[tuple[int, int], list[np.ndarray]] = {}
    for one in matched:
        for row in range(1, len(one.members)):
            a, b = of_member[one.members[0]], of_member[one.members[row]]
            apart = one.end[row] - one.end[0]
            ends.setdefault((a, b), []).append(apart)
            if a != b:
                ends.setdefault((b, a), []).append(-apart)
    pairs = {pair: np.concatenate(parts) for pair, parts in ends.items()}
    found = {0: Clock(0, _middle(np.abs(pairs[0, 0])) if (0, 0) in pairs else 0, "same file")}
    while True:
        reached = [pair for pair in pairs if pair[0] in found and pair[1] not in found]
        if not reached:
            break
        a, b = max(reached, key=lambda pair: len(pairs[pair]))
        apart = pairs[a, b]
        middle = _middle(apart)
        spread = _middle(np.abs(apart - middle))
        found[b] = Clock(found[a].offset_ns + middle, max(spread, found[a].spread_ns), "collectives")
    for at, trace in enumerate(traces):
        if at not in found:
            known = guess(traces[0], trace)
            found[at] = Clock(known[0], 0, "wall clock") if known else Clock(0, 0, "")
    return tuple(found[at] for at in range(len(traces)))


def _middle(values: np.ndarray) -> int:
    """The median, without the roundings of large float64."""
    return int(values[0]) + round(float(np.median(values - values[0])))
