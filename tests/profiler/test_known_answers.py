"""Real traces whose truth is known: what the analysis must say of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from fastfeed.profiler import readers
from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.causes import Cause
from fastfeed.profiler.model.result import DeviceResult, Period, Result


@cache
def _analyzed(path: Path) -> Result:
    return analyze([readers.read(path)])


@pytest.fixture
def analyzed(data):
    """`analyzed("kineto/x.json.gz")`: the result for one real trace."""

    def run(name: str) -> Result:
        return _analyzed(data / "traces" / name)

    return run


def percent(period: Period, *causes: Cause) -> float:
    return 100 * sum(period.causes.get(cause, 0) for cause in causes) / period.budget.window


def only(result: Result) -> DeviceResult:
    (device,) = result.devices
    return device


def test_resnet_without_workers_is_starved(analyzed):
    result = analyzed("kineto/tb_resnet50_nw0_span1.pt.trace.json.gz")
    device = only(result)
    assert result.verdict.word == "severe"
    assert device.steps.steady.all(), "the first one from its mark, with its wait"
    assert percent(device.judged, Cause.INPUT) == pytest.approx(33.6, abs=0.3)
    assert result.verdict.bound == "input"
    assert "num_workers=" in result.verdict.change
    assert all("DataLoader" in gap.inside for gap in device.worst)


def test_resnet_with_workers_is_not(analyzed):
    result = analyzed("kineto/tb_resnet50_nw4_span1.pt.trace.json.gz")
    device = only(result)
    assert result.verdict.word == "not_starved"
    assert percent(device.whole, Cause.INPUT) < 1 > percent(device.judged, Cause.INPUT)
    assert result.verdict.bound == "launch"
    assert percent(device.whole, Cause.FRAMEWORK) == pytest.approx(16, abs=1)
    assert "More loader workers will not help" in result.verdict.change


def test_detector_that_resizes_on_the_host_is_severely_starved(analyzed):
    result = analyzed("kineto/tracelens_mi300_owlv2.json.gz")
    assert result.verdict.word == "severe"
    assert percent(only(result).judged, Cause.INPUT) == pytest.approx(64.2, abs=0.1)
    assert percent(only(result).whole, Cause.INPUT) == pytest.approx(64.2, abs=0.1)


def test_imagenet_with_slow_workers_and_a_cold_start(analyzed):
    result = analyzed("kineto/lotus_v100_imagenet_b128_gpu1.json.xz")
    device = only(result)
    assert result.verdict.word == "severe"
    assert percent(device.whole, Cause.INPUT) == pytest.approx(75.3, abs=0.1)
    assert percent(device.whole, Cause.ALLOC) == pytest.approx(6.4, abs=0.1)
    assert device.cold is not None and device.cold.steps == 2
    named = {Cause.ALLOC, Cause.MODULE_LOAD}
    loader = device.cold.causes[Cause.INPUT]  # its workers start
    assert loader == pytest.approx(1_888_000_000, rel=0.01)
    assert sum(device.cold.causes[cause] for cause in named) > 0.85 * (device.cold.idle - loader)
    assert not named & {
        cause for cause, ns in device.judged.causes.items() if ns > device.judged.budget.idle // 100
    }
    assert any("75.3 %" in sentence for sentence in result.verdict.evidence), (
        "the whole recording is told, too"
    )


def test_ddp_that_launches_too_slowly_is_not_short_of_input(analyzed):
    result = analyzed("kineto/hta_nccl_data.json.gz")
    assert result.verdict.word == "not_starved"
    assert percent(only(result).whole, Cause.INPUT) == 0
    assert result.verdict.bound == "launch"
    assert only(result).whole.budget.idle / only(result).whole.budget.window == pytest.approx(
        0.764, abs=0.001
    )


def test_a_sampled_trace_carries_no_verdict(analyzed):
    result = analyzed("kineto/hta_sampled_rank0.json.gz")
    assert result.verdict.word == "abstained"
    assert "missing" in result.verdict.reasons[0]
    assert result.verdict.record


def test_two_gpus_that_are_busy_and_wait_for_each_other(analyzed):
    result = analyzed("nsys_sqlite/nsysai_mfu_2gpu_before.sqlite")
    assert (result.verdict.word, result.verdict.bound) == ("not_starved", "gpu")
    first, second = result.devices
    assert first.comm_wait == pytest.approx(10.9e6, rel=0.01), "rank 0 waits inside NCCL"
    assert first.charges[0].late_rank == second.label
    assert second.comm_wait < first.comm_wait / 2


def test_the_same_run_before_and_after_moves_input_to_the_launches(analyzed):
    """PyTorch's own pair for its plugin: more workers, and nothing else changed."""
    without = only(analyzed("kineto/tb_resnet50_nw0_span1.pt.trace.json.gz"))
    workers = only(analyzed("kineto/tb_resnet50_nw4_span1.pt.trace.json.gz"))
    assert without.judged.input.exposed > 20 * workers.judged.input.exposed
    assert without.metrics["step_ms"] > 1.3 * workers.metrics["step_ms"]


@pytest.mark.parametrize("name", ("tl_vllm_piecewise", "tl_b200_eager"))
def test_layers_of_one_forward_pass_are_no_steps(analyzed, name: str):
    result = analyzed(f"more/kineto/{name}.json.gz")
    assert not only(result).steps.labels
    assert result.verdict.confidence == "weak"
    assert not any("per step" in remedy.evidence for remedy in result.verdict.remedies)


def test_optimizer_steps_are_steps_and_what_precedes_them_is_cold(analyzed):
    """Thirty steps; cuDNN and the loader's workers take a third of the recording before."""
    device = only(analyzed("more/kineto/param_resnet.json.gz"))
    assert device.steps.found_by == "optimizer steps (Optimizer.step#SGD.step)"
    assert len(device.steps.labels) == 29
    assert (
        device.cold is not None and device.judged.budget.window < 0.7 * device.whole.budget.window
    )


def test_waiting_that_the_gpu_did_not_feel_is_called_hidden(analyzed):
    waits = only(analyzed("kineto/tb_resnet50_nw0_span1.pt.trace.json.gz")).judged.input
    assert waits.total == waits.exposed + waits.hidden
    assert waits.hidden > 50e6
