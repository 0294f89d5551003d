"""Laws of steps: of equal steps the share is that of each step, however the recording begins."""

from __future__ import annotations

import pytest
from helpers.products import in_turn
from helpers.profiler.even_steps import PERIOD_NS, even_steps

from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.compare.compare import compare
from fastfeed.profiler.model.trace import RangeKind
from fastfeed.profiler.reports.document import as_dict
from fastfeed.profiler.reports.figures import PARTS

COUNTS = (3, 4, 5, 6, 7, 12, 30, 100)


@pytest.mark.parametrize("share", (0.056, 0.22, 0.30))
@pytest.mark.parametrize(
    ("lacks", "steps"), in_turn((0.0, 0.02, 0.4, 0.9, 0.999), COUNTS, pytest.mark.nightly)
)
def test_of_equal_steps_the_share_is_that_of_each(steps: int, lacks: float, share: float):
    """A GPU's recording begins with its first operation, after the wait that opens the step."""
    result = analyze([even_steps(steps, share, lacks=lacks)])
    assert result.devices[0].share.value == pytest.approx(share, abs=0.001)
    if result.devices[0].steps.steady.sum() > 2:  # two whole steps say nothing about their spread
        assert result.verdict.word == ("starved" if share < 0.2 else "severe")


@pytest.mark.parametrize(
    ("share", "tail"),
    [
        pytest.param(share, tail, marks=[pytest.mark.slow] if i != j else [])
        for i, share in enumerate((0.04, 0.056, 0.30))
        for j, tail in enumerate((0.003, 0.04, 0.3))
    ],
)
@pytest.mark.parametrize(
    ("lacks", "steps"),
    in_turn((0.0, 0.02, 0.4, 0.9, 0.999, 0.9999), (2, *COUNTS), pytest.mark.nightly),
)
def test_the_last_step_counts_only_if_its_end_is_known(
    steps: int, lacks: float, tail: float, share: float
):
    """A mark around the computation alone leaves the last end open; no whole step, no verdict."""
    result = analyze([even_steps(steps, share, lacks=lacks, tail=tail, mark="train {}")])
    if result.verdict.word == "abstained":
        assert steps == 2 or (steps == 3 and lacks > 0.99)
        assert result.verdict.reasons[0].startswith(f"None of the {steps} steps is whole: ")
    else:
        assert result.devices[0].share.value == pytest.approx(share, abs=0.001)


@pytest.mark.parametrize(
    ("mark", "waits", "optimizer", "found_by"),
    (
        ("ProfilerStep#{}", True, True, "steps that the trace marks (ProfilerStep#N)"),
        ("step {}", True, True, "numbered annotations (step N)"),
        ("", True, True, "optimizer steps (Optimizer.step#SGD.step)"),
        ("", True, False, "waits for batches"),
    ),
)
@pytest.mark.parametrize("steps", COUNTS)
def test_the_best_marks_are_taken_in_order(
    steps: int, mark: str, waits: bool, optimizer: bool, found_by: str
):
    kind = RangeKind.STEP if mark.startswith("Profiler") else RangeKind.NVTX
    optimizer_name, wait_name = (
        "Optimizer.step#SGD.step" if optimizer else "",
        "DataLoader.__next__" if waits else "",
    )
    trace = even_steps(
        steps + 1, 0.3, mark=mark, kind=kind, optimizer=optimizer_name, waits=wait_name
    )
    device = analyze([trace]).devices[0]
    assert device.steps.found_by == found_by
    assert device.share.value == pytest.approx(0.3, abs=0.001)


def test_one_mark_around_everything_gives_way_to_optimizer_steps():
    trace = even_steps(
        12, 0.3, mark="", optimizer="Optimizer.step#Adam.step", around="ProfilerStep#0"
    )
    assert analyze([trace]).devices[0].steps.found_by.startswith("optimizer steps")


@pytest.mark.parametrize("lacks", (0.0, 0.5))
@pytest.mark.parametrize("steps", (4, 6, 30))
def test_one_length_of_a_step_everywhere(steps: int, lacks: float):
    """On the screen, in the document and in a comparison; and its parts sum to it."""
    result = analyze([even_steps(steps, 0.3, lacks=lacks)])
    device = result.devices[0]
    count = int(device.steps.steady.sum())
    on_screen = device.judged.budget.window / count
    per_step = as_dict(result)["devices"][0]["steps"]["per_step"]
    change = compare(result, result).devices[0]
    assert on_screen == per_step["step"]["mean_ns"] == change.step.before_ns == PERIOD_NS
    assert sum(per_step[part]["mean_ns"] for part in PARTS if part in per_step) == PERIOD_NS
    assert sum(part.before_ns or 0 for part in change.parts) == PERIOD_NS


def test_a_first_step_that_was_cut_is_no_cold_start():
    verdict = analyze([even_steps(8, 0.3, lacks=0.5)]).verdict
    assert not any("cold start" in sentence for sentence in verdict.counter_evidence)
    assert any(
        "The recording begins inside the first step" in sentence
        for sentence in verdict.counter_evidence
    )
