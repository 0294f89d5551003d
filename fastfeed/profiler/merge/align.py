"""Two recordings of one run on one clock: by the wall clock of both, refined by the ranges that both saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Alignment", "Seen", "align", "nearest"]

_NEAR_NS = 50_000_000  # wall clocks of one machine agree far better; what is further apart is another range
_ALIKE_NS = 200_000  # start and end of one range, as NVTX and as the timeline saw it
_FEW = 3  # ranges that both saw, for a refinement
_SPREAD_NS = 1_000_000  # more than this between their offsets: they are not the same ranges
_PATTERN = 64  # ranges in a row that are looked for where no clock is known
_PATTERN_FEW = 6
_PATTERN_NS = 100_000

Seen = Mapping[tuple[str, int], np.ndarray]  # ranges by name and thread: int64 (n, 2), in order of their start


@dataclass(frozen=True, slots=True)
class Alignment:
    """Add `shift` to the side's times to have the trace's."""

    shift: int  # ns
    matched: int  # ranges that both saw
    spread: int  # ns, median distance of their offsets from the middle one
    how: str  # a sentence's part for people: "by the wall clock, refined by 120 ranges"


def align(trace_wall: int | None, side_wall: int | None, trace: Seen, side: Seen) -> Alignment | None:
    """How the side's clock stands to the trace's; None where nothing tells."""
    if trace_wall is None or side_wall is None:
        return _by_pattern(trace, side)
    shift = side_wall - trace_wall
    residues = []
    for key in trace.keys() & side.keys():
        at, found = nearest(trace[key], side[key] + shift, _NEAR_NS)
        residues.append(trace[key][at, 0] - (side[key][found, 0] + shift))
    offsets = np.concatenate([np.empty(0, np.int64), *residues])
    if len(offsets) >= _FEW:
        middle = int(np.sort(offsets)[len(offsets) // 2])
        spread = int(np.sort(np.abs(offsets - middle))[len(offsets) // 2])
        if spread < _SPREAD_NS:
            how = f"by the wall clock, refined by {len(offsets)} NVTX ranges"
            return Alignment(shift + middle, len(offsets), spread, how)
    return Alignment(shift, 0, 0, "by the wall clock")


def nearest(ours: np.ndarray, theirs: np.ndarray, within: int = _ALIKE_NS) -> tuple[np.ndarray, np.ndarray]:
    """Indexes of spans that are the same: starts at most `within` ns apart, lengths alike; each is used once."""
    if not len(ours) or not len(theirs):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    after = np.searchsorted(theirs[:, 0], ours[:, 0])
    low, high = np.maximum(after - 1, 0), np.minimum(after, len(theirs) - 1)
    closer = np.abs(theirs[low, 0] - ours[:, 0]) <= np.abs(theirs[high, 0] - ours[:, 0])
    found = np.where(closer, low, high)
    lengths, other = ours[:, 1] - ours[:, 0], (theirs[:, 1] - theirs[:, 0])[found]
    alike = np.abs(lengths - other) <= np.maximum(_ALIKE_NS, lengths // 10)
    at = np.flatnonzero(alike & (np.abs(theirs[found, 0] - ours[:, 0]) <= within))
    _, first = np.unique(found[at], return_index=True)
    return at[first], found[at[first]]


def _by_pattern(trace: Seen, side: Seen) -> Alignment | None:
    """Where the distances between ranges of one kind are the same in both, as in a fingerprint."""
    best: Alignment | None = None
    for key in trace.keys() & side.keys():
        ours, theirs = trace[key][:_PATTERN], side[key]
        count = min(len(ours), len(theirs))
        if count < _PATTERN_FEW:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(theirs[:, 0], count)
        apart = ours[:count, 0] - windows
        spread = np.median(np.abs(apart - apart[:, [count // 2]]), axis=1)
        at = int(np.argmin(spread))
        alone = len(spread) == 1 or float(np.partition(spread, 1)[1]) > 4 * float(spread[at]) + _PATTERN_NS
        if alone and spread[at] < _PATTERN_NS and (best is None or spread[at] < best.spread):
            middle = int(np.sort(apart[at])[count // 2])
            best = Alignment(middle, count, int(spread[at]), f"by the pattern of {count} NVTX ranges")
    return best
