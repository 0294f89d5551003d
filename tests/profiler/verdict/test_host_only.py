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
        builder.range(at, at + 300_000, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", RangeKind.NVTX)
    verdict = analyze([builder.trace()]).verdict
    assert verdict.word == "abstained"
    assert verdict.evidence == (
        "The host waited for input 30.0 % of the recorded time: 10 waits, 3.00 ms. Only a recording with a GPU can "
        "tell whether that delays training.",
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
