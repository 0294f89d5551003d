"""Clock alignment of two recordings: by wall clock, refined by ranges in both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Alignment", "RangesByKey", "align", "nearest"]

# wall clocks of one machine agree far better; spans further apart are different ranges
_NEAR_NS = 50_000_000
_SAME_NS = 200_000  # between start and end of one range in NVTX and in the timeline
_MIN_MATCHES = 3  # ranges in both recordings, for a refinement
_SPREAD_NS = 1_000_000  # between their offsets; with more they are different ranges
_PATTERN_LENGTH = 64  # consecutive ranges to search for where no clock is known
_MIN_PATTERN = 6
_PATTERN_NS = 100_000

# ranges by name and thread: int64 (n, 2), in order of their start
RangesByKey = Mapping[tuple[str, int], np.ndarray]


@dataclass(frozen=True, slots=True)
class Alignment:
    """Add `shift` to the side's times to have the trace's."""

    shift: int  # ns
    matched: int  # ranges in both recordings
    spread: int  # ns, median distance of their offsets from the middle one
    how: str  # a sentence's part for people: "by the wall clock, refined by 120 ranges"


def align(
    trace_wall: int | None, side_wall: int | None, trace: RangesByKey, side: RangesByKey
) -> Alignment | None:
    """The offset of the side's clock against the trace's; None if it cannot be determined."""
    if trace_wall is None or side_wall is None:
        return _by_pattern(trace, side)
    shift = side_wall - trace_wall
    offsets_by_key = []
    for key in trace.keys() & side.keys():
        at, partner = nearest(trace[key], side[key] + shift, _NEAR_NS)
        offsets_by_key.append(trace[key][at, 0] - (side[key][partner, 0] + shift))
    offsets = np.concatenate([np.empty(0, np.int64), *offsets_by_key])
    if len(offsets) >= _MIN_MATCHES:
        middle = int(np.sort(offsets)[len(offsets) // 2])
        spread = int(np.sort(np.abs(offsets - middle))[len(offsets) // 2])
        if spread < _SPREAD_NS:
            how = f"by the wall clock, refined by {len(offsets)} NVTX ranges"
            return Alignment(shift + middle, len(offsets), spread, how)
    return Alignment(shift, 0, 0, "by the wall clock")


def nearest(
    ours: np.ndarray, theirs: np.ndarray, within: int = _SAME_NS
) -> tuple[np.ndarray, np.ndarray]:
    """Indexes of equal spans: starts at most `within` ns apart, lengths alike; each used once."""
    if not len(ours) or not len(theirs):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    after = np.searchsorted(theirs[:, 0], ours[:, 0])
    low, high = np.maximum(after - 1, 0), np.minimum(after, len(theirs) - 1)
    closer = np.abs(theirs[low, 0] - ours[:, 0]) <= np.abs(theirs[high, 0] - ours[:, 0])
    closest = np.where(closer, low, high)
    lengths, other = ours[:, 1] - ours[:, 0], (theirs[:, 1] - theirs[:, 0])[closest]
    similar = np.abs(lengths - other) <= np.maximum(_SAME_NS, lengths // 10)
    at = np.flatnonzero(similar & (np.abs(theirs[closest, 0] - ours[:, 0]) <= within))
    _, first = np.unique(closest[at], return_index=True)
    return at[first], closest[at[first]]


def _by_pattern(trace: RangesByKey, side: RangesByKey) -> Alignment | None:
    """Align by a sequence of ranges with the same distances in both recordings."""
    best: Alignment | None = None
    for key in trace.keys() & side.keys():
        ours, theirs = trace[key][:_PATTERN_LENGTH], side[key]
        count = min(len(ours), len(theirs))
        if count < _MIN_PATTERN:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(theirs[:, 0], count)
        offsets = ours[:count, 0] - windows
        spread = np.median(np.abs(offsets - offsets[:, [count // 2]]), axis=1)
        at = int(np.argmin(spread))
        is_unique = (
            len(spread) == 1
            or float(np.partition(spread, 1)[1]) > 4 * float(spread[at]) + _PATTERN_NS
        )
        if is_unique and spread[at] < _PATTERN_NS and (best is None or spread[at] < best.spread):
            middle = int(np.sort(offsets[at])[count // 2])
            best = Alignment(
                middle, count, int(spread[at]), f"by the pattern of {count} NVTX ranges"
            )
    return best
