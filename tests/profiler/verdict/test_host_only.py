"""A recording without a device: no verdict, but what its host waited for."""

from __future__ import annotations

import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.trace import RangeKind


def test_a_recording_of_the_host_alone_says_how_long_it_waited():
    builder = TraceBuilder()
    for at in range(0, 10_000_000, 1_000_000):
        builder.range(at, at + 1_000_000, f"ProfilerStep#{at}", RangeKind.STEP)
        builder.range(
            at,
            at + 300_000,
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            RangeKind.NVTX,
        )
    verdict = analyze([builder.trace()]).verdict
    assert verdict.word == "abstained"
    assert verdict.evidence == (
        (
            "The host waited for input 30.0 % of the time of 10 marked steps: 10 waits, 3.00 ms."
            " Only a recording with a GPU can tell whether that delays training."
        ),
    )


def test_waits_of_tf_data_are_in_threads_of_tensorflow():
    builder = TraceBuilder()
    for at in range(0, 10_000_000, 1_000_000):
        builder.range(at, at + 1_000_000, f"ProfilerStep#{at}", RangeKind.STEP)
        builder.range(
            at + 100_000, at + 700_000, "IteratorGetNextOp::DoCompute", RangeKind.OP, thread=1
        )
    (sentence,) = analyze([builder.trace()]).verdict.evidence
    assert sentence.startswith(
        "The host waited for input 60.0 % of the time of 10 marked steps: 10 waits, 6.00 ms."
    )


def test_a_thread_that_is_parked_for_an_unknown_reason_is_named():
    builder = TraceBuilder()
    for at in range(1_000_000, 6_000_000, 1_000_000):
        builder.range(at, at + 1_000_000, f"ProfilerStep#{at}", RangeKind.STEP)
        builder.range(at, at + 400_000, "queue.py(154): get", RangeKind.PYTHON)
        builder.range(at + 100_000, at + 300_000, "threading.py(295): wait", RangeKind.PYTHON)
    builder.range(0, 900_000, "queue.py(154): get", RangeKind.PYTHON)  # before the first step
    assert analyze([builder.trace()]).verdict.evidence == (
        (
            "The thread that trains was parked 40.0 % of the time of 5 marked steps, most of it in"
            " queue.py(154): get. Only a recording with a GPU can tell whether that delays"
            " training."
        ),
    )


@pytest.mark.parametrize("kind", [RangeKind.OP, RangeKind.PYTHON])
def test_without_waits_nothing_is_said(kind: RangeKind):
    builder = TraceBuilder()
    builder.range(0, 1_000_000, "aten::linear", kind)
    assert analyze([builder.trace()]).verdict.evidence == ()


def test_launches_without_their_work_are_the_hosts_side_alone():
    builder = TraceBuilder()
    for at in range(5):
        builder.call(at * 1_000, at * 1_000 + 500, "cudaLaunchKernel" if at else "cudaMemcpyAsync")
    builder.call(9_000, 9_500, "cudaStreamSynchronize")
    verdict = analyze([builder.trace()]).verdict
    assert verdict.reasons == (
        "Only the host's side was recorded: 5 launches of kernels and copies, and none of them.",
    )
    assert verdict.change.startswith("Record the GPU as well: ProfilerActivity.CUDA")
