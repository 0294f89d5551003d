"""Lost device records with complete host calls: the work would count as idle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.profiler.even_steps import even_steps
from helpers.profiler.handmade import TraceBuilder
from helpers.profiler.lost_records import without_blocks, without_ops

from fastfeed.profiler import readers
from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.result import Verdict
from fastfeed.profiler.model.trace import Calls, Trace

MS = 1_000_000
STEPS = 30


def verdict(trace: Trace) -> Verdict:
    return analyze([trace]).verdict


def losing(share: float, trace: Trace | None = None) -> Trace:
    trace = trace or even_steps(STEPS, 0.3)
    return without_ops(trace, np.random.default_rng(1).random(len(trace.ops.start)) < share)


def test_a_few_lost_operations_cost_a_level_of_confidence():
    assert verdict(losing(0.0)).confidence == "confirmed"
    judged = verdict(losing(0.05))
    assert judged.confidence == "likely"
    (sentence,) = [
        text for text in judged.counter_evidence if "have no operation on the device" in text
    ]
    assert "some records were lost" in sentence


@pytest.mark.parametrize("share", [0.15, 0.3, 0.6])
def test_many_lost_operations_support_no_verdict(share: float):
    judged = verdict(losing(share))
    assert judged.word == "abstained"
    assert "launches" in judged.reasons[0] and "records were lost" in judged.reasons[0]
    assert not any("lost" in text for text in judged.counter_evidence)


@pytest.mark.parametrize("name", ["param_resnet", "tb_resnet50_nw0_span1"])
def test_operations_lost_from_real_recordings(data: Path, name: str):
    """Whole blocks of them, as where a buffer is full, and single ones."""
    path = next((data / "traces").rglob(f"{name}.*"), None)
    if path is None:
        pytest.skip(f"no trace {name} in the test data")
    trace = readers.read(path)
    for damaged in (without_blocks(trace, 0.4, 100 * MS), losing(0.3, trace)):
        judged = verdict(damaged)
        assert judged.word == "abstained" and "records were lost" in judged.reasons[0]


def test_copies_and_graphs_count_too():
    builder = TraceBuilder()
    for n in range(40):
        at = n * 10 * MS
        builder.op(at + MS, at + 9 * MS, (at, at + 1))
        if n % 4:
            builder.op(at + 9 * MS, at + 10 * MS, (at + 2, at + 3), api="cudaMemcpyAsync")
            builder.op(at + 9 * MS, at + 10 * MS, (at + 4, at + 5), api="cudaGraphLaunch", stream=9)
        else:
            builder.call(at + 2, at + 3, "cudaMemcpyAsync")
            builder.call(at + 4, at + 5, "cudaGraphLaunch")
    reason, *_ = verdict(builder.trace()).reasons
    assert reason.startswith(
        "18 of 116 launches (15.5 %) have no operation"
    )  # the last have not run long enough


def test_graphs_of_which_nothing_was_recorded():
    """Known to have run, as the host waited for them."""
    builder = TraceBuilder()
    for n in range(40):
        at = n * 10 * MS
        builder.op(at + MS, at + 2 * MS, (at, at + 1))
        builder.call(at + 3 * MS, at + 3 * MS + 10, "cudaGraphLaunch")
        builder.call(at + 4 * MS, at + 9 * MS, "cudaDeviceSynchronize")
    assert "launches (50.0 %)" in verdict(builder.trace()).reasons[0]


def healthy(extra: str, *, api: str = "cudaLaunchKernel") -> Trace:
    """Steps with calls of whose work there is nothing to record; `extra` says why."""
    builder = TraceBuilder()
    for n in range(40):
        at = n * 10 * MS
        corr = builder.op(at + 100_000, at + 10 * MS, (at, at + 1000), api=api)
        if extra == "capture":
            builder.call(at + 2000, at + 2001, "cudaStreamBeginCapture_v10000")
            for part in range(3):
                builder.call(at + 2100 + part, at + 2101 + part, api)
            builder.call(at + 2200, at + 2201, "cudaStreamEndCapture")
        elif extra == "driver":
            builder.call(at + 100, at + 200, "cuLaunchKernel")
        elif extra == "same id":
            builder.call(at + 100, at + 200, "cuLaunchKernel", corr=corr)
        elif extra == "memset":
            builder.call(at + 2000, at + 2001, "cudaMemsetAsync")
        elif extra == "host function":
            builder.call(at + 2000, at + 2001, "cudaLaunchHostFunc")
        elif extra == "no id":
            builder.add(
                Calls, start=at + 2000, end=at + 2001, name="cudaLaunchKernel", thread=0, corr=-1
            )
    if extra == "pending":
        for part in range(20):
            builder.call(395 * MS + part, 395 * MS + part + 1, api)
    return builder.trace()


@pytest.mark.parametrize(
    "extra", ["capture", "driver", "same id", "memset", "host function", "no id", "pending"]
)
def test_launches_that_have_no_operation_in_a_whole_recording(extra: str):
    result = analyze([healthy(extra)])
    assert result.devices[0].metrics["lost_launches"] == 0
    assert result.verdict.word == "not_starved" and not any(
        "lost" in text for text in result.verdict.counter_evidence
    )


def test_the_driver_is_the_outer_call_of_some_runtimes():
    trace = healthy("driver")
    names = tuple(
        {"cuLaunchKernel": "cudaLaunchKernel", "cudaLaunchKernel": "cuLaunchKernel"}.get(name, name)
        for name in trace.names
    )
    assert analyze([replace(trace, names=names)]).devices[0].metrics["lost_launches"] == 0


def test_what_the_host_launched_ahead_on_another_stream_is_not_lost():
    """Copies on another stream are far ahead; the recording ends before the kernels."""
    builder = TraceBuilder()
    for n in range(60):
        at = n * MS
        if n < 10:
            builder.op(at * 6 + MS, at * 6 + 7 * MS, (at, at + 1))
        else:
            builder.call(at, at + 1, "cudaLaunchKernel")
        builder.op(at + 10_000, at + 200_000, (at + 10, at + 11), api="cudaMemcpyAsync", stream=14)
    assert analyze([builder.trace()]).devices[0].metrics["lost_launches"] == 0
