"""What rests on guessed steps says so, and is never confirmed."""

from __future__ import annotations

import pytest
from helpers.profiler.handmade import TraceBuilder

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.result import Result
from fastfeed.profiler.model.trace import Kind, RangeKind

MS = 1_000_000


def streamed(mark: str) -> Result:
    """Forty rounds of an exposed copy and two kernels, each with a mark around it, or none."""
    builder = TraceBuilder()
    for number in range(40):
        at = number * 10 * MS
        builder.op(
            at,
            at + 6 * MS,
            (at, at + 5 * MS),
            kind=Kind.H2D,
            name="Memcpy HtoD",
            bytes=900 << 20,
            pageable=1,
        )
        builder.op(at + 6 * MS, at + 8 * MS, (at + 5 * MS, at + 5 * MS + 10), name="gemm")
        builder.op(at + 8 * MS, at + 9_900_000, (at + 5 * MS + 20, at + 5 * MS + 30), name="norm")
        if mark:
            builder.range(at, at + 10 * MS, mark.format(number), RangeKind.NVTX)
    return analyze([builder.trace()])


@pytest.mark.parametrize(("mark", "level"), (("", "likely"), ("train_step {}", "confirmed")))
def test_a_guess_is_never_confirmed(mark: str, level: str):
    result = streamed(mark)
    assert result.devices[0].steps.steady.sum() >= 38
    assert result.verdict.confidence == level


def test_advice_says_that_its_steps_are_guessed():
    verdict = streamed("").verdict
    (copies,) = [remedy for remedy in verdict.remedies if remedy.family == "h2d"]
    assert "943.7 MB per guessed step" in copies.evidence
    assert copies.change.startswith("If these copies are batches: pin the host memory")
    assert (
        "Nothing marks the steps: they are guessed from recurring copies of 943,718,400 bytes to"
        " the GPU." in (verdict.counter_evidence)
    )


def test_advice_on_marked_steps_does_not():
    verdict = streamed("train_step {}").verdict
    (copies,) = [remedy for remedy in verdict.remedies if remedy.family == "h2d"]
    assert "943.7 MB per step" in copies.evidence
    assert copies.change.startswith("Pin the host memory")
    assert not any("guessed" in sentence for sentence in verdict.counter_evidence)
