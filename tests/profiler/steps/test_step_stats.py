"""What a step is made of, over the steps of a run whose parts are known."""

from __future__ import annotations

import pytest
from helpers.profiler.simulator.judged import judged

from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.reports.document import as_dict
from fastfeed.profiler.reports.figures import PARTS
from fastfeed.profiler.reports.page import page


@pytest.fixture(scope="module")
def result():
    return judged("slow_loader", "nsys").result


def test_means_are_the_period_by_its_steps(result):
    device = result.devices[0]
    steps, budget = int(device.steps.steady.sum()), device.judged.budget
    per_step = device.per_step
    assert per_step["step"].mean * steps == pytest.approx(budget.window, rel=0.01)
    for key in ("compute", "idle"):
        assert per_step[key].mean * steps == pytest.approx(getattr(budget, key), rel=0.01)
    for cause, ns in device.judged.causes.items():
        if ns > 0.01 * budget.window:
            assert per_step[cause.key].mean * steps == pytest.approx(ns, rel=0.01)


@pytest.mark.parametrize("scenario", ("slow_loader", "every_fourth", "checkpoints", "tiny_kernels"))
def test_the_parts_of_a_step_add_up_to_it_exactly(scenario: str):
    device = judged(scenario, "chrome").result.devices[0]
    mean = {key: spread.mean for key, spread in device.per_step.items()}
    assert sum(mean.get(part, 0) for part in PARTS) == mean["step"]
    assert sum(mean.get(cause.key, 0) for cause in Cause) == mean["idle"]
    assert mean["step"] == round(device.judged.budget.window / device.steps.steady.sum())
    assert device.metrics["step_ms"] == pytest.approx(mean["step"] / 1e6, rel=1e-6)


def test_intervals_hold_the_share_and_medians_lie_below_the_95th_percentile(result):
    device = result.devices[0]
    assert {"step", "compute", "idle", "input"} <= set(device.per_step)
    for key, spread in device.per_step.items():
        assert spread.median <= spread.p95, key
        if key != "step":
            assert (
                spread.low <= spread.mean / device.per_step["step"].mean * 1.02
                and spread.high >= spread.low
            ), key
    waits = device.per_step["input"]
    assert waits.low <= device.share.value + 0.01 and waits.high >= device.share.value - 0.01


def test_in_the_document_and_on_the_page(result):
    per_step = as_dict(result)["devices"][0]["steps"]["per_step"]
    assert per_step["input"]["median_ns"] == result.devices[0].per_step["input"].median
    assert "95th percentile" in page(result)


def test_too_few_steps_have_no_spread():
    device = judged("slow_loader", "nvprof_csv").result.devices[0]
    assert bool(device.per_step) == (device.steps.steady.sum() >= 3)
