"""Nested frames of one thread, and which of them launch no device work."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fastfeed.profiler.model.intervals import overlap, spans, spans_at

_MIN_NS = 20_000  # shorter frames belong to the function that calls them
_STILL = 0.8  # of a frame: other threads may still launch the work of the step before in the rest


@dataclass(frozen=True, slots=True)
class Frames:
    """Nested ranges of one thread, in order of start, the outer before the inner."""

    start: np.ndarray  # int64
    end: np.ndarray  # int64
    name: np.ndarray  # int32, index into Trace.names
    parent: np.ndarray  # int64, index of the innermost frame around it; -1 none
    outer: np.ndarray  # int64, index of the outermost quiet frame around it, or its own; -1 none
    levels: tuple[np.ndarray, ...]  # int64 indexes of the frames of each depth, outermost first

    @property
    def span(self) -> np.ndarray:
        return spans_at(self)

    @property
    def quiet(self) -> np.ndarray:
        """Which frames launch nothing but copies to the device: bool, shape (n,)."""
        return self.outer >= 0

    def around(self, chosen: np.ndarray, innermost: bool = False) -> np.ndarray:
        """Outermost (or innermost) chosen frame around each, or itself: int64; -1 none."""
        own = np.where(chosen, np.arange(len(self.start)), -1)
        result = own.copy()
        for level in self.levels[1:]:
            above = np.where(self.parent[level] >= 0, result[self.parent[level]], -1)
            is_own = chosen[level] if innermost else above < 0
            result[level] = np.where(is_own, own[level], above)
        return result


def nest(
    start: np.ndarray,
    end: np.ndarray,
    name: np.ndarray,
    own_launches: np.ndarray,
    all_launches: np.ndarray,
    still: np.ndarray,
) -> Frames:
    """Frames from ranges of one thread; those shorter than 20 us are left out.

    `own_launches` and `all_launches`: sorted launches of work other than copies to the device, int64 ns, by this
    thread and by any of the process. `still`: the set of long spans without any.
    """
    rows = np.flatnonzero(end - start >= _MIN_NS)
    rows = rows[np.lexsort((-end[rows], start[rows]))]
    start = start[rows]
    end = end[rows]
    count = len(rows)
    index = np.arange(count)
    depth = index - np.searchsorted(np.sort(end), start, side="right")
    key = depth * (count + 1) + index
    by_depth = np.argsort(key, kind="stable")
    # the last of the depth above that began before
    above = np.searchsorted(key[by_depth], key - count - 1) - 1
    parent = (
        np.where((depth > 0) & (above >= 0), by_depth[np.maximum(above, 0)], -1) if count else index
    )
    levels = tuple(np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1))
    has_own, has_any = (
        np.searchsorted(at, end) > np.searchsorted(at, start) for at in (own_launches, all_launches)
    )
    is_quiet = ~has_own & (~has_any | (overlap(spans(start, end), still) >= _STILL * (end - start)))
    frames = Frames(start, end, name[rows], parent, index, levels)
    return replace(frames, outer=frames.around(is_quiet))


def self_time(frames: Frames) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint spans in order in which one frame is innermost, (m, 2), and that frame: int64."""
    children = np.lexsort((frames.start, frames.parent))
    children = children[frames.parent[children] >= 0]
    parent = frames.parent[children]
    end = frames.end[children]
    is_first = np.diff(parent, prepend=-1) != 0
    resumed = np.where(is_first, frames.start[parent], np.concatenate([[0], end])[:-1])
    tail = frames.start.copy()
    tail[parent] = end  # the last of its children is written last
    start = np.concatenate([resumed, tail])
    until = np.concatenate([frames.start[children], frames.end])
    owner = np.concatenate([parent, np.arange(len(frames.start))])
    order = np.argsort(start, kind="stable")
    start = start[order]
    until = until[order]
    reach = np.maximum.accumulate(until)
    start[1:] = np.maximum(start[1:], reach[:-1])  # where ranges overlap instead of nesting
    is_span = until > start
    return spans(start[is_span], until[is_span]), owner[order][is_span]
