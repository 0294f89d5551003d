"""Verdicts: their words, their marks, what they advise first, and when there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.result import Result, Share
from fastfeed.profiler.model.trace import Kind, RangeKind, Trace
from fastfeed.profiler.verdict.verdict import starved_word

MS = 1_000_000
STEP = 100 * MS


def run(
    steps: int = 24,
    wait: int = 0,
    staged: int = 0,
    other: int = 0,
    loader: str = "DataLoader.__next__",
) -> TraceBuilder:
    """Steps of 100 ms with a batch, the call of a pageable copy, an operator, and one kernel."""
    builder = TraceBuilder()
    for n in range(steps):
        at = n * STEP
        builder.range(at, at + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        if wait:
            builder.range(at, at + wait, loader, RangeKind.NVTX)
        begin = at + wait
        if staged:
            end = begin + staged
            builder.op(
                end - MS,
                end,
                (begin, end),
                api="cudaMemcpyAsync",
                kind=Kind.H2D,
                pageable=1,
                bytes=50 * MS,
            )
        begin += staged
        builder.range(begin, begin + other + 1, "aten::convolution", RangeKind.OP)
        builder.op(begin + other, at + STEP, (begin + other, begin + other))
    return builder


def judged(builder: TraceBuilder) -> Result:
    return analyze([builder.trace()])


@pytest.mark.parametrize(
    ("share", "word"),
    [
        (Share(0.049, 0.01, 0.09), "not_starved"),
        (Share(0.05, 0.05, 0.05), "starved"),
        (Share(0.08, 0.049, 0.12), "borderline"),
        (Share(0.30, 0.02, 0.5), "borderline"),
        (Share(0.30, 0.19, 0.5), "starved"),
        (Share(0.20, 0.20, 0.20), "severe"),
        (Share(0.07), "starved"),
    ],
)
def test_a_mark_counts_once_the_interval_has_passed_it(share: Share, word: str):
    assert starved_word(share) == word


@pytest.mark.parametrize(
    ("wait", "word"), [(0, "not_starved"), (4, "not_starved"), (6, "starved"), (30, "severe")]
)
def test_words_of_whole_runs(wait: int, word: str):
    result = judged(run(wait=wait * MS))
    assert result.verdict.word == word
    assert result.verdict.share.value == pytest.approx(wait / 100), (
        "of whole steps: the first is cut at its kernel"
    )
    assert result.verdict.confidence == "confirmed"


def test_pageable_copies_are_told_from_waiting_for_batches():
    verdict = judged(run(staged=25 * MS)).verdict
    assert verdict.word == "severe"
    assert "copies from pageable memory" in verdict.headline
    assert verdict.bound == "h2d"
    assert verdict.change.startswith("Pin the host memory")


def test_what_costs_more_of_the_two_comes_first():
    assert judged(run(wait=20 * MS, staged=6 * MS)).verdict.change.startswith("Make batches")
    assert judged(run(wait=6 * MS, staged=20 * MS)).verdict.change.startswith("Pin")


def test_a_busy_device_is_its_own_limit():
    verdict = judged(run(other=6 * MS)).verdict
    assert (verdict.word, verdict.bound) == ("not_starved", "gpu")
    assert "GPU is busy" in verdict.change


def test_many_small_causes_are_no_busy_device():
    """9 ms in an operator, 8 of allocating, 8 of syncing: none costs a tenth, all a quarter."""
    builder = run(other=25 * MS)
    for n in range(24):
        at = n * STEP
        builder.call(at, at + 8 * MS, "cudaMalloc")
        builder.call(at + 8 * MS, at + 16 * MS, "cudaStreamSynchronize")
    verdict = judged(builder).verdict
    assert max(remedy.share for remedy in verdict.remedies) < 0.1
    assert verdict.bound == "launch"


def test_where_the_wait_is_outside_of_the_annotated_step():
    builder = TraceBuilder()
    for n in range(20):
        at = n * STEP
        builder.range(at, at + 30 * MS, "DataLoader.__next__", RangeKind.NVTX)
        builder.range(at + 30 * MS, at + STEP, "train_step", RangeKind.NVTX)
        builder.op(at + 30 * MS, at + STEP, (at + 30 * MS, at + 30 * MS))
    verdict = judged(builder).verdict
    assert verdict.word == "severe"
    assert verdict.share.value == pytest.approx(0.3, abs=0.01)


def _abstaining(trace: Trace) -> str:
    verdict = analyze([trace]).verdict
    assert (verdict.word, verdict.bound, verdict.confidence) == ("abstained", "", "")
    assert verdict.headline == f"No verdict. {verdict.reasons[0]}"
    assert verdict.record
    return verdict.reasons[0]


def test_abstains_of_what_is_lost():
    trace = run().trace()
    assert (
        _abstaining(replace(trace, origin=replace(trace.origin, dropped=1)))
        == "The profiler lost 1 record."
    )
    assert "is sampled" in _abstaining(replace(trace, origin=replace(trace.origin, sampled=True)))
    trace = run(other=8 * MS).trace()
    assert "API calls were not recorded" in _abstaining(
        replace(trace, origin=replace(trace.origin, host_calls=False))
    )


def test_abstains_where_the_launches_of_what_was_waited_for_are_missing():
    builder = run(other=8 * MS)
    for n in range(24, 28):
        builder.op(n * STEP + 60 * MS, (n + 1) * STEP)
        builder.range(n * STEP, (n + 1) * STEP, f"ProfilerStep#{n}", RangeKind.STEP)
    assert _abstaining(builder.trace()).startswith(
        "Only 24 of 28 device operations have a recorded launch"
    )


def test_abstains_where_unknown_time_could_be_input_unless_waits_are_recorded():
    builder = TraceBuilder()
    for n in range(24):
        at = n * STEP
        builder.range(at, at + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        builder.op(at + 20 * MS, at + STEP, (at + 20 * MS, at + 20 * MS))
    assert "could be input" in _abstaining(builder.trace())
    for n in range(24):
        builder.range(n * STEP + 50 * MS, n * STEP + 51 * MS, "DataLoader.__next__", RangeKind.NVTX)
    assert judged(builder).verdict.word == "not_starved"


def test_no_device_no_verdict():
    builder = TraceBuilder()
    builder.range(0, 100, "train.py(1): main")
    verdict = judged(builder).verdict
    assert verdict.word == "abstained"
    assert verdict.reasons == ("No kernel, copy or memset was recorded.",)


@pytest.mark.parametrize(
    ("steps", "says"), [(2, "Only 2 complete steps"), (3, "Only 3 complete steps"), (5, "")]
)
def test_few_steps_are_said(steps: int, says: str):
    builder = run(steps, wait=10 * MS)
    verdict = judged(builder).verdict
    notes = [
        sentence
        for sentence in verdict.counter_evidence
        if "recorded; a likely verdict takes 5" in sentence
    ]
    assert len(notes) == bool(says)
    assert all(sentence.startswith(says) for sentence in notes)
    assert verdict.confidence == ("weak" if says else "likely")


@pytest.mark.parametrize("last", (1, 2, 5))
def test_the_last_steps_alone_are_judged_where_asked(last: int):
    """The last ones wait for nothing; the window of all the others does."""
    builder = run(10, wait=10 * MS)
    for n in range(10, 16):
        builder.range(n * STEP, n * STEP + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        builder.op(n * STEP, n * STEP + STEP, (n * STEP - MS, n * STEP - MS))
    result = analyze([builder.trace()], last_steps=last)
    assert result.devices[0].judged.budget.window == last * STEP
    assert result.verdict.share.value == 0
    assert analyze([builder.trace()]).verdict.share.value > 0.05
