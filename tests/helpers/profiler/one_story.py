"""What one report must not do: contradict itself."""

from __future__ import annotations

from fastfeed.profiler.model.causes import STARVED, Cause
from fastfeed.profiler.model.result import Result
from fastfeed.profiler.verdict.verdict import focus


def assert_one_story(result: Result) -> None:
    """Causes add up; what functions are said to be in agrees with the verdict and with the
    advice.
    """
    for device in result.devices:
        judged = device.judged
        assert sum(judged.causes.values()) == judged.budget.idle
        by_cause = dict.fromkeys(Cause, 0)
        for time in device.functions:
            by_cause[time.cause] += time.ns
        assert all(ns <= judged.causes.get(cause, 0) for cause, ns in by_cause.items())
    verdict = result.verdict
    device = focus(result.devices)
    threshold = STARVED * device.judged.budget.window
    if sum(time.ns for time in device.functions if time.cause.family == "input") >= threshold:
        assert verdict.word != "not_starved"
        assert "workers will not help" not in verdict.change
    if (
        sum(time.ns for time in device.functions if time.cause in (Cause.HOST_CODE, Cause.IO))
        >= threshold
    ):
        assert verdict.word != "not_starved"
