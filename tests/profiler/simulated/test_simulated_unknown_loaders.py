"""Loaders whose names say nothing: what they cost, in random runs whose truth is known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from helpers.profiler.one_story import assert_one_story
from helpers.profiler.simulator.events import Run
from helpers.profiler.simulator.to_trace import as_traces
from helpers.profiler.simulator.unknown_loaders import KINDS, run_of_unknown

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.attribution.attribution import spans_with_cause
from fastfeed.profiler.model.causes import INPUT_CAUSES
from fastfeed.profiler.model.intervals import clip, intersect, measure, union
from fastfeed.profiler.model.result import Result

POINT = 0.01
STARVING = 0.06  # of the window: enough to call it starved whatever the interval


def input_shares(run: Run, result: Result) -> tuple[float, float]:
    """True and reported share of judged time that the device waited for input.

    From its first operation on: the truth does not include the time before.
    """
    (device,) = result.devices
    first = min(op.start for op in run.ops)
    judged = clip(device.judged.spans, first, device.last)
    waits = [(idle.start, idle.end) for idle in run.idle if idle.cause in INPUT_CAUSES]
    true = union(np.array(waits, np.int64).reshape(-1, 2))
    reported = spans_with_cause(device.slices, *INPUT_CAUSES)
    share, said = (measure(intersect(lost, judged)) / measure(judged) for lost in (true, reported))
    return share, said


def runs(seeds: range, has_frames: bool) -> Iterator[tuple[str, Run, Result]]:
    for seed in seeds:
        kind, run = run_of_unknown(seed, has_frames=has_frames)
        yield f"{seed}: {kind}", run, analyze(as_traces(run))


def check(seeds: range) -> None:
    wrong = []
    kinds = set()
    for about, run, result in runs(seeds, has_frames=True):
        assert_one_story(result)
        kinds.add(about.split(": ")[1])
        true, reported = input_shares(run, result)
        if abs(true - reported) > 2 * POINT:
            wrong.append((about, true, reported))
        if true > STARVING and result.verdict.word == "not_starved":
            wrong.append((about, result.verdict.headline))
    assert not wrong
    assert kinds == set(KINDS)


def test_the_cost_of_unknown_loaders() -> None:
    check(range(40))


@pytest.mark.nightly
def test_the_cost_of_unknown_loaders_in_more_runs() -> None:
    check(range(40, 340))


def test_without_frames_there_is_no_verdict_where_it_could_be_input() -> None:
    for about, run, result in runs(range(12), has_frames=False):
        assert_one_story(result)
        if input_shares(run, result)[0] > STARVING:
            assert result.verdict.word == "abstained", about
