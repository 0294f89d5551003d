"""Lanes of the page: what is timeline keeps every nanosecond and the longest gaps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.profiler import results_made
from hypothesis import given
from hypothesis import strategies as st

from fastfeed.profiler.reports import picture
from fastfeed.profiler.reports.picture import CLASSES, FIRST_CAUSE, TimelineLane


def rows(flat: list[int]) -> list[tuple[int, dict[int, int], tuple[int, ...]]]:
    """(length, nanoseconds of each class, the longest idle slice) as the page decodes them."""
    result, at = [], 0
    while at < len(flat):
        length, kind = flat[at], flat[at + 1]
        if kind >= 0:
            result.append((length, {kind: length}, ()))
            at += 3
            continue
        parts = flat[at + 6 : at + 6 - 2 * kind]
        result.append(
            (length, dict(zip(parts[::2], parts[1::2], strict=True)), tuple(flat[at + 2 : at + 6]))
        )
        at += 6 - 2 * kind
    return result


def lane(lengths: list[int], kinds: list[int]) -> TimelineLane:
    end = np.cumsum(np.array(lengths, np.int64))
    return TimelineLane(
        end - lengths, end, np.array(kinds, np.int64), np.zeros(len(lengths), np.int64)
    )


@given(
    st.lists(
        st.tuples(st.integers(1, 10**12), st.integers(0, CLASSES - 1)), min_size=1, max_size=300
    ),
    st.integers(30, 400),
)
def test_every_nanosecond_of_every_class_is_kept(spans: list[tuple[int, int]], limit: int) -> None:
    timeline = lane([length for length, _ in spans], [kind for _, kind in spans])
    result = rows(picture.flatten(timeline, limit))
    expected = dict.fromkeys(range(CLASSES), 0)
    for length, kind in spans:
        expected[kind] += length
    totals = dict.fromkeys(range(CLASSES), 0)
    for length, parts, _ in result:
        assert length == sum(parts.values())
        for kind, ns in parts.items():
            totals[kind] += ns
    assert totals == expected
    assert len(result) <= max(limit, 30) * 2 or len(spans) <= limit


def test_few_spans_stay_as_they_are() -> None:
    timeline = lane([5, 7, 9], [0, FIRST_CAUSE, 1])
    assert picture.flatten(timeline, 100) == [5, 0, 0, 7, FIRST_CAUSE, 0, 9, 1, 0]


def test_the_longest_gaps_stay_exact() -> None:
    device = results_made.crowded(20_000).devices[0]
    timeline = picture.device_lane(device, np.zeros(len(device.slices.start), np.int64))
    idle = np.sort((timeline.end - timeline.start)[timeline.kind >= FIRST_CAUSE])[-50:].tolist()
    flat = rows(picture.flatten(timeline, 2000))
    exact = [length for length, parts, _ in flat if len(parts) == 1 and min(parts) >= FIRST_CAUSE]
    assert set(idle) <= set(exact)


def test_a_mix_names_the_longest_of_its_idle_slices() -> None:
    timeline = lane([10, 3, 10, 4, 10] * 1000, [0, FIRST_CAUSE, 0, FIRST_CAUSE + 1, 0] * 1000)
    mixes = [longest for _, parts, longest in rows(picture.flatten(timeline, 60)) if len(parts) > 2]
    assert mixes and all(longest[2:] == (4, FIRST_CAUSE + 1) for longest in mixes)


@pytest.mark.parametrize("name", ["one", "healthy"])
def test_the_lane_of_a_device_is_its_whole_time_without_holes(name: str) -> None:
    device = results_made.EVERY[name]().devices[0]
    timeline = picture.device_lane(device, np.zeros(len(device.slices.start), np.int64))
    assert timeline.start[0] == device.first and timeline.end[-1] == device.last
    assert (timeline.start[1:] == timeline.end[:-1]).all()
    assert not (timeline.kind == picture.NOTHING).any()


def test_spans_that_overlap_or_leave_holes_still_make_a_lane() -> None:
    device = results_made.one().devices[0]
    late = device.busy["compute"][::2] + np.array([[0, 40_000_000]])
    busy = dict(device.busy) | {"compute": late}
    odd = replace(device, busy=busy)
    timeline = picture.device_lane(odd, np.zeros(len(odd.slices.start), np.int64))
    assert (timeline.start[1:] == timeline.end[:-1]).all() and (timeline.end > timeline.start).all()
    assert (timeline.start[0], timeline.end[-1]) == (device.first, device.last)
