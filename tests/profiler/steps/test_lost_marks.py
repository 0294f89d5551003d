"""Steps whose marks were lost: numbers that skip tell so, and no step is as long as two."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from helpers.profiler.even_steps import PERIOD_NS, even_steps
from helpers.profiler.handmade import TraceBuilder
from helpers.profiler.lost_records import without_ranges
from rich.console import Console

from fastfeed.profiler import readers
from fastfeed.profiler.analysis import analyze
from fastfeed.profiler.model.result import Result
from fastfeed.profiler.model.trace import RangeKind
from fastfeed.profiler.reports import document, page, text
from fastfeed.profiler.steps.marks import missing_after

MS = 1_000_000


def screen(result: Result) -> str:
    out = io.StringIO()
    text.render(
        result, Console(file=out, width=80, height=24, force_terminal=True, color_system=None)
    )
    return " ".join(out.getvalue().split())


@pytest.mark.parametrize("tail", [0.0, 0.003, 0.04, 0.3])
@pytest.mark.parametrize("lost", [(10, 20), (10, 11, 12), (1, 37)])
def test_a_step_is_not_as_long_as_two(lost: tuple[int, ...], tail: float):
    """Whether its mark covers all of it or the computation alone."""
    mark = "train {}" if tail else "ProfilerStep#{}"  # the profiler's own leave nothing out
    trace = without_ranges(
        even_steps(40, 0.3, tail=tail, mark=mark), *(mark.format(number) for number in lost)
    )
    result = analyze([trace])
    (device,) = result.devices
    steady = device.steps.spans[device.steps.steady]
    assert (steady[:, 1] - steady[:, 0] == PERIOD_NS).all()
    assert device.share.value == pytest.approx(0.3, abs=0.001)
    assert device.steps.missing == len(lost)
    # the first, as its end is not known
    excluded = ", 1 cut step excluded" if tail and 1 in lost else ""
    assert f"Only {len(device.steps.labels)} of" in " ".join(result.verdict.counter_evidence)
    assert (
        f"{len(steady)} steps of 100 ms{excluded}, {len(lost)} missing by their numbers"
        in screen(result)
    )
    assert f"{len(lost)} steps missing by their numbers" in page.page(result)
    assert document.as_dict(result)["devices"][0]["steps"]["missing"] == len(lost)


def test_a_lost_mark_in_a_real_recording(data: Path):
    path = next((data / "traces").rglob("tb_resnet50_nw0_span1.*"), None)
    if path is None:
        pytest.skip("no such trace in the test data")
    result = analyze([without_ranges(readers.read(path), "ProfilerStep#8")])
    (device,) = result.devices
    assert device.judged.budget.window / device.steps.steady.sum() == pytest.approx(
        175 * MS, rel=0.02
    )
    assert "5 steps of 174 ms, 1 missing by their numbers" in screen(result)


def test_steps_measured_on_the_device_are_not_as_long_as_two_either():
    """The host is three steps ahead."""
    builder = TraceBuilder()
    for n in range(30):
        at = n * 10 * MS
        if n not in (12, 20):
            builder.range(at, at + 10 * MS, f"ProfilerStep#{n}", RangeKind.STEP)
        for part in range(5):
            begin = at + 35 * MS + part * 2 * MS
            builder.op(begin, begin + 2 * MS, (at + part * 1000, at + part * 1000 + 10))
    (device,) = analyze([builder.trace()]).devices
    steady = device.steps.spans[device.steps.steady]
    assert (steady[:, 1] - steady[:, 0] == 10 * MS).all()
    assert not {"ProfilerStep#11", "ProfilerStep#19"} & {
        label
        for label, is_steady in zip(device.steps.labels, device.steps.steady, strict=True)
        if is_steady
    }
    assert device.steps.missing == 2


def test_no_number_is_missing_from_a_whole_recording():
    result = analyze([even_steps(30, 0.3)])
    assert result.devices[0].steps.missing == 0
    assert "missing" not in screen(result)


@pytest.mark.parametrize(
    ("labels", "missing"),
    [
        (("s#1", "s#2", "s#4", "s#5"), [0, 1, 0, 0]),
        (("s#4", "s#8", "s#20", "s#24"), [0, 2, 0, 0]),
        (("epoch 1 batch 7/500", "epoch 1 batch 8/500", "epoch 1 batch 10/500"), [0, 1, 0]),
        (("epoch 1 batch 499", "epoch 2 batch 0", "epoch 2 batch 2"), [0, 0, 0]),
        (("train_step",) * 4, [0, 0, 0, 0]),
        (("s 1", "s 1", "s 1"), [0, 0, 0]),
        (("s 1", "s 3"), [0, 0]),
        (("s 1", "step", "s 4"), [0, 0, 0]),
        (("s 1", "s " + "9" * 400, "s 3"), [0, 0, 0]),
        ((), []),
    ],
)
def test_numbers(labels: tuple[str, ...], missing: list[int]):
    assert missing_after(labels).tolist() == missing
