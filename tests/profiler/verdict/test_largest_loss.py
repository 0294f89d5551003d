"""The headline answers the question about input; the one change is about what costs most."""

from __future__ import annotations

import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.result import Verdict
from fastfeed.profiler.model.trace import Kind, RangeKind

MS = 1_000_000
STEP = 100 * MS


def run(
    wait: int = 0,
    operator: int = 0,
    unknown: int = 0,
    copy: int = 0,
    hidden: int = 0,
    steps: int = 24,
) -> Verdict:
    """Steps of 100 ms with parts in ms; a kernel fills the rest, and hides `hidden` of the copy."""
    builder = TraceBuilder()
    for n in range(steps):
        at = n * STEP
        builder.range(at, at + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        builder.range(at, at + wait * MS, "DataLoader.__next__", RangeKind.NVTX)
        begin = at + (wait + unknown) * MS
        builder.range(begin, begin + operator * MS + 1, "aten::convolution", RangeKind.OP)
        builder.op(begin, begin + 1, (begin, begin))
        begin += operator * MS
        if copy:
            builder.op(
                begin,
                begin + copy * MS,
                (begin, begin),
                api="cudaMemcpyAsync",
                kind=Kind.H2D,
                bytes=50 * MS,
                pageable=0,
                stream=9,
                name="copy",
            )
        begin += (copy - hidden) * MS
        builder.op(begin, at + STEP, (begin, begin))
    return analyze([builder.trace()]).verdict


def test_input_that_costs_a_sixth_of_another_loss_is_not_the_change():
    verdict = run(wait=8, operator=50)
    assert (verdict.word, verdict.bound) == ("starved", "launch")
    assert "it waits for input" in verdict.headline
    assert "the largest loss: the host launches too slowly (" in verdict.headline
    assert verdict.change.startswith("Launch fewer, larger kernels")
    assert {remedy.family for remedy in verdict.remedies} == {
        "launch",
        "input",
    }, "the smaller one is listed"


def test_where_input_costs_most_nothing_else_is_named():
    verdict = run(wait=30, operator=10)
    assert "largest loss" not in verdict.headline
    assert verdict.change.startswith("Make batches")


def test_of_a_starved_device_what_is_not_recorded_is_not_the_change():
    verdict = run(wait=10, unknown=30)
    assert verdict.word == "starved"
    assert verdict.change.startswith("Make batches")


@pytest.mark.parametrize(
    ("copy", "word"), [(3, "not_starved"), (8, "starved_of_copies"), (95, "starved_of_copies")]
)
def test_copies_that_nothing_hides_starve_a_device_of_copies(copy: int, word: str):
    verdict = run(copy=copy)
    assert verdict.word == word
    assert verdict.share.value == 0
    if copy == 95:
        assert verdict.bound == "h2d"
        assert verdict.headline.startswith(
            "The GPU is starved of copies: it waits for batches to be copied to it 95.0 % of the"
            " time"
        )
        assert verdict.change.startswith("Copy the next batch on its own stream")
        assert "20.00 times as fast" in verdict.refutation


def test_copies_that_are_exposed_because_the_host_is_slow_are_told_with_it():
    verdict = run(copy=18, operator=50)
    assert (verdict.word, verdict.bound) == ("not_starved", "launch")
    assert any("lost to copies to the GPU" in sentence for sentence in verdict.evidence)


def test_hidden_copies_cost_nothing():
    assert run(copy=40, hidden=40).word == "not_starved"


def test_waiting_for_input_comes_before_copies():
    assert run(wait=10, copy=30).word == "starved"


def test_most_copies_of_all_devices_are_what_it_is_about():
    builder = TraceBuilder()
    for n in range(24):
        at = n * STEP
        builder.range(at, at + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        for device, copy in ((0, 2 * MS), (1, 30 * MS)):
            builder.op(
                at,
                at + copy,
                (at, at),
                kind=Kind.H2D,
                device=device,
                api="cudaMemcpyAsync",
                bytes=MS,
            )
            builder.op(at + copy, at + STEP, (at, at), device=device)
    verdict = analyze([builder.trace(devices=2)]).verdict
    assert verdict.word == "starved_of_copies"
    assert verdict.headline.startswith("GPU 1")


def test_a_device_that_computes_and_copies_its_results_is_busy():
    """Less than 80 % of the time are kernels, but all else is a hundredth."""
    builder = TraceBuilder()
    for n in range(24):
        at = n * STEP
        builder.range(at, at + STEP, f"ProfilerStep#{n}", RangeKind.STEP)
        builder.range(at, at + MS, "train.py(3): step")
        builder.op(at + MS, at + 75 * MS, (at + MS, at + MS))
        builder.op(
            at + 75 * MS,
            at + STEP,
            (at + MS, at + MS),
            kind=Kind.D2H,
            api="cudaMemcpyAsync",
            name="copy",
        )
    verdict = analyze([builder.trace()]).verdict
    assert (verdict.word, verdict.bound) == ("not_starved", "gpu")


@pytest.mark.parametrize(
    ("kind", "title", "change"),
    [
        (RangeKind.GC, "garbage collection", "Collect garbage"),
        (RangeKind.GIL, "interpreter lock", "Move other"),
    ],
)
def test_what_the_interpreter_spends_has_a_name_and_a_change_of_its_own(
    kind: RangeKind, title: str, change: str
):
    builder = TraceBuilder()
    for at in range(0, 24 * STEP, STEP):
        builder.range(at, at + STEP, f"ProfilerStep#{at // STEP}", RangeKind.STEP)
        builder.op(at, at + STEP // 4, (at, at + 5))
        builder.range(at + STEP // 4, at + STEP // 2, "zork", kind)
        builder.op(at + STEP // 2, at + STEP, (at + STEP // 2, at + STEP // 2 + 5))
    verdict = analyze([builder.trace()]).verdict
    assert f"the largest loss: {title}" in verdict.headline
    assert verdict.change.startswith(change)
